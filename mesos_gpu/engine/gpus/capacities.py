"""Capacity of a node: free resources, and those that its tasks will give back."""

from collections.abc import Sequence

from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.gpus.gpu_status import well
from mesos_gpu.engine.gpus.role import most_seen
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import Resources, total
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity, by_end


def capacity_of(
    state: State,
    settings: Settings,
    now: float,
    node: Node,
    tasks: Sequence[Task],
    allocations: Sequence[Allocation],
    offered: Resources,
    *,
    reading: bool,
) -> NodeCapacity:
    """Return the capacity of a node with the holdings of its tasks.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        tasks: Live tasks of the node.
        allocations: Holdings of these tasks but cover tasks.
        offered: Rest of the node's offers.
        reading: Whether the state must not remember the result.
    """
    held = total(allocation.resources for allocation in allocations)
    covered, closing = covers.held_for_covers(state, settings, tasks)
    # Resources neither offered nor held were given back a moment ago: their offer is on the way.
    seen = offered + held + covered + closing
    total_seen = most_seen(state, settings, now, node, seen, reading=reading)
    free = total_seen - held - covered
    parts = covers.open_parts(state, node, settings)
    if uncovered := covers.uncovered_parts(state, node, settings, free.gpus):
        parts, free = (*parts, *uncovered), free - settings.programs.cover.scaled(len(uncovered))
    gpus = idle_gpus(state, settings, now, node)[: max(free.gpus, 0)]
    shared = well(state, node, now, settings, {part.gpu_id for part in parts})
    ids = {gpu.id for gpu in shared}
    parts = tuple([part for part in parts if part.gpu_id in ids])
    return NodeCapacity(
        node.id,
        node.hostname,
        free,
        (*gpus, *shared),
        parts=parts,
        compute_milli=covers.compute_milli(settings),
        cover=covers.cost_of_cover(state, settings, node.id, now),
        keeper=covers.cost_of_keeper(state, settings, node.id),
        allocations=tuple(by_end(allocations)),
        given_back=held + settings.programs.cover.scaled(len(parts)),
        installed=node.gpus,
        driver=node.driver_version,
    )


def idle_gpus(state: State, settings: Settings, now: float, node: Node) -> tuple[Gpu, ...]:
    """Return the GPUs of a node that no task holds, or that a closing cover task holds for a moment.

    GPUs whose claim was refused a moment ago are included.
    """
    covered, holders = state.gpus.covers, state.gpus.holders
    # There are few such GPUs on a full cluster.
    able = [gpu.id for gpu in node.gpus if gpu.id not in holders or gpu.id in covered]
    idle = {
        gpu_id
        for gpu_id in able
        if (covers.is_closing if gpu_id in covered else covers.is_free)(state, gpu_id)
    }
    return well(state, node, now, settings, idle)
