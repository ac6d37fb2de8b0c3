"""Choice of running jobs to end so that another one can start: the cheapest, and no more than needed. Pure.

No job is chosen before the whole plan is known to make room.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, combinations, count, filterfalse
from typing import Final

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.nodes.offer import count_ports
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.knapsack import (
    NO_PRIORITY,
    Bound,
    Item,
    Victim,
    bound_of,
    cheapest,
    fractional,
    worth,
)
from mesos_gpu.policy.room.together import Place

MAX_VICTIMS_TRIED: Final = 8  # victims on a node with shared GPUs up to which all choices are compared
_NOTHING: Final = Bound(NO_PRIORITY, 0)
#: Rule that returns whether jobs may be ended together.
Rule = Callable[[Sequence[Victim]], bool]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Amount, such as room in a queue's limit, that the ends of victims must free beside room on nodes.

    Attributes:
        lack: Amount that is lacking.
        gifts: Amounts that victims free, by job.
    """

    lack: int
    gifts: Mapping[JobId, int]

    def is_met_by(self, ended: Iterable[JobId]) -> bool:
        """Return whether the ends of jobs free enough."""
        return sum(self.gifts.get(job_id, 0) for job_id in ended) >= self.lack


def _room(request: Request, node: NodeCapacity, ended: Collection[JobId], model: str | None) -> int:
    """Return the number of tasks for which a node has room after some jobs have ended."""
    return room_for(request, _without(node, ended), model).slots


def _without(node: NodeCapacity, jobs: Collection[JobId | None]) -> NodeCapacity:
    """Return a node as it is after some jobs have ended."""
    return node.without([allocation for allocation in node.allocations if allocation.job_id in jobs])


def _dearest_first(victims: Iterable[Victim]) -> list[Victim]:
    return sorted(victims, key=lambda victim: (-victim.priority, -victim.cost, victim.job_id))


def _by_job(nodes: Iterable[NodeCapacity]) -> Mapping[JobId | None, Sequence[NodeCapacity]]:
    """Return the nodes on which each job holds resources."""
    where: dict[JobId | None, list[NodeCapacity]] = {}
    for node in nodes:
        for job_id in {allocation.job_id for allocation in node.allocations}:
            where.setdefault(job_id, []).append(node)
    return where


def plan(
    request: Request,
    tasks: int,
    nodes: Sequence[NodeCapacity],
    victims: Mapping[JobId, Victim],
    allowed: Rule | None = None,
    place: Place | None = None,
    shortages: Sequence[Shortage] = (),
) -> tuple[Victim, ...] | None:
    """Return victims whose ends make room for all tasks, such that none of them can be spared.

    Args:
        request: Amounts that each task takes.
        tasks: Number of tasks that start together.
        nodes: Nodes that may serve the job, with the allocations of victims.
        victims: Jobs that may be ended for it.
        allowed: Rule that a plan must obey once no victim can be spared; None if all victims may be ended together.
        place: Search for the nodes of its tasks; None if no rule compares them with each other.
        shortages: Other amounts that the victims must free.

    Returns:
        An empty tuple if there is room already; None if all victims make too little room, or the rule forbids it.
    """
    if shortages:
        chosen_victims = _with_shortages(request, tasks, nodes, victims, place, shortages)
        return (
            chosen_victims if chosen_victims is None or allowed is None or allowed(chosen_victims) else None
        )
    best: tuple[Victim, ...] | None = None
    for model in request.gpu.models or (None,):
        if tasks == 1:
            chosen = _on_one(request, ((_NOTHING, node) for node in nodes), victims, model, allowed)
        else:
            if place is None:
                chosen = _on_many(request, tasks, nodes, victims, model)
            else:
                chosen = _on_placed(request, nodes, victims, model, place)
            if chosen and allowed is not None and not allowed(chosen):
                chosen = None
        if chosen is not None and (best is None or worth(chosen) < worth(best)):
            best = chosen
    return best


