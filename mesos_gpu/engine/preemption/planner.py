"""Search for room for a waiting job in a tree of queues: the jobs that end for it, and the jobs that move."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations

from mesos_gpu.engine.preemption.candidates import Ask, Candidates
from mesos_gpu.engine.preemption.elsewhere import RelocationPlanner
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.tenancy.seats import Admissions
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.candidates import chosen as place_on
from mesos_gpu.policy.room.knapsack import Bound, Victim, worth
from mesos_gpu.policy.room.preemption import Rule, Shortage, nodes_of_plan, plan, plan_of_one


@dataclass(frozen=True, slots=True)
class Plan:
    """Room that can be made for a job.

    Attributes:
        chosen: Jobs that are ended.
        room_on: Nodes on which the tasks of the job have room then.
        to: Nodes on which jobs that move start again at once; the other jobs wait.
        taker: Jobs for which other ones end; a job that is not listed ends for the job of the plan.
    """

    chosen: tuple[Victim, ...]
    room_on: tuple[AgentId, ...]
    to: Mapping[JobId, AgentId] = field(default_factory=dict)
    taker: Mapping[JobId, JobId] = field(default_factory=dict)


class Planner:
    """Search for room for waiting jobs, by the rule and the nodes of one moment. It does not change the state."""

    def __init__(self, turn: Turn, backlog: Backlog, rule: Reclaim, seating: Admissions) -> None:
        self._turn, self._backlog, self._rule, self._seating = turn, backlog, rule, seating
        self.candidates = Candidates(turn, backlog, rule, seating)

    def find(self, job: Job, request: Request) -> Plan | None:
        """Return the cheapest plan; None if there is no plan, or room already.

        Args:
            job: The waiting job.
            request: Amounts that each of its tasks takes.
        """
        protected = len(self._rule.moments)
        way = self._stopping(job, request)
        if way is None and len(self._rule.moments) == protected:  # no job loses its protection later, either
            way = self._moving(job, request)
        return way

    def _stopping(self, job: Job, request: Request) -> Plan | None:
        """Return the cheapest plan without moves: in the open pools, or if these have none, in closed ones."""
        barriers = self._backlog.barriers
        over_limit = barriers.over_limit(job)
        if not over_limit and (way := self._in_open_pools(job, request)) is not None:
            return way
        short = barriers.shortages(job)
        if over_limit and not short:
            return self._for_seat(job, request)
        return self._in_closed_pools(job, request, short)

    def _in_open_pools(self, job: Job, request: Request) -> Plan | None:
        """Return the cheapest plan in pools whose limits leave room for the job."""
        if self._is_plain(job, request) and not self.candidates.order.kept_for(job.id):
            return self._on_one(job, request)
        victims = self._rule.victims_of(job)
        if not victims:
            return None
        ask = self.candidates.ask(job, request, victims)
        parts = self.candidates.parts(job, self.candidates.nodes(ask))
        return self._cheapest(ask, ((part, ()) for part in parts), self._rule.balance.rule_for(job))

    def _for_seat(self, job: Job, request: Request) -> Plan | None:
        """Return the cheapest plan for a job that waits for a seat, which only a victim with a seat can give it."""
        work, running = self._turn.state.work, self._rule.running
        every = self._rule.victims_of(job)
        victims = {job_id: victim for job_id, victim in every.items() if work.jobs[job_id].seat is not None}
        if not victims:
            return None
        pools = {running.runner_of(job_id).pool for job_id in victims}
        ask = self.candidates.ask(job, request, victims, pools)
        parts = self.candidates.parts(job, self.candidates.nodes(ask))
        return self._cheapest(ask, ((part, ()) for part in parts), partial(self._seats, job))

    def _in_closed_pools(
        self, job: Job, request: Request, short: Mapping[str, Sequence[Shortage]]
    ) -> Plan | None:
        """Return the cheapest plan whose victims also free what limits lack.

        A gang that may be in several pools is tried with one closed pool, with two, and with all, each beside the
        open pools.

        Args:
            job: The waiting job.
            request: Amounts that each of its tasks takes.
            short: Amounts that limits lack for the job, by closed pool.
        """
        victims = self._rule.victims_of(job) if short else {}
        limits = {
            pool: lacks for pool, lacks in short.items() if all(lack.is_met_by(victims) for lack in lacks)
        }
        if not limits:
            return None
        beside = set[str]()
        sizes = {1}
        if self.candidates.may_span_pools(job):
            beside |= self._backlog.barriers.open_pools(job) or set()
            sizes |= {min(2, len(limits)), len(limits)}
        ask = self.candidates.ask(job, request, victims, {*limits, *beside})
        nodes, pool_of = self.candidates.nodes(ask), self.candidates.pool_of
        for size in sorted(sizes):
            parts = [
                (
                    [node for node in nodes if pool_of(node.agent_id) in {*closed, *beside}],
                    [lack for pool in closed for lack in limits[pool]],
                )
                for closed in combinations(limits, size)
            ]
            if way := self._cheapest(ask, parts, self._rule.balance.rule_for(job)):
                return way
        return None

    def _cheapest(
        self,
        ask: Ask,
        parts: Iterable[tuple[Sequence[NodeCapacity], Sequence[Shortage]]],
        allowed: Rule | None,
    ) -> Plan | None:
        """Return the cheapest plan of several sets of nodes.

        Args:
            ask: Job, and victims that may end for it.
            parts: Sets of nodes on which all its tasks may be together, with what limits of their pool lack.
            allowed: Rule for victims of a plan; None if all may end together.
        """
        job, request, victims = ask.job, ask.request, ask.victims
        place = self._backlog.neighbours.placing_of(job)
        ways = [
            (plan(request, job.spec.tasks, part, victims, allowed, place, short), part)
            for part, short in parts
        ]
        able = [(chosen, part) for chosen, part in ways if chosen is not None]
        chosen, part = min(able, key=lambda way: worth(way[0]), default=((), []))
        room_on = nodes_of_plan(request, job.spec.tasks, part, chosen, place) if chosen else ()
        return Plan(chosen, room_on) if chosen and room_on else None

    def _moving(self, job: Job, request: Request) -> Plan | None:
        """Return the cheapest plan with moves."""
        moves = RelocationPlanner(self._turn, self._backlog, self._rule, self.candidates).find(job, request)
        if moves is None:
            return None
        chosen, homes = moves
        taker = {victim.job_id: job.id for victim in chosen}
        taker |= {victim.job_id: mover for mover, victims in homes.stopped.items() for victim in victims}
        every = (*chosen, *(victim for victims in homes.stopped.values() for victim in victims))
        return Plan(every, homes.room_on, homes.to, taker)

    def _seats(self, job: Job, chosen: Sequence[Victim]) -> bool:
        """Return whether a job without a seat gets one, within its limits, once some victims have ended."""
        ended = {victim.job_id for victim in chosen}
        pools = {self._rule.running.runner_of(job_id).pool for job_id in ended}
        return self._seating.would_seat(job, ended, pools) and self._backlog.barriers.has_room_without(
            job, ended
        )

    # --- jobs of one task that ask for whole GPUs

    def _is_plain(self, job: Job, request: Request) -> bool:
        """Return whether the order of nodes applies to a job.

        It applies to one task with whole GPUs, unless jobs of its own queue have another cost for it.
        """
        if job.spec.tasks > 1 or not request.gpu.count or request.gpu.share is not None:
            return False
        return not (self._backlog.attained.orders(job) or self._backlog.barriers.over_limit(job))

    def room_for(self, job: Job, request: Request) -> AgentId | None:
        """Return a node with room for a job once all jobs with notices have ended; None without one.

        The room of their takers, and of jobs that were counted in, is not available.
        """
        if not self._is_plain(job, request):
            return None
        ask, order = self.candidates.ask(job, request, {}), self.candidates.order
        for agent_id in chain(order.kept_for(job.id), order.with_room(request.gpu.count)):
            node = self.candidates.node_for(ask, self._turn.state.cluster.nodes[agent_id])
            if node is not None and place_on(ask.request, node) is not None:
                return agent_id
        return None

    def count_in(self, job: Job, request: Request, agent_id: AgentId) -> None:
        """Reserve the room that `room_for` returned for a job, unless it is reserved for it already."""
        ask = self.candidates.ask(job, request, {})
        node = self.candidates.node_for(ask, self._turn.state.cluster.nodes[agent_id])
        if node is not None and agent_id not in self.candidates.order.kept_for(job.id):
            self.candidates.subtract(ask.request, node)

    def _on_one(self, job: Job, request: Request) -> Plan | None:
        """Return the cheapest plan on any one node, looking at nodes in the order of their least cost."""
        rule, nodes, candidates = self._rule, self._turn.state.cluster.nodes, self.candidates
        victims = rule.asked_for(job)
        ask = candidates.ask(job, request, victims)

        def line() -> Iterator[tuple[Bound, NodeCapacity]]:
            """Yield the nodes that could serve the job, those of least cost first."""
            for bound, agent_id in candidates.order.of(request.gpu.count):
                node = candidates.node_for(ask, nodes[agent_id])
                if node is not None:
                    yield bound, node

        chosen = plan_of_one(ask.request, line, victims, rule.balance.rule_for(job))
        if not chosen:
            return None
        victim_nodes = [nodes[agent_id] for agent_id in candidates.order.sorted(self._agents_of(chosen))]
        able = (candidates.node_for(ask, node) for node in victim_nodes)
        room_on = nodes_of_plan(ask.request, 1, [node for node in able if node is not None], chosen)
        return Plan(chosen, room_on) if room_on else None

    def _agents_of(self, chosen: Sequence[Victim]) -> set[AgentId]:
        """Return the agents on which victims run."""
        work = self._turn.state.work
        return {task.agent_id for victim in chosen for task in work.round_of(work.jobs[victim.job_id])}

    # --- plans that have been made

    def planned(self, job: Job, request: Request, way: Plan) -> None:
        """Take a plan into account: its victims end for no other job, and its room belongs to the job.

        The rest of the room is free for other plans if the room is on one node, and no job moves.
        """
        ended, view = {victim.job_id for victim in way.chosen}, None
        if not way.to and self._is_plain(job, request):
            ask = self.candidates.ask(job, request, self._rule.running.every())
            view = self.candidates.node_for(ask, self._turn.state.cluster.nodes[way.room_on[0]])
        self.candidates.end(ended, self._agents_of(way.chosen))
        self._rule.running.remove(way.chosen)
        if view is not None:
            view = view.without([held for held in view.allocations if held.job_id in ended])
        if view is None or not self.candidates.serve(job, request, view):
            self.candidates.close({*way.room_on, *way.to.values()})

    def leave(self, way: Plan) -> None:
        """Exclude the nodes and victims of a later plan from all other plans."""
        self._rule.running.remove(way.chosen)
        self.candidates.close({*way.room_on, *way.to.values()})
