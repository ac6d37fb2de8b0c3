"""Room that the next matches would make for pending jobs, as things stand. It does not change the state."""

from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.preemption.planner import Plan, Planner
from mesos_gpu.engine.preemption.preempting import begins_at, stoppable
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.idle import is_pressing
from mesos_gpu.engine.tenancy.notices import lead_s
from mesos_gpu.engine.tenancy.seats import Admissions, Ground
from mesos_gpu.engine.tenancy.sparing import FOR_EVER
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import GuaranteeShare, PendingReclaim, VictimGroup
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.tenancy.cells import could_hold
from mesos_gpu.policy.tenancy.tree import lineage

_MAX_TRIED: Final = 16  # kinds of jobs, as each costs a look at every node


@dataclass(frozen=True, slots=True)
class _ExpectedRoom:
    """Expected room of one job, which all planners take into account.

    Attributes:
        at: Time from which on the room is made, in seconds since the epoch.
        job: Job that waits.
        request: Request of each of its tasks.
        way: Plan with victims, or the node on which other jobs leave room.
    """

    at: float
    job: Job
    request: Request
    way: Plan | AgentId

    def to(self, planner: Planner, at: float) -> None:
        """Take the room into account in a planner for a time; before the room is made, its nodes are only reserved."""
        if isinstance(self.way, Plan):
            if at < self.at:
                planner.leave(self.way)
            else:
                planner.planned(self.job, self.request, self.way)
        elif at >= self.at:
            planner.count_in(self.job, self.request, self.way)


