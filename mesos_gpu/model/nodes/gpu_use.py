"""What a card's meters show, and how long it and the tasks on it were at work. None: nobody can say; never 0."""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId, TaskId

MAX_GPU_USES: Final = 64  # that a report has: a host has no more cards than that
MAX_TASK_USES: Final = 256  # likewise: task and card


@dataclass(frozen=True, slots=True)
class Meters:
    """What the meters of one card show at one moment. None: the driver or the card does not tell it.

    Attributes:
        gpu_pct: Part of the driver's latest sample in which a kernel ran, in percent.
        memory_pct: Part of it in which memory was read or written.
        encoder_pct, decoder_pct: Use of the video engines.
        memory_used_mib, memory_free_mib, memory_reserved_mib: Memory of the card; reserved is what the driver keeps.
        power_mw, power_limit_mw: Power drawn, and what it may draw.
        energy_mj: Since the driver was loaded.
        temperature_c, memory_temperature_c: Degrees Celsius.
        sm_clock_mhz, memory_clock_mhz: Clocks.
        pcie_tx_kib_s, pcie_rx_kib_s: Throughput of the bus, KiB a second, as the driver measured it for 20 ms.
        pcie_replays: Since the driver was loaded.
        nvlink_tx_kib, nvlink_rx_kib: Data of all links since the driver was loaded.
        correctable_rows, uncorrectable_rows: Rows of memory that were remapped after such errors.
        row_remap_failure: 1: a row could not be remapped.
    """

    gpu_pct: int | None = None
    memory_pct: int | None = None
    encoder_pct: int | None = None
    decoder_pct: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    pcie_tx_kib_s: int | None = None
    pcie_rx_kib_s: int | None = None
    pcie_replays: int | None = None
    nvlink_tx_kib: int | None = None
    nvlink_rx_kib: int | None = None
    correctable_rows: int | None = None
    uncorrectable_rows: int | None = None
    row_remap_failure: int | None = None


UNKNOWN: Final = Meters()


@dataclass(frozen=True, slots=True)
class Work:
    """Time at work, counted from time stamps of the driver's samples: what lay between two looks counts too.

    What was not seen is in neither count: `seen_ms` less than the time that has passed means that the rest is unknown.

    Attributes:
        since: When the count began, seconds since the epoch. With another one it began anew, from 0.
        seen_ms: How much of the time since then is known, in milliseconds.
        busy_ms: In how much of that it was at work; samples in which it was so in part count in part.
    """

    since: float
    seen_ms: int = 0
    busy_ms: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the time between two looks that the driver's samples tell of, in milliseconds."""

    seen_ms: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of one card.

    Attributes:
        gpu_id: Which.
        at: When the host looked, seconds since the epoch.
        meters: What they showed then.
        work: Its time at work; None: the driver has no samples.
        processes: How many are on it; None: the driver does not say.
        xid: The latest XID of it that the monitor was told; None: none since it began.
    """

    gpu_id: GpuId
    at: float
    meters: Meters = UNKNOWN
    work: Work | None = None
    processes: int | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class TaskUse:
    """What one task uses of one card that it holds, alone or in part: its processes are found by their cgroup.

    Attributes:
        task_id, gpu_id: Whose, and of which.
        at: When the host looked, seconds since the epoch.
        processes: How many of its processes are on the card.
        memory_mib: What they hold of it.
        work: Their time at work.
        idle_since: From when on it was seen at all looks, and never at work; None: it is at work, or nobody can say.
    """

    task_id: TaskId
    gpu_id: GpuId
    at: float
    processes: int | None = None
    memory_mib: int | None = None
    work: Work | None = None
    idle_since: float | None = None


def between(before: Work | None, now: Work | None) -> Span | None:
    """What was seen between two counts; None: the later does not go on from the earlier one, so nobody can say."""
    if before is None or now is None or before.since != now.since:
        return None
    seen_ms, busy_ms = now.seen_ms - before.seen_ms, now.busy_ms - before.busy_ms
    return Span(seen_ms, min(busy_ms, seen_ms)) if seen_ms >= 0 and busy_ms >= 0 else None


def busy_pct(before: Work | None, now: Work | None) -> float | None:
    """The part of the time seen between two counts that was work, in percent; None: nobody can say."""
    span = between(before, now)
    return 100 * span.busy_ms / span.seen_ms if span is not None and span.seen_ms else None
