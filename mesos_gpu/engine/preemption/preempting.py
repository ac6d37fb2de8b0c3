"""Preemption in a match: running jobs make room for waiting jobs, by guarantees, shares and priorities.

A step saves a whole plan before the first victim gets its notice: for the job, when room was made for it; for each
task of a victim, the job for which it ends. Until that job runs it is first in the queue order, and the room is kept
for it.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace
from math import inf
from typing import Final

from mesos_gpu.engine.calendar.booked import booked_for
from mesos_gpu.engine.preemption.planner import Plan, Planner
from mesos_gpu.engine.preemption.reasons import is_reclaimed, reason_of, reason_of_move
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import idle, notices
from mesos_gpu.engine.tenancy.seats import Admissions
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.knapsack import Victim

# Bounds of one match, during which all other work of the scheduler waits.
_MAX_TRIED: Final = 16  # blocked jobs without a plan, as each costs a look at every node
_MAX_PLANS: Final = 100
_MAX_LOOKED_AT: Final = 40_000  # nodes examined for all plans together


def possible(turn: Turn) -> bool:
    """Return whether any running job could make room for a waiting job."""
    state = turn.state
    if not turn.settings.queue.preemption or not state.work.queue:
        return False
    if idle.is_pressing(state):
        return True
    current = (state.work.current(state.work.tasks[task_id]) for task_id in state.work.restless.preemptible)
    priorities = [job.priority for job in current if job is not None and job.spec.preemptible]
    if not priorities or not state.quota.tree.is_flat:
        return bool(priorities)
    lowest = min(priorities)
    return any(state.work.jobs[job_id].priority > lowest for _, job_id in state.work.queue)


def may_be_ended(job: Job) -> bool:
    """Return whether a job runs and is preemptible."""
    runs = job.state in (JobState.STARTING, JobState.RUNNING) and not job.kill_requested
    return runs and job.spec.preemptible


def just_launched(turn: Turn, chosen: Iterable[Victim]) -> bool:
    """Return whether this match has launched one of some victims: no job is ended in the step of its launch."""
    jobs = (turn.state.work.jobs[victim.job_id] for victim in chosen)
    return any(task.launched_at >= turn.now for job in jobs for task in turn.state.work.round_of(job))


def reclaim(turn: Turn, backlog: Backlog, blocked: Iterable[Job], seating: Admissions) -> bool:
    """Make room for blocked jobs by ending others; return whether a match that follows at once may make more."""
    running = stoppable(turn.state)
    turn.state.match.next_moment = inf
    if not running and not idle.is_pressing(turn.state):
        return False
    rule = Reclaim(turn, seating, backlog, running)
    plans = _Plans(turn, backlog, rule, seating)
    for job in blocked:
        if not plans.make(job):
            break
    turn.state.match.next_moment = rule.next_at
    return plans.are_many


def stoppable(state: State) -> dict[JobId, Job]:
    """Return the running jobs that may be ended for others and have no notice."""
    jobs: dict[JobId, Job] = {}
    with_notice: set[JobId] = set()
    for task_id in state.work.restless.in_order(state.work.restless.preemptible):
        task = state.work.tasks[task_id]
        job = state.work.current(task)
        if job is None or not may_be_ended(job) or booked_for(state, job) is not None:
            continue
        jobs[job.id] = job
        if task.evicted or (task.notice is not None and task.notice.stands):
            with_notice.add(job.id)
    return {job_id: job for job_id, job in jobs.items() if job_id not in with_notice}


def begins_at(state: State, settings: Settings, job: Job) -> float:
    """Return when free resources have been offered for a job, in seconds since the epoch; no job is ended before."""
    return max(job.submitted_at, job.not_before, state.mesos.registered_at) + settings.queue.preempt_after_s


def keep_rooms(turn: Turn, backlog: Backlog) -> None:
    """Reserve the room that is being made, for the waiting jobs of the plans and for the jobs that move there."""
    backlog.keep_rooms()
    for job in _moving(turn):
        backlog.block(job)


def _moving(turn: Turn) -> list[Job]:
    """Return the jobs that are being ended and have a reserved place on other nodes."""
    work = turn.state.work
    tasks = work.restless.in_order(work.restless.tasks)  # tasks that are being ended are among these
    jobs = {work.tasks[task_id].job_id: None for task_id in tasks}
    jobs_with_tasks = (work.jobs.get(job_id) for job_id in jobs if job_id is not None)
    return [job for job in jobs_with_tasks if job is not None and notices.goes_elsewhere(turn.state, job)]


class _Plans:
    """Plans of one match."""

    def __init__(self, turn: Turn, backlog: Backlog, rule: Reclaim, seating: Admissions) -> None:
        self._turn, self._backlog, self._rule = turn, backlog, rule
        self._tried = set[tuple[Request, Hashable]]()
        self._queues = set[str]()  # queues with jobs that were tried
        self._made = 0  # number of plans
        self._begins_at = inf  # first `begins_at` of a job that is still to come, in seconds since the epoch
        self.are_many = False  # whether the next match is to make more plans
        self._planner = Planner(turn, backlog, rule, seating)

    def make(self, job: Job) -> bool:
        """Make room for a job if there is a plan; return whether this match may make more plans."""
        turn, backlog, rule = self._turn, self._backlog, self._rule
        if job.spec.queue in self._queues and self._key(job) in self._tried:
            return True
        if not rule.could_take(job) or self._waits(job):
            return True
        if not backlog.barriers.may_be_seated(job) and not backlog.barriers.shortages(job):
            return True
        if self._made and backlog.barriers.bounds(job):
            return True  # limits count an earlier plan only once its room is reserved
        looked_at = self._planner.candidates.looked_at
        self.are_many = self._made >= (_MAX_PLANS if looked_at < _MAX_LOOKED_AT else 1)
        if self.are_many or len(self._tried) >= _MAX_TRIED:
            return False
        request, _ = key = self._key(job)
        if (agent_id := self._planner.room_for(job, request)) is not None:
            self._planner.count_in(job, request, agent_id)
            return True
        self._tried.add(key)
        self._queues.add(job.spec.queue)
        way = self._planner.find(job, request)
        if way is None or not rule.has_waited(job, way.chosen) or just_launched(turn, way.chosen):
            return True
        self._make_room(job, request, way)
        self._tried.discard(key)
        self._made += 1
        return True

    def _key(self, job: Job) -> tuple[Request, Hashable]:
        """Return a key of a job; jobs with one key get equal room from equal victims."""
        return request_of(job, self._turn.settings, self._turn.state), self._rule.kind(job)

    def _waits(self, job: Job) -> bool:
        """Return whether free resources may not have been offered yet, or victims of a job still run."""
        turn, settings = self._turn, self._turn.settings
        begun_at = begins_at(turn.state, settings, job)
        if turn.now < begun_at:
            if begun_at < self._begins_at:
                self._begins_at = begun_at
                self._rule.note(begun_at)
            return True
        if job.room_made_at is None:
            return False
        again_at = job.room_made_at + settings.queue.preempt_again_s
        if turn.now < again_at:
            self._rule.note(again_at)
            return True
        return job.id in self._backlog.ended_for

    def _make_room(self, job: Job, request: Request, way: Plan) -> None:
        """Save a plan for a job, then give notice to its victims."""
        turn, rule, chosen, room_on = self._turn, self._rule, way.chosen, way.room_on
        names = ", ".join(str(victim.job_id) for victim in chosen)
        message = f"room is made for it by {names}"
        self._planner.planned(job, request, way)
        job = turn.put_job(replace(job, room_made_at=turn.now, room_on=room_on, message=message))
        for victim in chosen:
            other, taker = (
                turn.state.work.jobs[victim.job_id],
                turn.state.work.jobs[way.taker.get(victim.job_id, job.id)],
            )
            if other.id in rule.running.idle:
                idle.give_up(turn, other, taker.id)
                continue
            reclaimed = is_reclaimed(rule, taker, victim)
            reason = NoticeReason.RECLAIM if reclaimed else NoticeReason.PREEMPTION
            why, to = reason_of(rule, taker, victim), way.to.get(victim.job_id)
            if to is not None:
                other = turn.put_job(replace(other, room_made_at=turn.now, room_on=(to,)))
                why = reason_of_move(rule, job, victim, turn.state.cluster.nodes[to].hostname)
            elif other.room_made_at is not None:  # it has just started where room was made for it
                other = turn.put_job(replace(other, room_made_at=None, room_on=()))
            notices.give(turn, other, reason, why, by=taker.id)
        rule.balance.forget_plans()  # the state counts the plan from now on