class Coming:
    """Expected room of pending jobs. Jobs are asked for in queue order, as a victim of one is no victim of the next.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
    """

    def __init__(self, state: State, settings: Settings, now: float) -> None:
        self._state, self._settings, self._now = state, settings, now
        self._running = stoppable(state) if settings.queue.preemption else {}
        self._told: list[_ExpectedRoom] = []
        self._made: dict[AgentId, PendingReclaim] = {}  # latest room on each node
        self._in_vain = set[tuple[Request, Hashable]]()
        self._known: dict[JobId, PendingReclaim | None] = {}
        self._asked: Backlog | None = None  # backlog of the present reader
        self._ways: dict[float, tuple[Reclaim, Planner]] = {}  # rule and planner by time, for that backlog

    def of(self, backlog: Backlog, job: Job) -> PendingReclaim | None:
        """Return the room that will be made for a job; None if none is known, or if it is being made already."""
        if job.id not in self._known:
            self._known[job.id] = self._find(backlog, job)
        return self._known[job.id]

    def _find(self, backlog: Backlog, job: Job) -> PendingReclaim | None:
        """Return the room that will be made for a job, as `of`, and take it into account for later jobs."""
        if not (self._running or is_pressing(self._state)) or job.id in backlog.ended_for:
            return None
        if not backlog.barriers.may_be_seated(job) and not backlog.barriers.shortages(job):
            return None
        begun_at = max(self._now, begins_at(self._state, self._settings, job))
        if job.room_made_at is not None:
            begun_at = max(begun_at, job.room_made_at + self._settings.queue.preempt_again_s)
        request = request_of(job, self._settings, self._state)
        rule = self._rule(backlog, begun_at)
        key = request, rule.kind(job)
        if key in self._in_vain or len(self._in_vain) >= _MAX_TRIED:
            return None
        way = self._way_at(backlog, job, request, begun_at)
        if way is None:
            moments = sorted(moment for moment in rule.moments if moment < FOR_EVER)
            later = self._later(backlog, job, request, moments)
            if later is None:
                self._in_vain.add(key)
                return None
            begun_at, way = later
        if isinstance(way, Plan):
            return self._take(job, request, self._way(backlog, begun_at)[0], way, begun_at)
        self._expect(_ExpectedRoom(begun_at, job, request, way))
        return self._made.get(way)

    def _way_at(self, backlog: Backlog, job: Job, request: Request, at: float) -> Plan | AgentId | None:
        """Return the plan that makes room for a job at a time, or a node with room left by others; None for neither."""
        planner = self._way(backlog, at)[1]
        node = planner.room_for(job, request)
        return planner.find(job, request) if node is None else node

    def owed(self, backlog: Backlog, job: Job) -> GuaranteeShare | None:
        """Return the place that a job has, or would have, within a guarantee.

        None if neither its queue nor one above has a guarantee, or if it needs no GPUs.
        """
        tree = self._state.quota.tree
        if not job.spec.gpus:
            return None
        seat, above = self._state.quota.seats_given.get(job.id), lineage(leaf_of(tree, job))
        owners = (
            path for path in above if path in tree.specs and any(tree.specs[path].guarantee_gpus.values())
        )
        queue = next(owners, None) if seat is None else seat.queue
        if queue is None:
            return None
        guarantees = tree.queues[queue].spec.guarantee_gpus
        pool = next(iter(guarantees), DEFAULT_POOL) if seat is None else seat.pool
        in_nodes = bool(guarantees[pool].shapes) if pool in guarantees else False
        room = self.of(backlog, job)
        held = (0, 0) if room is not None or seat is None else self._held_against(backlog, job)
        ground = self._seating.ground
        small = seat is not None or could_hold(ground.cells, above[0], ground.wants(job), job.spec.tasks)
        return GuaranteeShare(queue, seat is not None, in_nodes, *held, room, too_large=not small)

    def _held_against(self, backlog: Backlog, job: Job) -> tuple[int, int]:
        """Return what jobs within guarantees hold on nodes of a job, and what other jobs hold that it cannot end.

        Both are thousandths of GPUs.
        """
        rule = self._rule(backlog, FOR_EVER)
        victims, seated, spared = rule.victims_of(job), 0, 0
        for task_id in self._state.work.live:
            task = self._state.work.tasks[task_id]
            node, other = self._state.cluster.nodes.get(task.agent_id), self._state.work.holding_job(task)
            if node is None or other is None or other.id in victims or task.preempted_for is not None:
                continue
            if rule.serves(job, node.id) and backlog.nodes.serves(job, node):
                milli = self._state.work.counted_milli(task, other)
                seated, spared = (
                    (seated + milli, spared) if other.seat is not None else (seated, spared + milli)
                )
        return seated, spared

    def _rule(self, backlog: Backlog, at: float) -> Reclaim:
        """Return the rule at a time, without the later times that earlier questions have noted."""
        rule = self._way(backlog, at)[0]
        rule.moments = set()
        return rule

    def _way(self, backlog: Backlog, at: float) -> tuple[Reclaim, Planner]:
        """Return the rule at a time and a planner that uses it, shared by all jobs as in a match."""
        if self._asked is not backlog:
            self._asked = backlog
            self._ways.clear()
        pair = self._ways.get(at)
        if pair is None:
            rule = Reclaim(Turn(self._state, self._settings, at), self._seating, backlog, self._running)
            planner = Planner(Turn(self._state, self._settings, self._now), backlog, rule, self._seating)
            for expected in self._told:
                expected.to(planner, at)
            pair = self._ways[at] = rule, planner
        return pair

    @cached_property
    def _seating(self) -> Admissions:
        """Guaranteed admission as of the latest match."""
        return Admissions(
            Ground(self._state, self._state.quota.tree, self._now), self._state.quota.seats_given
        )

    def _later(
        self, backlog: Backlog, job: Job, request: Request, moments: list[float]
    ) -> tuple[float, Plan | AgentId] | None:
        """Return the first of some times at which there is room, as more jobs may be ended then, and how it is made."""
        found_at: dict[float, tuple[float, Plan | AgentId]] = {}

        def is_enough(moment: float) -> bool:
            """Return whether there is room at a moment, and record how it is made."""
            self._rule(backlog, moment)
            way = self._way_at(backlog, job, request, moment)
            if way is not None:
                found_at[moment] = moment, way
            return way is not None

        # Jobs that may be ended at one time may be ended later, too.
        first = bisect_left(moments, True, key=is_enough)
        return found_at[moments[first]] if first < len(moments) else None

    def _take(self, job: Job, request: Request, by: Reclaim, way: Plan, at: float) -> PendingReclaim:
        """Record a plan as the room of a job; return the room with its victims and times."""
        protected = max((by.protection_of(job, victim) for victim in way.chosen), default=(0.0, ""))
        after = protected[1] if protected[0] > self._now else ""
        patient_until = by.is_patient_until(job, way.chosen)
        if patient_until > at:
            at, after = (
                patient_until,
                "its wait weighs as much as the work that is lost (patience of its queue)",
            )
        turn = Turn(self._state, self._settings, self._now)
        givers: dict[str, list[Job]] = {}
        until = at
        for victim in way.chosen:
            other = self._state.work.jobs[victim.job_id]
            givers.setdefault(leaf_of(self._state.quota.tree, other), []).append(other)
            until = max(until, at + lead_s(turn, other) + other.spec.kill_grace_s)
        self._expect(_ExpectedRoom(at, job, request, way))
        room = PendingReclaim(
            tuple(
                VictimGroup(
                    queue,
                    tuple(sorted(giver.id for giver in jobs)),
                    sum(giver.spec.gpu_milli_in_all for giver in jobs),
                )
                for queue, jobs in sorted(givers.items())
            ),
            at,
            until,
            after,
            way.room_on,
        )
        self._made |= dict.fromkeys(way.room_on, room)
        return room

    def _expect(self, told: _ExpectedRoom) -> None:
        """Take an expected room into account in all planners, also in later ones."""
        self._told.append(told)
        for at, (_, planner) in self._ways.items():
            told.to(planner, at)
