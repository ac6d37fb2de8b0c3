"""Room that can be made for a job in a tree of queues: who ends for it, and who goes elsewhere. Nothing is changed.

A job that goes elsewhere has a place at once, and waits for nobody. Who has a seat gets room that way as the last
resort: seated jobs of a node leave it if each has a place, be it where borrowers make room for it. Who borrows gets it
if that loses little, and borrowers of one node fit into what is free on others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from math import inf
from typing import Final

from mesos_gpu.engine.preemption.node_order import Order
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import Seating
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.apps.ports import enough
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.candidates import chosen as place_on
from mesos_gpu.policy.room.knapsack import Bound, Victim, worth
from mesos_gpu.policy.room.preemption import Shortage, grounds, plan, plan_of_one

MOST_LOST_S: Final = 600  # for who borrows: what moves cost, times the GPUs that he asks for
_MOST_NODES: Final = 16  # that are looked at for moves, those first that lack least


@dataclass(frozen=True, slots=True)
class Plan:
    """Room that can be made for a job.

    Attributes:
        chosen: Who ends.
        room_on: The nodes on which its tasks have room then.
        to: Where those of them start again at once that go elsewhere; the others wait.
        taker: For whom each of them ends; who is not in it ends for the job.
    """

    chosen: tuple[Victim, ...]
    room_on: tuple[AgentId, ...]
    to: Mapping[JobId, AgentId] = field(default_factory=dict)
    taker: Mapping[JobId, JobId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ask:
    """What nodes are asked for.

    Attributes:
        job: One for which room is looked for.
        request: What each of its tasks takes.
        victims: Who may be stopped for it.
        yields: Whether what is kept for another job is not kept from this one.
        pools: Where it may go; None: there are no pools.
    """

    job: Job
    request: Request
    victims: Mapping[JobId, Victim]
    yields: Callable[[JobId], bool]
    pools: frozenset[str] | None


class Planner:
    """Looks for room that can be made for jobs, by the rule and as nodes are at that moment. It changes nothing."""

    def __init__(self, turn: Turn, backlog: Backlog, rule: Reclaim, seating: Seating) -> None:
        """Count on no node yet."""
        self._turn, self._backlog, self._rule, self._seating = turn, backlog, rule, seating
        self.closed = set[AgentId]()  # nodes that other plans count on
        self.looked_at = 0  # nodes so far
        self._capacities: dict[AgentId, NodeCapacity] = {}
        self._chosen: dict[AgentId, NodeCapacity] = {}  # with what was looked at last
        self._served = set[JobId]()  # jobs whose room is counted in already
        self._order = Order(turn.state, rule, backlog, self._capacity)

    def find(self, job: Job, request: Request) -> Plan | None:
        """The cheapest plan; None: whoever may be stopped, or goes elsewhere, there is none, or there is room already.

        Args:
            job: One that waits.
            request: What each of its tasks takes.
        """
        protected = len(self._rule.moments)
        way = self._stopping(job, request)
        if way is None and len(self._rule.moments) == protected:  # nobody is to be stopped later, either
            way = Elsewhere(self._turn, self._backlog, self._rule, self._seating, self).find(job, request)
        return way

    def _stopping(self, job: Job, request: Request) -> Plan | None:
        """The cheapest plan in which nobody goes elsewhere."""
        limits = self._backlog.barriers.shortages(job)
        if not limits and self._is_plain(job, request) and not self._order.kept_for(job.id):
            return self._on_one(job, request)
        victims, allowed = self._rule.victims_of(job), self._rule.together(job)
        if not limits and self._backlog.barriers.over_limit(job):
            # It waits for a seat, so only the end of a job with one helps it.
            jobs = self._turn.state.work.jobs
            victims = {v.job_id: v for v in victims.values() if jobs[v.job_id].seat is not None}
            allowed = partial(self._seats, job)
        if not victims:
            return None
        nodes = self.nodes(job, request, victims, self._rule.yields_to(job))
        request = replace(request, ports=job.spec.ports)
        place = self._backlog.neighbours.placing_of(job)
        ways = [
            (plan(request, job.spec.tasks, part, victims, allowed, place, short), part)
            for part, short in self._parts_with_shortages(job, nodes, limits)
        ]
        able = [(chosen, part) for chosen, part in ways if chosen is not None]
        chosen, part = min(able, key=lambda way: worth(way[0]), default=((), []))
        room_on = grounds(request, job.spec.tasks, part, chosen, place) if chosen else ()
        return Plan(chosen, room_on) if chosen and room_on else None

    def parts(self, job: Job, nodes: Sequence[NodeCapacity]) -> list[Sequence[NodeCapacity]]:
        """Nodes on which all tasks of a job may be together: those of each pool, where its queue orders them."""
        if job.spec.tasks == 1 or self._seating.tree.overflow_after_s(job.spec.queue) is None:
            return [nodes]
        by_pool: dict[str, list[NodeCapacity]] = {}
        for node in nodes:
            by_pool.setdefault(self._rule.pool_of(node.agent_id), []).append(node)
        return list(by_pool.values())

    def _parts_with_shortages(
        self, job: Job, nodes: Sequence[NodeCapacity], limits: Mapping[str, Sequence[Shortage]]
    ) -> Iterator[tuple[Sequence[NodeCapacity], Sequence[Shortage]]]:
        """Yield nodes on which all tasks of a job may be together, with what limits of their pool lack."""
        if not limits:
            yield from ((part, ()) for part in self.parts(job, nodes))
        for pool, short in limits.items():
            yield [node for node in nodes if self._rule.pool_of(node.agent_id) == pool], short

    # --- jobs of one task that ask for whole GPUs

    def _is_plain(self, job: Job, request: Request) -> bool:
        """Whether the order of nodes says what room costs it at least: it is one task with whole GPUs, and nobody of
        its queue is ended at another cost for it."""
        if job.spec.tasks > 1 or not request.gpu.count or request.gpu.share is not None:
            return False
        return not (self._backlog.attained.orders(job) or self._backlog.barriers.over_limit(job))

    def room_for(self, job: Job, request: Request) -> AgentId | None:
        """Where there is room for a job when those have ended that are told to, beside the jobs for which they end, and
        others that were counted in; None: nowhere."""
        if not self._is_plain(job, request):
            return None
        ask = self._ask(job, request, {})
        for agent_id in chain(self._order.kept_for(job.id), self._order.with_room(request.gpu.count)):
            node = self._node_for(ask, self._turn.state.cluster.nodes[agent_id])
            if node is not None and place_on(ask.request, node) is not None:
                return agent_id
        return None

    def count_in(self, job: Job, request: Request, agent_id: AgentId) -> None:
        """Let a job have the room that `room_for` found."""
        node = self._node_for(self._ask(job, request, {}), self._turn.state.cluster.nodes[agent_id])
        if node is not None and agent_id not in self._order.kept_for(
            job.id
        ):  # that is kept from others already
            self._take(replace(request, ports=job.spec.ports), node)

    def _on_one(self, job: Job, request: Request) -> Plan | None:
        """The cheapest plan on any one node: those are looked at first where room costs least, whoever has it."""
        rule, nodes = self._rule, self._turn.state.cluster.nodes
        victims = rule.asked_for(job)
        ask = self._ask(job, request, victims)

        def line() -> Iterator[tuple[Bound, NodeCapacity]]:
            for bound, agent_id in self._order.of(request.gpu.count):
                node = self._node_for(ask, nodes[agent_id])
                if node is not None:
                    yield bound, node

        chosen = plan_of_one(ask.request, line, victims, rule.together(job))
        if not chosen:
            return None
        there = [nodes[agent_id] for agent_id in self._order.sorted(self._where(chosen))]
        able = (self._node_for(ask, node) for node in there)
        room_on = grounds(ask.request, 1, [node for node in able if node is not None], chosen)
        return Plan(chosen, room_on) if room_on else None

    def _where(self, chosen: Sequence[Victim]) -> set[AgentId]:
        """The nodes on which some run."""
        state = self._turn.state
        return {
            task.agent_id for each in chosen for task in state.work.round_of(state.work.jobs[each.job_id])
        }

    def _take(self, request: Request, node: NodeCapacity) -> bool:
        """Count a task in where it has room; False: it has none."""
        place = place_on(request, node)
        if place is None:
            return False
        self._set(self._capacities[node.agent_id].minus(request.resources, place.gpus))
        return True

    def _set(self, capacity: NodeCapacity) -> None:
        self._capacities[capacity.agent_id] = capacity
        self._chosen.pop(capacity.agent_id, None)
        self._order.changed(capacity.agent_id)

    def planned(self, job: Job, request: Request, way: Plan) -> None:
        """Count a plan in: who ends is planned for nobody else, and nobody else has the room that it makes. What is
        left of that is anybody's, if it is on one node."""
        plain, ended = not way.to and self._is_plain(job, request), {each.job_id for each in way.chosen}
        view = self._view(job, request, way.room_on[0]) if plain else None
        self._ending = self._ending | ended
        for agent_id in self._where(way.chosen) & self._capacities.keys():
            known = self._capacities[agent_id]
            self._set(known.without([held for held in known.allocations if held.job_id in ended]))
        self._rule.planned(way.chosen)
        if view is not None:
            view = view.without([held for held in view.allocations if held.job_id in ended])
        if view is not None and self._take(replace(request, ports=job.spec.ports), view):
            self._served.add(job.id)
        else:
            self.closed |= {*way.room_on, *way.to.values()}

    def leave(self, way: Plan) -> None:
        """Leave a plan alone that is made later: its nodes, and those who end for it."""
        self._rule.planned(way.chosen)
        self.closed |= {*way.room_on, *way.to.values()}

    def _view(self, job: Job, request: Request, agent_id: AgentId) -> NodeCapacity | None:
        ask = self._ask(job, request, self._rule.every())
        return self._node_for(ask, self._turn.state.cluster.nodes[agent_id])

    def _ask(self, job: Job, request: Request, victims: Mapping[JobId, Victim]) -> _Ask:
        request = replace(request, ports=job.spec.ports)
        return _Ask(job, request, victims, self._rule.yields_to(job), self._pools(job, victims))

    def _seats(self, job: Job, chosen: Sequence[Victim]) -> bool:
        """Whether a job that may not start without a seat has one, and room in its limits, when others have ended."""
        ended = {victim.job_id for victim in chosen}
        pools = {self._rule.pool_where(victim.job_id) for victim in chosen}
        return self._seating.would_seat(job, ended, pools) and self._backlog.barriers.has_room_without(
            job, ended
        )

    def nodes(
        self, job: Job, request: Request, victims: Mapping[JobId, Victim], yields: Callable[[JobId], bool]
    ) -> list[NodeCapacity]:
        """Nodes that could serve a job when victims there have ended, with what these hold.

        Args:
            job: It.
            request: What each of its tasks takes.
            victims: Who may be stopped for it.
            yields: Whether what is kept for another job is not kept from this one.
        """
        ask = _Ask(job, request, victims, yields, self._pools(job, victims))
        able = (self._node_for(ask, node) for node in self._turn.state.cluster.nodes.values())
        return [node for node in able if node is not None]

    def _node_for(self, ask: _Ask, node: Node) -> NodeCapacity | None:
        """The node as one of `nodes`; None: it could not serve the job."""
        backlog, rule, job = self._backlog, self._rule, ask.job
        self.looked_at += 1
        if node.id in self.closed or not rule.serves(job, node.id) or not backlog.nodes.serves(job, node):
            return None
        if ask.pools is not None and rule.pool_of(node.id) not in ask.pools:
            return None
        capacity = self._capacity(node)
        held = tuple([each for each in capacity.allocations if each.job_id in ask.victims])
        if len(capacity.gpus) + sum(len(each.gpus) for each in held) < ask.request.gpu.count:
            return None
        if not backlog.nodes.new_enough(job, node):
            return None
        kept = [
            each
            for each in backlog.reservations.kept_by_others(job, node)
            if each.booking or (each.job_id not in self._served and not ask.yields(each.job_id))
        ]
        capacity = self._with(capacity, held)
        if (ports := backlog.nodes.ports_for(job, node)) is not None:
            capacity = replace(capacity, ports=ports)
        if not may_have_ports(job, capacity):
            return None
        return capacity.keeping(kept) if kept else capacity

    def _pools(self, job: Job, victims: Iterable[JobId]) -> frozenset[str] | None:
        """Return the pools in which room may be made for a job; None if there are no pools.

        These are pools whose limits leave room for it, the one where it runs, and pools whose limits would leave room
        if jobs ended. For a job that waits for a seat they are all pools of its victims; `_seats` checks their limits.
        """
        pools = self._backlog.barriers.open_pools(job)
        if pools is None:
            return None
        if job.state is not JobState.PENDING:
            return pools | {self._seating.ground.granted(job)[0]}
        if limits := self._backlog.barriers.shortages(job):
            return frozenset(limits)
        if self._backlog.barriers.over_limit(job):
            return frozenset(self._rule.pool_where(job_id) for job_id in victims)
        return pools

    def _with(self, capacity: NodeCapacity, held: tuple[Allocation, ...]) -> NodeCapacity:
        """The node with some of its allocations: most jobs of a match may have the same ones ended."""
        known = self._chosen.get(capacity.agent_id)
        if known is None or known.allocations != held:
            known = self._chosen[capacity.agent_id] = replace(capacity, allocations=held)
        return known

    def _capacity(self, node: Node) -> NodeCapacity:
        """The node when all that is told to end has ended; what that frees for a job that waits is kept for it."""
        known = self._capacities.get(node.id)
        if known is None:
            known = self._backlog.nodes.capacity(node)
            known = known.without([each for each in known.allocations if each.job_id in self._ending])
            self._capacities[node.id] = known
        return known

    @cached_property
    def _ending(self) -> frozenset[JobId]:
        return ending(self._turn.state)


