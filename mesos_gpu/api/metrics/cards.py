"""Metrics of each GPU, under the names and labels of NVIDIA's DCGM exporter, and of its use by tasks.

A value that the driver does not report has no sample: unknown is not 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

from mesos_gpu.api.metrics.family import Family, Values
from mesos_gpu.engine.reading.nodes import gpu_statuses, is_used
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse
from mesos_gpu.model.nodes.node import GpuStatus
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.wire.export.prometheus import Column

#: Labels as in DCGM's exporter; `gpu` is the index, `device` has the minor number.
LABELS: Final = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
#: The values of `LABELS` for metrics of this project, whose labels are not in camelCase.
OWN_LABELS: Final = ("gpu", "UUID", "pci_bus_id", "device", "model", "Hostname", "DCGM_FI_DRIVER_VERSION")
_HELD: Final = ("task", "job", "queue", "user", "app", "UUID")
_USED: Final = ("task", "UUID")
_MILLI: Final = 1000
Labels = tuple[str, ...]
_UNKNOWN: Final = GpuUse(GpuId(""), 0.0)  # for a card whose use is not known


class _Card(NamedTuple):
    """A card's labels, its memory in MiB, and its use; None if that is not known, or too old."""

    labels: Labels
    memory_mib: int
    use: GpuUse | None


class Gpus:
    """All GPUs, and which of them tasks hold.

    Slow parts are computed where they are read, not on the engine's thread.

    Args:
        each: Every GPU once.
        used: GPUs that tasks hold, whole or in shares.
    """

    def __init__(self, each: tuple[GpuStatus, ...], used: frozenset[GpuId]) -> None:
        self.each, self.used = each, used

    @cached_property
    def ordered(self) -> list[GpuStatus]:
        """GPUs by host and index."""
        return sorted(self.each, key=lambda status: (status.node.hostname, status.gpu.place, status.gpu.id))

    @cached_property
    def cards(self) -> list[_Card]:
        """Cards in that order, as metrics need them."""
        return [
            _Card(
                _labels(status), status.gpu.memory_mib, use if status.health is not Health.UNKNOWN else None
            )
            for status, use in _with_uses(self.ordered)
        ]

    @cached_property
    def labels(self) -> list[Labels]:
        """Labels of the cards."""
        return [card.labels for card in self.cards]

    @cached_property
    def uses(self) -> list[GpuUse]:
        """Uses of the cards."""
        return [card.use or _UNKNOWN for card in self.cards]

    @cached_property
    def meters(self) -> list[Meters]:
        """Meters of the cards."""
        return [use.meters for use in self.uses]


def gpus_of(view: View) -> Gpus:
    """Collect the GPUs, once for all families."""
    statuses = tuple(gpu_statuses(view))
    return Gpus(statuses, frozenset(status.gpu.id for status in statuses if is_used(view, status)))


def _with_uses(statuses: Sequence[GpuStatus]) -> Iterator[tuple[GpuStatus, GpuUse | None]]:
    """Yield each GPU with its latest use, if its node has reported one."""
    of_node: dict[str, Mapping[GpuId, GpuUse]] = {}
    for status in statuses:
        node = status.node
        if node.id not in of_node:
            uses = node.inventory.gpu_uses if node.inventory and node.lost_at is None else ()
            of_node[node.id] = {use.gpu_id: use for use in uses}
        yield status, of_node[node.id].get(status.gpu.id)


def index_label(gpu: Gpu) -> str:
    """Return the label `gpu`: the index as nvidia-smi shows; "" if the driver does not list the card now."""
    return "" if gpu.index is None else str(gpu.index)


def _labels(status: GpuStatus) -> Labels:
    """Return the values of `LABELS` for a GPU."""
    gpu, node = status.gpu, status.node
    where = (index_label(gpu), gpu.id, gpu.pci_bus_id, f"nvidia{gpu.minor}")
    return (*where, gpu.model, node.hostname, node.driver_version or "")


def _meter_samples(value: Callable[[Meters], float | None]) -> Callable[[Gpus], Values]:
    """Return a function that makes a sample for each card with a known meter value."""
    return lambda gpus: Column(gpus.labels, [value(meters) for meters in gpus.meters])


def _use_samples(value: Callable[[GpuUse], float | None]) -> Callable[[Gpus], Values]:
    return lambda gpus: Column(gpus.labels, [value(use) for use in gpus.uses])


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / _MILLI


