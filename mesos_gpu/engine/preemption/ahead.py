"""Room that is made before hours change: for jobs that will have a seat then, so that they start on time.

Who will borrow then, and would be stopped for one of them, has his notice before, and ends when the hours do. Nobody is
told anything for whom nobody waits. It is planned on a copy of the state, as it will be then.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.preemption.planner import Plan, Planner
from mesos_gpu.engine.preemption.preempting import stoppable
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.forecast import offered_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.tenancy.seats import Seating, seat
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.notice import NoticeReason

_MOST_TRIED: Final = 16  # jobs in one match: each is a look at every node


def make_ahead(turn: Turn, blocked: Iterable[Job]) -> None:
    """Tell those who make room for any of the blocked jobs when hours change, as long before as their notice is."""
    state, at = turn.state, turn.state.quota.hours.span.until
    if at - turn.now > _longest_notice_s(turn):
        return
    waiting = [job for job in blocked if _waits(state, state.work.jobs[job.id])]
    if not waiting:
        return
    then = Turn(STATES.duplicate(state), turn.settings, at)
    then.state.quota.hours_at = at
    standing = standing_of(then.state, turn.settings, at)
    # Nodes are as they are now: what they will report then is not known.
    offered = offered_of(then.state)
    backlog = Backlog(then.state, turn.settings, turn.now, offered, reading=True, standing=standing)
    seating = seat(then, backlog.barriers.may_be_seated)
    then.state.quota.seats_given = seating.given
    owed = [job for job in waiting if job.id in seating.given]
    _Ahead(turn, then, backlog, seating, at).make(owed[:_MOST_TRIED])


def _longest_notice_s(turn: Turn) -> float:
    tree = turn.state.quota.tree
    given = [queue.resolved.notice_s for queue in tree.queues.values()]
    return max([turn.settings.tasks.most_notice_s, *given])


def _waits(state: State, job: Job) -> bool:
    """Whether nothing is done for it already."""
    return job.room_made_at is None and job.id not in state.quota.seats_given and job.spec.gpus > 0


class _Ahead:
    """The plans for one moment."""

    def __init__(self, turn: Turn, then: Turn, backlog: Backlog, seating: Seating, at: float) -> None:
        self._turn, self._at = turn, at
        running = {job_id: job for job_id, job in stoppable(then.state).items() if job.started_at is not None}
        self._rule = Reclaim(then, seating, backlog, running)
        self._planner = Planner(Turn(then.state, turn.settings, turn.now), backlog, self._rule, seating)

    def make(self, owed: Iterable[Job]) -> None:
        """Make room for those who will be owed it, the first first."""
        for job in owed:
            request = request_of(job, self._turn.settings)
            if (there := self._planner.room_for(job, request)) is not None:
                self._planner.count_in(job, request, there)
                continue
            way = self._planner.find(job, request)
            if way is None or way.to or not self._rule.has_waited(job, way.chosen):
                continue
            self._planner.planned(job, request, way)
            lead_s = max(
                notices.lead_s(self._turn, self._turn.state.work.jobs[each.job_id]) for each in way.chosen
            )
            if self._at - self._turn.now <= lead_s:
                self._tell(job, way)

    def _tell(self, job: Job, way: Plan) -> None:
        """Save the plan, then tell those who end by it: whoever has a longer notice has all of it."""
        turn, names = self._turn, ", ".join(str(victim.job_id) for victim in way.chosen)
        message = f"room is made for it by {names}, when the hours of queues change"
        turn.put_job(replace(job, room_made_at=self._at, room_on=way.room_on, message=message))
        for victim in way.chosen:
            other = turn.state.work.jobs[victim.job_id]
            if other.room_made_at is not None:
                other = turn.put_job(replace(other, room_made_at=None, room_on=()))
            left_s = max(self._at - turn.now, notices.lead_s(turn, other))
            why = f"{self._rule.why(job, victim)}, when the hours of queues change"
            notices.give(turn, other, NoticeReason.RECLAIM, why, by=job.id, notice_s=left_s)
        self._rule.forget_plans()
