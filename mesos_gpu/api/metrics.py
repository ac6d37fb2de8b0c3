"""What /metrics shows; docs/reference/rest.md says what each means."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mesos_gpu.api.scheduler_api import View
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.wire.export.prometheus import Metric, Sample


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the metrics are made of; nothing in it changes any more."""

    gpus: tuple[GpuStatus, ...]
    gpus_used: int
    jobs: Mapping[JobState, int]
    nodes: tuple[Node, ...] = ()  # those that are there and have reported
    disbelieved: int = 0  # status updates
    services: tuple[tuple[Mapping[str, str], int, int], ...] = ()  # labels, weight, tasks that serve


def snapshot(view: View) -> Snapshot:
    """Taken on the engine's thread; the page, of 15 lines a GPU, is made elsewhere."""
    gpus = tuple(view.gpus())
    used = sum(view.holder(s.gpu.id) is not None for s in gpus)
    nodes = tuple(node for node in view.nodes.values() if node.inventory and node.lost_at is None)
    services = tuple(
        ({"service": split.name, "app": app}, weight, len(view.serving(app)))
        for split in view.splits.values()
        for app, weight in split.weights.items()
    )
    return Snapshot(
        gpus, used, Counter(job.state for job in view.jobs.values()), nodes, view.disbelieved, services
    )


def metrics(snapshot: Snapshot) -> list[Metric]:
    """All families, each GPU once."""
    gpus = sorted(snapshot.gpus, key=lambda s: (s.node.hostname, s.gpu.minor, s.gpu.id))
    return [
        Metric("mesos_gpu_gpu_health", "gauge", "1 for the health that a GPU is in, 0 for the others.",
               tuple(sample for s in gpus for sample in _health(s))),
        Metric("mesos_gpu_gpu_health_transitions_total", "counter", "How often a GPU came into a health.",
               tuple(sample for s in gpus for sample in _transitions(s))),
        Metric("mesos_gpu_jobs", "gauge", "Jobs that are remembered, by their state.",
               tuple(({"state": state.value}, snapshot.jobs.get(state, 0)) for state in JobState)),
        Metric("mesos_gpu_node_info", "gauge", "1 for each node: its driver, the CUDA that it runs, its driver volume.",
               tuple(_info(node) for node in sorted(snapshot.nodes, key=lambda node: (node.hostname, node.id)))),
        Metric("mesos_gpu_service_weight", "gauge", "The weight of an app in a named service.",
               tuple((labels, weight) for labels, weight, _ in snapshot.services)),
        Metric("mesos_gpu_service_serving", "gauge", "Tasks of an app in a named service that serve.",
               tuple((labels, serving) for labels, _, serving in snapshot.services)),
        Metric("mesos_gpu_disbelieved_updates_total", "counter", "Status updates that were not of who they said.",
               (({}, snapshot.disbelieved),)),
        Metric("mesos_gpu_gpus", "gauge", "GPUs that nodes report.", (({}, len(gpus)),)),
        Metric("mesos_gpu_gpus_used", "gauge", "GPUs that a task holds.", (({}, snapshot.gpus_used),)),
    ]  # fmt: skip


def _info(node: Node) -> Sample:
    said = node.inventory or Inventory()
    labels = {
        "agent": node.hostname,
        "agent_id": str(node.id),
        "driver": said.driver_version or "",
        "cuda": said.cuda_version or "",
        "volume": said.volume or "",
    }
    return labels, 1.0


def _health(s: GpuStatus) -> list[Sample]:
    labels = {"uuid": s.gpu.id, "gpu": str(s.gpu.minor), "model": s.gpu.model, "agent": s.node.hostname}
    return [({**labels, "state": health.value}, float(s.health is health)) for health in Health]


def _transitions(s: GpuStatus) -> list[Sample]:
    totals = s.card.totals if s.card else {}
    return [({"uuid": s.gpu.id, "to": health.value}, totals.get(health.value, 0)) for health in Health]
