"""Room that is made before hours of queues change, so that jobs with a seat from then on start on time.

A job that will borrow then, and would be ended for such a job, gets its notice before, and ends when the hours
change. No job gets a notice unless a job waits for its GPUs. Plans are made on a copy of the state at that later
time.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.preemption.planner import Plan, Planner
from mesos_gpu.engine.preemption.preempting import stoppable
from mesos_gpu.engine.preemption.reasons import reason_of
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.forecast import offered_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.tenancy.seats import Admissions, seat
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.notice import NoticeReason

_MAX_TRIED: Final = 16  # jobs per match, as each costs a look at every node


def make_ahead(turn: Turn, blocked: Iterable[Job]) -> None:
    """Give notice to jobs that make room for blocked jobs when hours change, each as long before as its notice time."""
    state, at = turn.state, turn.state.quota.hours.span.until
    if at - turn.now > _longest_notice_s(turn):
        return
    waiting = [job for job in blocked if _waits(state, state.work.jobs[job.id])]
    if not waiting:
        return
    then = Turn(STATES.duplicate(state), turn.settings, at)
    then.state.quota.hours_at = at
    standing = standing_of(then.state, turn.settings, at)
    # Nodes are taken as they are now, as later reports are not known.
    offered = offered_of(then.state)
    backlog = Backlog(then.state, turn.settings, turn.now, offered, reading=True, standing=standing)
    seating = seat(then, backlog.barriers.may_be_seated)
    then.state.quota.seats_given = seating.given
    seated = [job for job in waiting if job.id in seating.given]
    _Ahead(turn, then, backlog, seating, at).make(seated[:_MAX_TRIED])


def _longest_notice_s(turn: Turn) -> float:
    """Return the longest notice time of all queues and tasks, in seconds."""
    tree = turn.state.quota.tree
    given = [queue.resolved.notice_s for queue in tree.queues.values()]
    return max([turn.settings.tasks.most_notice_s, *given])


def _waits(state: State, job: Job) -> bool:
    """Return whether a job asks for GPUs, and has neither a seat nor room that was made for it."""
    return job.room_made_at is None and job.id not in state.quota.seats_given and job.spec.gpus > 0


class _Ahead:
    """Plans for the time at which the hours of queues change."""

    def __init__(self, turn: Turn, then: Turn, backlog: Backlog, seating: Admissions, at: float) -> None:
        self._turn, self._at = turn, at
        running = {job_id: job for job_id, job in stoppable(then.state).items() if job.started_at is not None}
        self._rule = Reclaim(then, seating, backlog, running)
        self._planner = Planner(Turn(then.state, turn.settings, turn.now), backlog, self._rule, seating)

    def make(self, owed: Iterable[Job]) -> None:
        """Make room for jobs that will have seats once hours change, in their order."""
        for job in owed:
            request = request_of(job, self._turn.settings, self._turn.state)
            if (agent_id := self._planner.room_for(job, request)) is not None:
                self._planner.count_in(job, request, agent_id)
                continue
            way = self._planner.find(job, request)
            if way is None or way.to or not self._rule.has_waited(job, way.chosen):
                continue
            self._planner.planned(job, request, way)
            lead_s = max(
                notices.lead_s(self._turn, self._turn.state.work.jobs[victim.job_id]) for victim in way.chosen
            )
            if self._at - self._turn.now <= lead_s:
                self._make_room(job, way)

    def _make_room(self, job: Job, way: Plan) -> None:
        """Save the plan, then give notice to its victims; a longer notice is given in full."""
        turn, names = self._turn, ", ".join(str(victim.job_id) for victim in way.chosen)
        message = f"room is made for it by {names}, when the hours of queues change"
        turn.put_job(replace(job, room_made_at=self._at, room_on=way.room_on, message=message))
        for victim in way.chosen:
            other = turn.state.work.jobs[victim.job_id]
            if other.room_made_at is not None:
                other = turn.put_job(replace(other, room_made_at=None, room_on=()))
            left_s = max(self._at - turn.now, notices.lead_s(turn, other))
            why = f"{reason_of(self._rule, job, victim)}, when the hours of queues change"
            notices.give(turn, other, NoticeReason.RECLAIM, why, by=job.id, notice_s=left_s)
        self._rule.balance.forget_plans()
