"""Reservations for several tasks of a job that start together. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.policy.capacity.fit import Fit, room_for
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.gangs.ground import Site
from mesos_gpu.policy.gangs.search import search
from mesos_gpu.policy.room.keeping import Kept, keep_shares, reservation_of

#: Function from the tasks that fit each node to the gang's tasks on it; None if not all of them have a place.
Place = Callable[[Mapping[AgentId, int]], Sequence[int] | None]


def reserve_together(
    job: Job,
    request: Request,
    nodes: Iterable[NodeCapacity],
    taken: Sequence[Reservation] = (),
    *,
    now: float,
    place: Place | None = None,
) -> list[Reservation]:
    """Return reservations for the earliest start of all tasks of a job, beside earlier reservations.

    Args:
        job: Blocked job to reserve for.
        request: Amounts that each of its tasks takes.
        nodes: Nodes that may serve the job.
        taken: Earlier reservations; what they reserve is not used again.
        now: Seconds since the epoch.
        place: Search for the nodes of its tasks; None if no rule compares them with each other.

    Returns:
        One reservation for each node, all with the common start; empty if the nodes could not hold all tasks even after
            everything that runs there has ended.
    """
    able = [node.keeping(taken) for node in nodes if as_new_as(node.driver, request.min_driver)]
    find = place or partial(_fewest, job.spec.tasks)
    ends = sorted({now, *(max(allocation.ends_at, now) for node in able for allocation in node.allocations)})
    best: tuple[float, list[tuple[NodeCapacity, int]], str | None] | None = None
    for model in request.gpu.models or (None,):

        def at(time: float, model: str | None = model) -> list[tuple[NodeCapacity, int]]:
            """Return the tasks on each node once everything that ends by a time has ended; all 0 if not all fit."""
            fits = [(room_for(request, node.without(_ended(node, time)), model), node) for node in able]
            fits.sort(key=lambda pair: (-pair[0].slots, pair[1].hostname, pair[1].agent_id))
            counts = find({node.agent_id: min(fit.slots, job.spec.tasks) for fit, node in fits})
            return [(node, count) for (_, node), count in zip(fits, counts or [0] * len(fits), strict=True)]

        soonest = _soonest(job.spec.tasks, at, ends)
        if soonest is not None and (best is None or soonest[0] < best[0]):
            best = *soonest, model
    if best is None:
        return []
    time, chosen, model = best
    reservations = []
    for node, count in chosen:
        if count:
            fit, awaited = _least(request, node, time, model, count)
            need, reserved = request.resources.scaled(count), _keep(request, node, fit, model, count)
            reservations.append(reservation_of(job, need, fit.node, reserved, awaited, time))
    return reservations


def _fewest(tasks: int, rooms: Mapping[AgentId, int]) -> Sequence[int] | None:
    """Place tasks on as few nodes as possible."""
    return search(tasks, [Site(room) for room in rooms.values()]).counts


def _ended(node: NodeCapacity, at: float) -> list[Allocation]:
    """Return the allocations of a node that have ended by a time."""
    return [allocation for allocation in node.allocations if allocation.ends_at <= at]


def _least(
    request: Request, node: NodeCapacity, at: float, model: str | None, count: int
) -> tuple[Fit, list[Allocation]]:
    """Return the room for some tasks after the fewest launches have ended, the soonest first, and these launches.

    Other launches need not be awaited. Free amounts are reserved, too; otherwise later jobs would take them each time.
    """
    ended = _ended(node, at)
    for ended_count in range(len(ended)):
        fit = room_for(request, node.without(ended[:ended_count]), model)
        if fit.slots >= count:
            return fit, ended[:ended_count]
    return room_for(request, node.without(ended), model), ended


def _soonest(
    tasks: int, at: Callable[[float], list[tuple[NodeCapacity, int]]], ends: Sequence[float]
) -> tuple[float, list[tuple[NodeCapacity, int]]] | None:
    """Bisect the times at which allocations end, as tasks that fit once also fit later."""
    low, high, fits = 0, len(ends) - 1, at(ends[-1])
    if sum(count for _, count in fits) < tasks:
        return None
    while low < high:
        middle = (low + high) // 2
        earlier = at(ends[middle])
        if sum(count for _, count in earlier) >= tasks:
            high, fits = middle, earlier
        else:
            low = middle + 1
    return ends[low], fits


def _keep(request: Request, node: NodeCapacity, fit: Fit, model: str | None, count: int) -> Kept:
    """Return the GPUs of a node to reserve for a number of tasks that fit there."""
    if request.gpu.share is None:
        need = request.resources.scaled(count)
        return Kept(frozenset(gpu.id for gpu in fit.gpus[len(fit.gpus) - need.gpus :]), fit.node.free - need)
    reserved = keep_shares(request, node, fit.node, model, count)
    assert reserved is not None, "shares that fit must get a place"
    return reserved