def _nvlink(meters: Meters) -> int | None:
    if meters.nvlink_tx_kib is None or meters.nvlink_rx_kib is None:
        return None
    return meters.nvlink_tx_kib + meters.nvlink_rx_kib


# --- instances of cards in MIG mode


def _instances(gpus: Gpus) -> Values:
    """Yield the memory of each MIG instance that hosts have reported."""
    for status in gpus.ordered:
        gpu, sharing = status.gpu, status.gpu.sharing
        if sharing is not None and status.node.lost_at is None:
            for instance in sharing.instances:
                where = (index_label(gpu), gpu.id, status.node.hostname)
                yield (
                    (*where, instance.profile, str(instance.gpu_instance), instance.uuid),
                    instance.memory_mib,
                )


# --- what tasks hold and use


class _TaskOnCard(NamedTuple):
    """A task on a card that it holds."""

    labels: Labels  # of `_HELD`
    part: float  # of the card's compute, up to 1
    use: TaskUse | None
    instance: str  # MIG instance; "" without MIG


def _on_cards(view: View) -> Sequence[_TaskOnCard]:
    """Return a row for each task and each GPU that it holds."""
    uses: dict[tuple[TaskId, GpuId], TaskUse] = {}
    for node in view.nodes.values():
        if node.inventory and node.lost_at is None:
            uses.update({(use.task_id, use.gpu_id): use for use in node.inventory.task_uses})
    rows = []
    for task in view.tasks.values():
        job = view.jobs.get(task.job_id) if task.job_id and task.gpus and not task.ended else None
        if job is None:
            continue
        labels = (task.id, job.id, job.spec.queue, job.charged_to, job.spec.app or "")
        part = 1.0 if task.share is None else task.share.compute_milli / WHOLE
        instance = task.share.instance if task.share else ""
        rows += [_TaskOnCard((*labels, gpu), part, uses.get((task.id, gpu)), instance) for gpu in task.gpus]
    return rows


def _task_samples(value: Callable[[TaskUse], float | None]) -> Callable[[Sequence[_TaskOnCard]], Values]:
    """Return a function that makes a sample for each task and card whose use is known."""
    return lambda rows: [
        ((row.labels[0], row.labels[-1]), number)
        for row in rows
        if row.use is not None and (number := value(row.use)) is not None
    ]


def _busy_s(use: GpuUse | TaskUse) -> float | None:
    return None if use.work is None else use.work.busy_ms / _MILLI


def _seen_s(use: GpuUse | TaskUse) -> float | None:
    return None if use.work is None else use.work.seen_ms / _MILLI