def may_have_ports(job: Job, node: NodeCapacity) -> bool:
    """Return whether the ports that a job asks for by number are free on a node when all victims there have ended."""
    if node.ports is None or job.spec.tasks > 1:
        return True
    return enough(job.spec.ports, (*node.ports, *(port for held in node.allocations for port in held.ports)))


def ending(state: State) -> frozenset[JobId]:
    """Return the jobs that end, from their notice on, for whatever reason."""
    tasks = (state.work.tasks[task_id] for task_id in state.work.live)
    jobs = (
        state.work.current(task)
        for task in tasks
        if task.preempted_for or task.kill_sent_at is not None or (task.notice and task.notice.stands)
    )
    return frozenset(job.id for job in jobs if job is not None and job.state is not JobState.UNREACHABLE)


@dataclass
class _Homes:
    """Where those go that leave nodes for a job, as far as that is known."""

    job: Job
    room_on: tuple[AgentId, ...]  # the nodes that they leave
    to: dict[JobId, AgentId] = field(default_factory=dict)
    left: dict[AgentId, NodeCapacity] = field(default_factory=dict)  # what is free where somebody goes to
    stopped: dict[JobId, tuple[Victim, ...]] = field(
        default_factory=dict
    )  # for each that goes, who makes room

    @property
    def ended(self) -> dict[JobId, Victim]:
        """All who make room for one that goes."""
        return {victim.job_id: victim for victims in self.stopped.values() for victim in victims}


