"""What /metrics shows: each family of samples once, with what it means and how it is measured."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mesos_gpu.api.scheduler_api import View
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.wire.export.prometheus import Metric

Values = Iterable[tuple[tuple[str, ...], float]]  # of the labels, in their order, and the number
Measured = Mapping[Callable[[View], Any], Any]  # what cannot change any more, by what measured it


@dataclass(frozen=True, slots=True)
class Family:
    """A family of samples.

    Attributes:
        name: As Prometheus has it.
        kind: "counter" or "gauge".
        help: What it says, in one sentence.
        measure: What it takes from the engine, on the engine's thread; those that share it share one measurement.
        samples: What that is as samples, on another thread.
        labels: The names of what tells its samples from each other.
    """

    name: str
    kind: str
    help: str
    measure: Callable[[View], Any]
    samples: Callable[[Any], Values]
    labels: tuple[str, ...] = ()


def snapshot(view: View) -> Measured:
    """All that is measured, on the engine's thread; the page, of 15 lines a GPU, is made elsewhere."""
    return {measure: measure(view) for measure in dict.fromkeys(family.measure for family in FAMILIES)}


def metrics(measured: Measured) -> list[Metric]:
    """All families, each GPU once."""
    return [
        Metric(
            family.name,
            family.kind,
            family.help,
            tuple(
                (dict(zip(family.labels, values, strict=True)), number)
                for values, number in family.samples(measured[family.measure])
            ),
        )
        for family in FAMILIES
    ]


# --- what is measured


class _Gpus(NamedTuple):
    """GPUs that nodes report, and how many of them a task holds."""

    each: tuple[GpuStatus, ...]
    used: int

    def ordered(self) -> list[GpuStatus]:
        """Sort them by host and minor number."""
        return sorted(self.each, key=lambda status: (status.node.hostname, status.gpu.minor, status.gpu.id))


def _gpus(view: View) -> _Gpus:
    each = tuple(view.gpus())
    return _Gpus(each, sum(view.holder(status.gpu.id) is not None for status in each))


def _jobs(view: View) -> Mapping[JobState, int]:
    return Counter(job.state for job in view.jobs.values())


def _nodes(view: View) -> tuple[Node, ...]:
    """The nodes that are there and have reported."""
    return tuple(node for node in view.nodes.values() if node.inventory and node.lost_at is None)


def _disbelieved(view: View) -> int:
    return view.disbelieved


def _services(view: View) -> tuple[tuple[str, str, int, int], ...]:
    """Each app of each named service, its weight, and how many of its tasks serve."""
    return tuple(
        (split.name, app, weight, len(view.serving(app)))
        for split in view.splits.values()
        for app, weight in split.weights.items()
    )


# --- and as samples


def _number(number: float) -> Values:
    yield (), number


def _health(gpus: _Gpus) -> Iterator[tuple[tuple[str, ...], float]]:
    for status in gpus.ordered():
        gpu = status.gpu
        for health in Health:
            labels = (gpu.id, str(gpu.minor), gpu.model, status.node.hostname, health.value)
            yield labels, float(status.health is health)


def _transitions(gpus: _Gpus) -> Iterator[tuple[tuple[str, ...], float]]:
    for status in gpus.ordered():
        totals = status.card.totals if status.card else {}
        for health in Health:
            yield (status.gpu.id, health.value), totals.get(health.value, 0)


def _by_state(jobs: Mapping[JobState, int]) -> Values:
    return [((state.value,), jobs.get(state, 0)) for state in JobState]


def _info(nodes: Iterable[Node]) -> Iterator[tuple[tuple[str, ...], float]]:
    for node in sorted(nodes, key=lambda node: (node.hostname, node.id)):
        said = node.inventory or Inventory()
        versions = (said.driver_version or "", said.cuda_version or "", said.volume or "")
        yield (node.hostname, str(node.id), *versions), 1.0


FAMILIES: Final = (
    Family(
        "mesos_gpu_gpu_health",
        "gauge",
        "1 for the health that a GPU is in, 0 for the others.",
        _gpus,
        _health,
        ("uuid", "gpu", "model", "agent", "state"),
    ),
    Family(
        "mesos_gpu_gpu_health_transitions_total",
        "counter",
        "How often a GPU came into a health.",
        _gpus,
        _transitions,
        ("uuid", "to"),
    ),
    Family(
        "mesos_gpu_jobs", "gauge", "Jobs that are remembered, by their state.", _jobs, _by_state, ("state",)
    ),
    Family(
        "mesos_gpu_node_info",
        "gauge",
        "1 for each node: its driver, the CUDA that it runs, its driver volume.",
        _nodes,
        _info,
        ("agent", "agent_id", "driver", "cuda", "volume"),
    ),
    Family(
        "mesos_gpu_service_weight",
        "gauge",
        "The weight of an app in a named service.",
        _services,
        lambda services: [((name, app), weight) for name, app, weight, _ in services],
        ("service", "app"),
    ),
    Family(
        "mesos_gpu_service_serving",
        "gauge",
        "Tasks of an app in a named service that serve.",
        _services,
        lambda services: [((name, app), serving) for name, app, _, serving in services],
        ("service", "app"),
    ),
    Family(
        "mesos_gpu_disbelieved_updates_total",
        "counter",
        "Status updates that were not of who they said.",
        _disbelieved,
        _number,
    ),
    Family("mesos_gpu_gpus", "gauge", "GPUs that nodes report.", _gpus, lambda gpus: _number(len(gpus.each))),
    Family("mesos_gpu_gpus_used", "gauge", "GPUs that a task holds.", _gpus, lambda gpus: _number(gpus.used)),
)
