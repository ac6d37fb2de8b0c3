"""Readers of nodes and GPUs."""

from collections.abc import Callable, Collection, Mapping, Sequence

from mesos_gpu.engine.gpus import rolling, shared_gpus
from mesos_gpu.engine.gpus.gpu_status import reported
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.room.node_amounts import NodeAmounts, amounts_of
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.drain import Drain
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.gpu_names import no_such_model, unknown
from mesos_gpu.model.nodes.node import GpuStatus
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.tasks.shared_gpu import SharedGpu
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.admission.amounts import GpuDefaults, NodeSize, size_of


def gpu_statuses(view: View, on: Callable[[str], bool] | None = None) -> Sequence[GpuStatus]:
    """Return each GPU once with its drains; a GPU is unknown while its node does not report.

    Args:
        view: View of the state.
        on: Function that returns whether to include the GPUs of a host, by its name; None for all hosts.
    """
    return reported(view.state, view.settings, view.now, view.state.cluster.placed(on).values())


def gpu_page(
    view: View, on: Callable[[str], bool] | None, skip: int, limit: int | None
) -> tuple[Sequence[GpuStatus], int]:
    """Return a part of all GPUs, by host name and index, and the number of all.

    Args:
        view: View of the state.
        on: Function that returns whether to include the GPUs of a host, by its name; None for all hosts.
        skip: Number of GPUs that are left out first.
        limit: Largest number of GPUs; None for all others.
    """
    placed = view.state.cluster.placed(on)
    places = sorted(placed.values(), key=lambda place: (place[0].hostname, place[1].place))
    part = places[skip : None if limit is None else skip + limit]
    return reported(view.state, view.settings, view.now, part), len(placed)


def gpu_status(view: View, gpu_id: GpuId) -> GpuStatus | None:
    """Return a GPU with its drains, or None if no node has reported it."""
    place = view.state.cluster.place_of(gpu_id)
    return None if place is None else reported(view.state, view.settings, view.now, [place])[0]


def holder_of(view: View, gpu_id: GpuId) -> Task | None:
    """Return the task that holds a GPU wholly, or None."""
    return view.state.holder(gpu_id)


def shared_gpu(view: View, gpu: Gpu) -> SharedGpu | None:
    """Return the granted shares of a GPU; None if it is not shared."""
    if not is_shared(view, gpu.id):  # the usual case, for thousands of GPUs
        return None
    return shared_gpus.shared_gpu(view.state, view.settings, gpu)


def is_shared(view: View, gpu_id: GpuId) -> bool:
    """Return whether a GPU is open to shares."""
    return view.state.gpus.is_shared(gpu_id)


def has_shares(view: View) -> bool:
    """Return whether any GPU is open to shares."""
    return bool(view.state.gpus.sharers or view.state.gpus.covers)


def is_used(view: View, status: GpuStatus) -> bool:
    """Return whether a task holds a GPU, or it is open to shares: for Mesos it is used in both cases."""
    return view.state.gpus.is_allocated(status.gpu.id)


def largest_for_shares(view: View) -> dict[str, int]:
    """Return the largest memory in MiB that a GPU of each model has for shares."""
    most_mib: dict[str, int] = {}
    for node in view.nodes.values():
        for gpu in node.gpus:
            if gpu.sharing is not None:
                most_mib[gpu.model] = max(most_mib.get(gpu.model, 0), gpu.sharing.memory_mib)
    return most_mib


def missing_models(view: View, names: Sequence[str]) -> str:
    """Say that no node has a GPU of the models that a request names, and which models there are.

    Args:
        view: View of the state.
        names: Names of models, as the request has them.

    Returns:
        The sentence; "" if a node has one of them, if no GPU is known yet, or if a node has not reported yet.
    """
    models = view.state.cluster.agents.models
    if not names or not models or len(unknown(names, models)) < len(names):
        return ""
    is_waited_for = any(node.is_unreported for node in view.nodes.values())
    return "" if is_waited_for else no_such_model(names, models)


def gpu_defaults(view: View) -> GpuDefaults:
    """Return the default CPUs and memory of jobs with GPUs, by the nodes that have GPUs and are not lost."""
    placing, programs = view.settings.placing, view.settings.programs
    most = view.state.cluster.most_offered
    nodes = [
        node
        for node in view.nodes.values()
        if node.lost_at is None and (node.gpus or most.get(node.id, NOTHING).gpus)
    ]
    totals = amounts_of(view.state, view.settings, {node.id for node in nodes})
    sizes = set[NodeSize]()
    for node in nodes:
        total = most.get(node.id, NOTHING)
        if node.id in totals:
            total = total.most(totals[node.id].total)
        beside_monitor = None if total == NOTHING else total - programs.monitor
        sizes.add(size_of(beside_monitor, node.gpus, round(total.gpus)))
    return GpuDefaults(
        placing.cpus_per_gpu,
        placing.mem_mib_per_gpu,
        programs.executor,
        programs.keeper,
        programs.cover,
        frozenset(sizes),
    )


def drain_of(view: View, hostname: str) -> Drain | None:
    """Return the drain of a node, or None."""
    return view.state.cluster.drain_of(hostname)


def rolling_of(view: View) -> rolling.Rolling:
    """Return the progress of the replacement of node monitors."""
    return rolling.rolling(view.state, view.settings, view.now)


def node_amounts(view: View, agents: Collection[AgentId]) -> Mapping[AgentId, NodeAmounts]:
    """Return CPUs and memory of some nodes."""
    return amounts_of(view.state, view.settings, agents)


def unused_offers(view: View) -> Collection[Offer]:
    """Return the latest offer of each agent of which nothing was used."""
    return view.state.cluster.unused.values()