class Elsewhere:
    """Looks for moves that make room for a job, or for a gang. It changes nothing."""

    def __init__(
        self, turn: Turn, backlog: Backlog, rule: Reclaim, seating: Seating, planner: Planner
    ) -> None:
        """Look at no job yet.

        Args:
            turn: The step.
            backlog: Of the match.
            rule: Who may be stopped, and who may go elsewhere.
            seating: Who has a seat.
            planner: Of the match: the nodes that its plans count on are left alone.
        """
        self._turn, self._backlog, self._rule = turn, backlog, rule
        self._seating, self._planner = seating, planner

    def find(self, job: Job, request: Request) -> Plan | None:
        """The cheapest moves that make room for a job that asks for whole GPUs; None: there are none."""
        if job.spec.is_share or job.spec.ports or self._backlog.barriers.over_limit(job):
            return None
        seated = self._seating.seat_for(job) is not None
        movable = self._rule.movable(job, seated=seated) if seated or job.spec.tasks == 1 else None
        if not movable:
            return None
        stopped = self._rule.victims_of(job) if seated else {}
        victims = {**stopped, **movable}
        bound = inf if seated else MOST_LOST_S * job.spec.counted_milli  # a gang that borrows moves nobody
        ways = list(self._ways(job, request, victims))
        if any(not chosen for _, chosen in ways):
            return None  # there is room already
        for room_on, chosen in sorted(ways, key=lambda way: (_cost(way[1]), way[0])):
            if _cost(chosen) > bound:
                break
            going = [self._turn.state.work.jobs[v.job_id] for v in chosen if v.job_id in movable]
            homes = self._homes(job, room_on, going, may_stop=seated)
            if homes is not None:
                return _plan_of(chosen, homes)
        return None

    def _ways(
        self, job: Job, request: Request, victims: Mapping[JobId, Victim]
    ) -> Iterator[tuple[tuple[AgentId, ...], tuple[Victim, ...]]]:
        """Nodes, and who leaves them at the least cost: each that lacks little for one task, and those for a gang."""
        nodes = self._nodes(job, request, victims)
        nodes.sort(key=lambda node: (-len(node.gpus), node.agent_id))
        single = job.spec.tasks == 1
        sets = [[node] for node in nodes[:_MOST_NODES]] if single else self._planner.parts(job, nodes)
        place = self._backlog.neighbours.placing_of(job)
        for each in sets:
            chosen = plan(request, job.spec.tasks, each, victims, place=place)
            if chosen is not None:
                yield grounds(request, job.spec.tasks, each, chosen, place), chosen

    def _homes(
        self, job: Job, room_on: tuple[AgentId, ...], going: Sequence[Job], *, may_stop: bool
    ) -> _Homes | None:
        """A place for each that leaves nodes, the largest first; None: not all of them have one."""
        homes = _Homes(job, room_on)
        for each in sorted(going, key=lambda each: (-each.spec.counted_milli, each.id)):
            if not (self._fits(each, homes) or (may_stop and self._takes(each, homes))):
                return None
        return homes

    def _fits(self, job: Job, homes: _Homes) -> bool:
        """Let it go where it fits, and leaves least."""
        request = request_of(job, self._turn.settings)
        places = [
            (len(node.gpus), node.agent_id, node)
            for node in self._open_to(job, request, homes, homes.ended)
            if place_on(request, node) is not None
        ]
        if not places:
            return False
        self._go(job, request, min(places, key=lambda each: each[:2])[2], homes)
        return True

    def _takes(self, job: Job, homes: _Homes) -> bool:
        """Let it go where borrowers make room for it."""
        request, victims = request_of(job, self._turn.settings), self._rule.takes_from(job)
        victims = {job_id: victim for job_id, victim in victims.items() if job_id not in homes.ended}
        nodes = [
            node for node in self._open_to(job, request, homes, victims) if node.agent_id not in homes.left
        ]
        chosen = plan(request, 1, nodes, victims) if victims else None
        if not chosen:
            return False
        (there,) = grounds(request, 1, nodes, chosen)[:1]
        node = next(node for node in nodes if node.agent_id == there)
        ended = {victim.job_id for victim in chosen}
        homes.stopped[job.id] = chosen
        self._go(job, request, node.without([h for h in node.allocations if h.job_id in ended]), homes)
        return True

    @staticmethod
    def _go(job: Job, request: Request, node: NodeCapacity, homes: _Homes) -> None:
        place = place_on(request, node)
        assert place is not None, f"{job.id} has room on {node.agent_id}"
        homes.to[job.id] = node.agent_id
        homes.left[node.agent_id] = node.minus(request.resources, place.gpus, place.share)

    def _open_to(
        self, job: Job, request: Request, homes: _Homes, victims: Mapping[JobId, Victim]
    ) -> list[NodeCapacity]:
        """The nodes to which a job may go that leaves one, as those before it leave them."""
        nodes = self._nodes(job, request, victims, homes.job.id)
        return [homes.left.get(node.agent_id, node) for node in nodes if node.agent_id not in homes.room_on]

    def _nodes(
        self, job: Job, request: Request, victims: Mapping[JobId, Victim], served: JobId | None = None
    ) -> list[NodeCapacity]:
        """Nodes without what is kept for others: only who has a seat takes that of borrowers. `served`: who needs what
        is kept for it no more."""
        seated, yields = self._seating.seat_for(job) is not None, self._rule.yields_to(job)
        return self._planner.nodes(
            job, request, victims, lambda other: other == served or (seated and yields(other))
        )


def _cost(chosen: Sequence[Victim]) -> int:
    return sum(victim.cost for victim in chosen)


def _plan_of(chosen: tuple[Victim, ...], homes: _Homes) -> Plan:
    ends = {victim.job_id: homes.job.id for victim in chosen}
    ends |= {victim.job_id: job_id for job_id, victims in homes.stopped.items() for victim in victims}
    every = (*chosen, *(victim for victims in homes.stopped.values() for victim in victims))
    return Plan(every, homes.room_on, homes.to, ends)
