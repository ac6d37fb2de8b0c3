"""Which running jobs to end so that one of higher priority can start: the cheapest, and no more than needed. Pure.

Nothing is chosen before the whole plan is known to make room.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request

MOST_TRIED: Final = 8  # victims on one node, of which every choice is looked at


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that may be ended, and what that costs."""

    job_id: JobId
    priority: int
    cost: int  # the work that is done again, thousandths of GPUs times seconds; weighed, in a tree of queues


def _room(request: Request, node: NodeCapacity, ended: Collection[JobId], model: str | None) -> int:
    """How many tasks there is room for when those victims have ended."""
    return room_for(
        request, node.without([held for held in node.allocations if held.job_id in ended]), model
    ).slots


def plan(
    request: Request, tasks: int, nodes: Sequence[NodeCapacity], victims: Mapping[JobId, Victim]
) -> tuple[Victim, ...] | None:
    """The victims whose end makes room for all tasks; none of them can be left out.

    Args:
        request: What each task takes.
        tasks: How many start together.
        nodes: Those that may serve the job, with what victims hold there.
        victims: Every job that may be ended for it.

    Returns:
        Empty: there is room already. None: there is none even if all of them ended.
    """
    best: tuple[Victim, ...] | None = None
    for model in request.gpu.models or (None,):
        chosen = (
            _on_one(request, nodes, victims, model)
            if tasks == 1
            else _on_many(request, tasks, nodes, victims, model)
        )
        if chosen is not None and (best is None or _cost(chosen) < _cost(best)):
            best = chosen
    return best


def _cost(chosen: Iterable[Victim]) -> tuple[int, int, int, list[str]]:
    """The highest priority that is hurt counts first, then the work lost, then how many."""
    every = list(chosen)
    highest = max((victim.priority for victim in every), default=-(1 << 30))
    return highest, sum(v.cost for v in every), len(every), sorted(v.job_id for v in every)


def _on_one(
    request: Request, nodes: Sequence[NodeCapacity], victims: Mapping[JobId, Victim], model: str | None
) -> tuple[Victim, ...] | None:
    best: tuple[Victim, ...] | None = None
    for node in nodes:
        there = sorted({held.job_id for held in node.allocations if held.job_id is not None} & victims.keys())
        if not _room(request, node, there, model):
            continue
        mine = [victims[job_id] for job_id in there]
        chosen = (
            _least(request, node, mine, model)
            if len(mine) <= MOST_TRIED
            else _thinned(request, 1, [node], mine, model)
        )
        if best is None or _cost(chosen) < _cost(best):
            best = chosen
    return best


def _least(
    request: Request, node: NodeCapacity, mine: Sequence[Victim], model: str | None
) -> tuple[Victim, ...]:
    """The cheapest choice on one node, of all choices."""
    able = (
        chosen
        for count in range(len(mine) + 1)
        for chosen in combinations(mine, count)
        if _room(request, node, {victim.job_id for victim in chosen}, model)
    )
    return min(able, key=_cost)


def _on_many(
    request: Request,
    tasks: int,
    nodes: Sequence[NodeCapacity],
    victims: Mapping[JobId, Victim],
    model: str | None,
) -> tuple[Victim, ...] | None:
    if sum(_room(request, node, victims.keys(), model) for node in nodes) < tasks:
        return None
    return _thinned(request, tasks, nodes, list(victims.values()), model)


def _thinned(
    request: Request, tasks: int, nodes: Sequence[NodeCapacity], chosen: Sequence[Victim], model: str | None
) -> tuple[Victim, ...]:
    """Spare one after the other, the dearest first, as long as there is room enough without."""
    kept = {victim.job_id for victim in chosen}
    room = {node.agent_id: _room(request, node, kept, model) for node in nodes}
    where: dict[JobId | None, list[NodeCapacity]] = {}
    for node in nodes:
        for job_id in {held.job_id for held in node.allocations}:
            where.setdefault(job_id, []).append(node)
    total = sum(room.values())
    dearest = sorted(chosen, key=lambda v: (-v.priority, -v.cost, v.job_id))
    for victim in dearest:
        fewer = kept - {victim.job_id}
        now = {node.agent_id: _room(request, node, fewer, model) for node in where.get(victim.job_id, ())}
        left = total - sum(room[agent_id] - count for agent_id, count in now.items())
        if left >= tasks:
            kept, total = fewer, left
            room.update(now)
    return tuple(victim for victim in chosen if victim.job_id in kept)