def _with_shortages(
    request: Request,
    tasks: int,
    nodes: Sequence[NodeCapacity],
    victims: Mapping[JobId, Victim],
    place: Place | None,
    shortages: Sequence[Shortage],
) -> tuple[Victim, ...] | None:
    """Return the cheapest victims that free the amounts that are short, and further ones that make room on nodes."""
    able = [job_id for job_id in victims if any(job_id in shortage.gifts for shortage in shortages)]
    items = [
        Item(victims[job_id], tuple([shortage.gifts.get(job_id, 0) for shortage in shortages]))
        for job_id in able
    ]
    first = cheapest([shortage.lack for shortage in shortages], items)
    if first is None:
        return None
    others = {job_id: victim for job_id, victim in victims.items() if victim not in first}
    more = plan(
        request, tasks, [_without(node, {v.job_id for v in first}) for node in nodes], others, place=place
    )
    if more is None:
        return None
    chosen = [*first, *more]
    for victim in _dearest_first(chosen):
        fewer = [other for other in chosen if other is not victim]
        ended = {other.job_id for other in fewer}
        is_enough = all(shortage.is_met_by(ended) for shortage in shortages)
        if (
            is_enough
            and plan(request, tasks, [_without(node, ended) for node in nodes], {}, place=place) == ()
        ):
            chosen = fewer
    return tuple(chosen)


def plan_of_one(
    request: Request,
    line: Callable[[], Iterable[tuple[Bound, NodeCapacity]]],
    victims: Mapping[JobId, Victim],
    allowed: Rule | None = None,
) -> tuple[Victim, ...] | None:
    """Return the victims of `plan` for one task, examining nodes only while one of them may be the best.

    Args:
        request: Amounts that the task takes.
        line: Function that yields nodes with the least cost of room there, in the order of that cost.
        victims: Jobs that may be ended; only those with allocations are used.
        allowed: Rule that a plan must obey, as in `plan`.
    """
    models = request.gpu.models or (None,)
    choices = (_on_one(request, line(), victims, model, allowed) for model in models)
    return min((chosen for chosen in choices if chosen is not None), key=worth, default=None)


def nodes_of_plan(
    request: Request,
    tasks: int,
    nodes: Sequence[NodeCapacity],
    chosen: Sequence[Victim],
    place: Place | None = None,
) -> tuple[AgentId, ...]:
    """Return the nodes on which the tasks have room after the victims of a plan have ended, nodes of victims first.

    Args:
        request: Amounts that each task takes.
        tasks: Number of tasks that start together.
        nodes: Nodes that may serve the job.
        chosen: Victims of the plan.
        place: Search for the nodes of its tasks; None if no rule compares them with each other.
    """
    ended, missing = {victim.job_id for victim in chosen}, tasks
    if place is not None:
        placements = (_placed(request, nodes, ended, model, place) for model in request.gpu.models or (None,))
        return tuple(next(filter(None, placements), ()))
    nodes_with_room: list[AgentId] = []

    def ends(node: NodeCapacity) -> bool:
        """Return whether a victim of the plan holds resources on a node."""
        return any(allocation.job_id in ended for allocation in node.allocations)

    first = (node for node in nodes if ends(node))
    for node in chain(first, filterfalse(ends, nodes)):
        if missing <= 0:
            break
        room = _room(request, node, ended, None)
        if room:
            nodes_with_room.append(node.agent_id)
            missing -= room
    return tuple(nodes_with_room)