#: End of DCGM's name, kind, help text, and the function that reads the meter.
_DCGM: Final[tuple[tuple[str, str, str, Callable[[Meters], float | None]], ...]] = (
    ("SM_CLOCK", "gauge", "SM clock frequency (in MHz).", attrgetter("sm_clock_mhz")),
    ("MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", attrgetter("memory_clock_mhz")),
    ("MEMORY_TEMP", "gauge", "Memory temperature (in C).", attrgetter("memory_temperature_c")),
    ("GPU_TEMP", "gauge", "GPU temperature (in C).", attrgetter("temperature_c")),
    ("POWER_USAGE", "gauge", "Power draw (in W).", lambda m: _watts(m.power_mw)),
    ("POWER_MGMT_LIMIT", "gauge", "Power limit (in W).", lambda m: _watts(m.power_limit_mw)),
    (
        "TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Energy since the driver was loaded (in mJ).",
        attrgetter("energy_mj"),
    ),
    ("PCIE_REPLAY_COUNTER", "counter", "Number of PCIe retries.", attrgetter("pcie_replays")),
    ("PCIE_TX_THROUGHPUT", "gauge", "Data sent over PCIe (in KiB a second).", attrgetter("pcie_tx_kib_s")),
    (
        "PCIE_RX_THROUGHPUT",
        "gauge",
        "Data received over PCIe (in KiB a second).",
        attrgetter("pcie_rx_kib_s"),
    ),
    ("GPU_UTIL", "gauge", "GPU utilization (in %).", attrgetter("gpu_pct")),
    ("MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", attrgetter("memory_pct")),
    ("ENC_UTIL", "gauge", "Encoder utilization (in %).", attrgetter("encoder_pct")),
    ("DEC_UTIL", "gauge", "Decoder utilization (in %).", attrgetter("decoder_pct")),
    ("FB_FREE", "gauge", "Framebuffer memory free (in MiB).", attrgetter("memory_free_mib")),
    ("FB_USED", "gauge", "Framebuffer memory used (in MiB).", attrgetter("memory_used_mib")),
    ("FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", attrgetter("memory_reserved_mib")),
    (
        "UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Rows remapped for uncorrectable errors.",
        attrgetter("uncorrectable_rows"),
    ),
    (
        "CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Rows remapped for correctable errors.",
        attrgetter("correctable_rows"),
    ),
    ("ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed.", attrgetter("row_remap_failure")),
    ("NVLINK_BANDWIDTH_TOTAL", "counter", "Data of all NVLinks, both ways (in KiB).", _nvlink),
)
#: Name, kind, help text, and function, for the use of a card and for a task's use of one.
_OF_CARDS: Final[tuple[tuple[str, str, str, Callable[[GpuUse], float | None]], ...]] = (
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", attrgetter("xid")),
    (
        "mesos_gpu_gpu_busy_seconds_total",
        "counter",
        "Time in which a card was at work, as far as it was seen.",
        _busy_s,
    ),
    (
        "mesos_gpu_gpu_seen_seconds_total",
        "counter",
        "Time of a card of which is known whether it was at work.",
        _seen_s,
    ),
    ("mesos_gpu_gpu_processes", "gauge", "Processes on a card.", attrgetter("processes")),
)
_OF_TASKS: Final[tuple[tuple[str, str, str, Callable[[TaskUse], float | None]], ...]] = (
    (
        "mesos_gpu_task_used_memory_mib",
        "gauge",
        "Memory of a card that a task uses.",
        lambda use: use.memory_mib,
    ),
    ("mesos_gpu_task_processes", "gauge", "Processes of a task on a card.", lambda use: use.processes),
    (
        "mesos_gpu_task_busy_seconds_total",
        "counter",
        "Time in which a task was at work on a card, as far as it was seen.",
        _busy_s,
    ),
    (
        "mesos_gpu_task_seen_seconds_total",
        "counter",
        "Time of a task on a card of which is known whether it was at work.",
        _seen_s,
    ),
    (
        "mesos_gpu_task_idle_since_timestamp_seconds",
        "gauge",
        "Since when a task does nothing on a card, seconds since the epoch; none while it is at work.",
        lambda use: use.idle_since,
    ),
)
CARDS: Final = (
    Family(
        "DCGM_FI_DEV_FB_TOTAL",
        "gauge",
        "Framebuffer memory (in MiB).",
        gpus_of,
        lambda gpus: Column(gpus.labels, [card.memory_mib for card in gpus.cards]),
        LABELS,
    ),
    *(
        Family(f"DCGM_FI_DEV_{name}", kind, about, gpus_of, _meter_samples(value), LABELS)
        for name, kind, about, value in _DCGM
    ),
    *(
        Family(
            name,
            kind,
            about,
            gpus_of,
            _use_samples(value),
            LABELS if name.startswith("DCGM_") else OWN_LABELS,
        )
        for name, kind, about, value in _OF_CARDS
    ),
    Family(
        "mesos_gpu_mig_instance_memory_mib",
        "gauge",
        "Memory of an instance of a card in MIG mode; GPU_I_PROFILE and GPU_I_ID are as DCGM's.",
        gpus_of,
        _instances,
        ("gpu", "UUID", "Hostname", "GPU_I_PROFILE", "GPU_I_ID", "instance"),
    ),
    Family(
        "mesos_gpu_task_mig_instance",
        "gauge",
        "1 for each instance of a card that a task holds.",
        _on_cards,
        lambda rows: [((*row.labels[:1], row.labels[-1], row.instance), 1) for row in rows if row.instance],
        ("task", "UUID", "instance"),
    ),
    Family(
        "mesos_gpu_task_gpus",
        "gauge",
        "The part of a card that a task holds: 1, or less of a share.",
        _on_cards,
        lambda rows: [(row.labels, row.part) for row in rows],
        _HELD,
    ),
    *(
        Family(name, kind, about, _on_cards, _task_samples(value), _USED)
        for name, kind, about, value in _OF_TASKS
    ),
)
