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

#: Tasks of a gang by node, of the number of tasks that fit by node; None if not all of them have a place.
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
    """The soonest start of all tasks of a job, beside the reservations that stand before it.

    Args:
        job: The blocked job.
        request: Amounts that each of its tasks takes.
        nodes: Nodes that may serve the job.
        taken: Earlier reservations; what they keep is not given out again.
        now: Seconds since the epoch.
        place: Search for the nodes of its tasks; None if no rule compares them with each other.

    Returns:
        One for each node, all with the time of the whole; none if the nodes could not hold all even if all that
        runs there had ended.
    """
    able = [node.keeping(taken) for node in nodes if as_new_as(node.driver, request.min_driver)]
    find = place or partial(_fewest, job.spec.tasks)
    ends = sorted({now, *(max(held.ends_at, now) for node in able for held in node.allocations)})
    best: tuple[float, list[tuple[NodeCapacity, int]], str | None] | None = None
    for model in request.gpu.models or (None,):

        def at(time: float, model: str | None = model) -> list[tuple[NodeCapacity, int]]:
            fits = [(room_for(request, node.without(_ended(node, time)), model), node) for node in able]
            fits.sort(key=lambda each: (-each[0].slots, each[1].hostname, each[1].agent_id))
            counts = find({node.agent_id: min(fit.slots, job.spec.tasks) for fit, node in fits})
            return [(node, count) for (_, node), count in zip(fits, counts or [0] * len(fits), strict=True)]

        soonest = _soonest(job.spec.tasks, at, ends)
        if soonest is not None and (best is None or soonest[0] < best[0]):
            best = *soonest, model
    if best is None:
        return []
    time, chosen, model = best
    made = []
    for node, count in chosen:
        if count:
            fit, awaited = _least(request, node, time, model, count)
            need, kept = request.resources.scaled(count), _keep(request, node, fit, model, count)
            made.append(reservation_of(job, need, fit.node, kept, awaited, time))
    return made


def _fewest(tasks: int, rooms: Mapping[AgentId, int]) -> Sequence[int] | None:
    return search(tasks, [Site(room) for room in rooms.values()]).counts


def _ended(node: NodeCapacity, at: float) -> list[Allocation]:
    return [held for held in node.allocations if held.ends_at <= at]


def _least(
    request: Request, node: NodeCapacity, at: float, model: str | None, count: int
) -> tuple[Fit, list[Allocation]]:
    """Return the room for some tasks when the fewest launches have ended, the soonest first, and these launches.

    Other launches need not be awaited. Free amounts are kept, or later jobs would take them each time.
    """
    ended = _ended(node, at)
    for some in range(len(ended)):
        fit = room_for(request, node.without(ended[:some]), model)
        if fit.slots >= count:
            return fit, ended[:some]
    return room_for(request, node.without(ended), model), ended


def _soonest(
    tasks: int, at: Callable[[float], list[tuple[NodeCapacity, int]]], ends: Sequence[float]
) -> tuple[float, list[tuple[NodeCapacity, int]]] | None:
    """Bisect the times at which something ends: what fits once fits later too."""
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
    """Return the GPUs of a node that are kept for a number of tasks that fit there."""
    if request.gpu.share is None:
        need = request.resources.scaled(count)
        return Kept(frozenset(gpu.id for gpu in fit.gpus[len(fit.gpus) - need.gpus :]), fit.node.free - need)
    kept = keep_shares(request, node, fit.node, model, count)
    assert kept is not None, "there is room for shares, and they have no place"
    return kept