@dataclass(frozen=True, slots=True)
class _NodeAmounts:
    """Amounts of a node: free ones, those of a task, and those that victims there would free.

    The amounts are GPUs that suit the request, then all resources, then ports.

    Attributes:
        node: Node with its victims.
        model: Model of the GPUs; None for any model.
        free: Free amounts of the node.
        need: Amounts of one task.
        items: Amounts that each victim frees.
    """

    node: NodeCapacity
    model: str | None
    free: tuple[int, ...]
    need: tuple[int, ...]
    items: tuple[Item, ...]

    def lack(self, tasks: int) -> list[int]:
        """Return the amounts that are lacking for a number of tasks; 0 or less if enough is free."""
        return [need * tasks - free for need, free in zip(self.need, self.free, strict=True)]

    def slots(self, tasks: int) -> int:
        """Return the number of tasks for which there is room; `tasks` if they request nothing."""
        free = zip(self.free, self.need, strict=True)
        return max(min((amount // need for amount, need in free if need), default=tasks), 0)


def _amounts_by_model(
    request: Request, node: NodeCapacity, victims: Mapping[JobId, Victim], model: str | None
) -> list[_NodeAmounts]:
    """Return the amounts of a node for each suitable GPU model, as a task gets GPUs of one model."""
    allocations = [allocation for allocation in node.allocations if allocation.job_id in victims]
    models: Sequence[str | None] = [model]
    if model is None and request.gpu.count:
        models = sorted(_models(node, allocations))
    return [_amounts_of(request, node, victims, allocations, name) for name in models]


def _models(node: NodeCapacity, held: Iterable[Allocation]) -> set[str]:
    """Return the GPU models of a node that are free or that allocations free."""
    return {gpu.model for gpu in node.gpus} | {gpu.model for allocation in held for gpu in allocation.gpus}


def _amounts_of(
    request: Request,
    node: NodeCapacity,
    victims: Mapping[JobId, Victim],
    held: Sequence[Allocation],
    model: str | None,
) -> _NodeAmounts:
    """Return a node's amounts for one GPU model, with the allocations that victims hold there."""
    want = request.gpu
    cards = len(want.suited(node.gpus, model)) if want.count else 0
    gifts: dict[JobId, tuple[int, ...]] = {}
    for allocation in held:
        assert allocation.job_id is not None, "a victim is a job"
        cards_given = len(want.suited(allocation.gpus, model)) if want.count else 0
        given = (cards_given, *allocation.resources.milli, count_ports(allocation.ports))
        before = gifts.get(allocation.job_id)
        if before is not None:
            given = tuple([a + b for a, b in zip(before, given, strict=True)])
        gifts[allocation.job_id] = given
    items = tuple([Item(victims[job_id], given) for job_id, given in gifts.items()])
    ports = 0 if node.ports is None else _ports_of(request)
    free = (cards, *node.free.milli, count_ports(node.ports or ()))
    return _NodeAmounts(node, model, free, (want.count, *request.resources.milli, ports), items)


def _ports_of(request: Request) -> int:
    """Count the ports that each task takes of its host."""
    if request.tasks > 1:
        return 1
    return len([wish for wish in request.ports if wish.host_port is not None])


def _is_plain(request: Request, node: NodeCapacity) -> bool:
    """Return whether the amounts that victims free can simply be added, as no GPU is shared."""
    return (
        request.gpu.share is None
        and not node.parts
        and all(allocation.share is None for allocation in node.allocations)
    )


def _on_one(
    request: Request,
    nodes: Iterable[tuple[Bound, NodeCapacity]],
    victims: Mapping[JobId, Victim],
    model: str | None,
    allowed: Rule | None,
) -> tuple[Victim, ...] | None:
    """Return the cheapest choice on any single node, skipping nodes that cannot be cheaper than the best so far."""
    best: tuple[Victim, ...] | None = None
    line: list[tuple[int, int, int, NodeCapacity | _NodeAmounts]] = []
    number, source = count(), iter(nodes)  # the number orders entries of equal cost
    following = next(source, None)
    while line or following is not None:
        while following is not None and (not line or _of(following[0]) <= line[0][:2]):
            if best is not None and _of(following[0]) > worth(best)[:2]:
                following = None
                break
            if (bound := _least_of(request, following[1], victims)) is not None:
                heappush(line, (*_of(bound), next(number), following[1]))
            following = next(source, None)
        if not line:
            break
        priority, cost, _, entry = heappop(line)
        if best is not None and (not best or (priority, cost) > worth(best)[:2]):
            break
        if isinstance(entry, _NodeAmounts):
            best = _better(best, _exact(request, entry), allowed)
        elif not _is_plain(request, entry):
            best = _better(best, _on_shared(request, entry, victims, model), allowed)
        else:
            for amounts in _amounts_by_model(request, entry, victims, model):
                if (bound := bound_of(amounts.lack(1), amounts.items)) is not None:
                    heappush(line, (*_of(bound), next(number), amounts))
    return best


def _of(bound: Bound) -> tuple[int, int]:
    """Return a bound as a sort key."""
    return bound.priority, bound.cost


def _least_of(request: Request, node: NodeCapacity, victims: Mapping[JobId, Victim]) -> Bound | None:
    """Return a lower bound of the cost of room for a request on a node; nothing for shares."""
    if request.gpu.share is not None:
        return _NOTHING
    return least_of(request.gpu.count, len(node.gpus), node, victims)


def least_of(gpus: int, free: int, node: NodeCapacity, victims: Mapping[JobId, Victim]) -> Bound | None:
    """Return a lower bound of the cost of room for a task on a node, if all GPUs suit it; None if it has too few GPUs.

    Args:
        gpus: Number of whole GPUs that the task takes.
        free: Number of free GPUs.
        node: Node with the allocations of victims.
        victims: Jobs that may be ended for the task, or a superset of them.
    """
    need = gpus - free
    if need <= 0 or node.parts:
        return _NOTHING
    gifts: dict[JobId, int] = {}
    for allocation in node.allocations:
        if allocation.share is not None:
            return _NOTHING
        if allocation.gpus and allocation.job_id is not None and allocation.job_id in victims:
            gifts[allocation.job_id] = gifts.get(allocation.job_id, 0) + len(allocation.gpus)
    line = [(victims[job_id].cost / gift, victims[job_id].cost, gift) for job_id, gift in gifts.items()]
    least = fractional(need, line)
    return None if least is None else Bound(min(victims[job_id].priority for job_id in gifts), least)


def _better(
    best: tuple[Victim, ...] | None, chosen: tuple[Victim, ...] | None, allowed: Rule | None
) -> tuple[Victim, ...] | None:
    """Return the better of two choices, of which the second one must obey the rule."""
    if chosen is None or (best is not None and worth(best) <= worth(chosen)):
        return best
    return chosen if not chosen or allowed is None or allowed(chosen) else best


def _exact(request: Request, amounts: _NodeAmounts, tasks: int = 1) -> tuple[Victim, ...]:
    """Return the cheapest choice on a node, which must have room for the tasks after all victims there have ended."""
    chosen = cheapest(amounts.lack(tasks), amounts.items)
    if chosen is not None:
        return chosen
    victims = sorted((item.victim for item in amounts.items), key=lambda victim: victim.job_id)
    return _thinned(request, tasks, [amounts.node], victims, amounts.model)


def _on_shared(
    request: Request, node: NodeCapacity, victims: Mapping[JobId, Victim], model: str | None
) -> tuple[Victim, ...] | None:
    """Return the cheapest choice on a node with shared GPUs; None if all victims make too little room.

    With more than `MAX_VICTIMS_TRIED` victims, it is only a choice from which no victim can be spared.
    """
    job_ids = sorted(
        {allocation.job_id for allocation in node.allocations if allocation.job_id is not None}
        & victims.keys()
    )
    if not _room(request, node, job_ids, model):
        return None
    present = [victims[job_id] for job_id in job_ids]
    if len(present) > MAX_VICTIMS_TRIED:
        return _thinned(request, 1, [node], present, model)
    able = (
        chosen
        for count in range(len(present) + 1)
        for chosen in combinations(present, count)
        if _room(request, node, {victim.job_id for victim in chosen}, model)
    )
    return min(able, key=worth)


def _on_many(
    request: Request,
    tasks: int,
    nodes: Sequence[NodeCapacity],
    victims: Mapping[JobId, Victim],
    model: str | None,
) -> tuple[Victim, ...] | None:
    """Return a choice for all tasks of a job: the cheapest room for each in turn, without needless victims."""
    if not all(_is_plain(request, node) and (model or _is_uniform(request, node)) for node in nodes):
        if sum(_room(request, node, victims.keys(), model) for node in nodes) < tasks:
            return None
        return _thinned(request, tasks, nodes, list(victims.values()), model)
    greedy = _Greedy(request, victims, nodes, model)
    chosen = greedy.search(tasks)
    return None if chosen is None else _thinned(request, tasks, greedy.used(tasks), chosen, model)


def _placed(
    request: Request,
    nodes: Sequence[NodeCapacity],
    ended: Collection[JobId],
    model: str | None,
    place: Place,
) -> dict[AgentId, int]:
    """Return the number of tasks for each node after some victims have ended; empty if not all tasks have a place."""
    rooms = {node.agent_id: _room(request, node, ended, model) for node in nodes}
    able = {agent_id: room for agent_id, room in rooms.items() if room}
    return {agent_id: count for agent_id, count in zip(able, place(able) or (), strict=False) if count}


def _on_placed(
    request: Request,
    nodes: Sequence[NodeCapacity],
    victims: Mapping[JobId, Victim],
    model: str | None,
    place: Place,
) -> tuple[Victim, ...] | None:
    """Return a choice for a gang whose places depend on each other.

    Bisection finds the fewest of the cheapest victims that make room for a placement; of these only those are chosen
    that the placement needs.
    """
    line = sorted(victims.values(), key=lambda victim: worth([victim]))
    low, high = 0, len(line)
    if not (best := _placed(request, nodes, {victim.job_id for victim in line}, model, place)):
        return None
    while low < high:
        middle = (low + high) // 2
        counts = _placed(request, nodes, {victim.job_id for victim in line[:middle]}, model, place)
        if counts:
            high, best = middle, counts
        else:
            low = middle + 1
    used_nodes = [node for node in nodes if node.agent_id in best]
    return _thinned_on_each(request, best, used_nodes, line[:high], model)


def _thinned_on_each(
    request: Request,
    counts: Mapping[AgentId, int],
    nodes: Sequence[NodeCapacity],
    chosen: Sequence[Victim],
    model: str | None,
) -> tuple[Victim, ...]:
    """Spare one victim after the other, the dearest first, as long as each node has room for its tasks."""
    where = _by_job(nodes)
    remaining = {victim.job_id for victim in chosen if victim.job_id in where}
    for victim in _dearest_first(chosen):
        fewer = remaining - {victim.job_id}
        if all(
            _room(request, node, fewer, model) >= counts[node.agent_id]
            for node in where.get(victim.job_id, ())
        ):
            remaining = fewer
    return tuple(victim for victim in chosen if victim.job_id in remaining)


def _is_uniform(request: Request, node: NodeCapacity) -> bool:
    """Return whether the GPUs of a node have one model, or the request has no GPUs."""
    return not request.gpu.count or len(_models(node, node.allocations)) < 2


class _Greedy:
    """Greedy search for room on several nodes: the cheapest room for one more task first."""

    def __init__(
        self,
        request: Request,
        victims: Mapping[JobId, Victim],
        nodes: Sequence[NodeCapacity],
        model: str | None,
    ) -> None:
        self._request, self._victims, self._model, self._nodes = request, victims, model, nodes
        self._now: dict[int, _NodeAmounts] = {}  # amounts of nodes without the chosen victims
        self._chosen: dict[JobId, Victim] = {}
        self._turns = [0] * len(nodes)  # version of each node; entries of an older version are void
        self._line: list[tuple[int, int, int, int, bool, tuple[Victim, ...] | None]] = []

    def _amounts_of(self, i: int) -> _NodeAmounts:
        """Return the amounts of a node without the victims chosen so far."""
        amounts = self._now.get(i)
        if amounts is None:
            node = _without(self._nodes[i], self._chosen)
            allocations = [
                allocation for allocation in node.allocations if allocation.job_id in self._victims
            ]
            amounts = self._now[i] = _amounts_of(self._request, node, self._victims, allocations, self._model)
        return amounts

    def used(self, tasks: int) -> list[NodeCapacity]:
        """Return the nodes that have room after the chosen victims have ended."""
        return [node for i, node in enumerate(self._nodes) if i in self._now and self._now[i].slots(tasks)]

    def search(self, tasks: int) -> list[Victim] | None:
        """Return the chosen victims; None if all of them make too little room."""
        missing = tasks
        for i, node in enumerate(self._nodes):
            if len(node.gpus) >= self._request.gpu.count:
                missing -= self._amounts_of(i).slots(tasks)
                self._offer(i, tasks)
            elif (bound := _least_of(self._request, node, self._victims)) is not None:
                self._line.append((bound.priority, bound.cost, i, 0, False, None))
        heapify(self._line)
        while missing > 0 and self._line:
            _, _, i, turn, is_exact, chosen = heappop(self._line)
            if turn != self._turns[i]:
                continue
            if not is_exact:
                self._offer(i, tasks)
            elif chosen is None:
                chosen = _exact(self._request, self._amounts_of(i), self._amounts_of(i).slots(tasks) + 1)
                heappush(self._line, (*worth(chosen)[:2], i, turn, True, chosen))
            else:
                missing -= self._end(chosen, tasks)
        return None if missing > 0 else list(self._chosen.values())

    def _offer(self, i: int, tasks: int) -> None:
        """Add an entry for the next task on a node, with the least cost of room for it."""
        amounts = self._amounts_of(i)
        bound = bound_of(amounts.lack(amounts.slots(tasks) + 1), amounts.items)
        if bound is not None:
            heappush(self._line, (bound.priority, bound.cost, i, self._turns[i], True, None))

    def _end(self, chosen: Sequence[Victim], tasks: int) -> int:
        """Choose victims; return the number of further tasks for which they make room."""
        more = 0
        self._chosen |= {victim.job_id: victim for victim in chosen}
        for i in sorted({i for victim in chosen for i in self._where[victim.job_id]}):
            before = self._now.pop(i).slots(tasks) if i in self._now else 0
            self._turns[i] += 1
            more += self._amounts_of(i).slots(tasks) - before
            self._offer(i, tasks)
        return more

    @cached_property
    def _where(self) -> dict[JobId, list[int]]:
        """Indexes of the nodes of each victim."""
        where: dict[JobId, list[int]] = {}
        for i, node in enumerate(self._nodes):
            for allocation in node.allocations:
                if allocation.job_id is not None:
                    indexes = where.setdefault(allocation.job_id, [i])
                    if indexes[-1] != i:
                        indexes.append(i)
        return where


def _thinned(
    request: Request, tasks: int, nodes: Sequence[NodeCapacity], chosen: Sequence[Victim], model: str | None
) -> tuple[Victim, ...]:
    """Spare one victim after the other, the dearest first, as long as there is enough room without it."""
    remaining = {victim.job_id for victim in chosen}
    room = {node.agent_id: _room(request, node, remaining, model) for node in nodes}
    where, total = _by_job(nodes), sum(room.values())
    for victim in _dearest_first(chosen):
        fewer = remaining - {victim.job_id}
        now = {node.agent_id: _room(request, node, fewer, model) for node in where.get(victim.job_id, ())}
        left = total - sum(room[agent_id] - count for agent_id, count in now.items())
        if left >= tasks:
            remaining, total = fewer, left
            room.update(now)
    return tuple(victim for victim in chosen if victim.job_id in remaining)
