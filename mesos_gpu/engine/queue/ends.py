"""When launches end at the latest, and how that is known."""

from collections.abc import Callable

from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.capacity.node import ENDLESS

Learn = Callable[[Job], tuple[float, str] | None]  # how long such a job runs, in s, and how that is known
End = tuple[
    float, float | None, str
]  # the time, what it follows from, and where it is no limit: how it is known


class Ends:
    """Ends of launches, as they are known at one moment."""

    def __init__(self, state: State, now: float, learn: Learn | None) -> None:
        """`learn`: the run time of jobs without a limit, for estimates; None: theirs is not known."""
        self._state, self._now, self._learn = state, now, learn

    def of(self, task: Task, job: Job) -> End:
        """The end of a launch that holds something."""
        if self._state.work.current(task) is None:
            return ENDLESS, None, ""  # given up as unreachable: it ends when its agent is back
        if task.kill_sent_at is not None:
            return max(task.kill_sent_at + job.spec.kill_grace_s, self._now), None, ""
        if task.notice is not None and task.notice.stands:
            return max(task.notice.until + job.spec.kill_grace_s, self._now), None, ""
        return self.by_itself(job, self._now if task.started_at is None else task.started_at)

    def by_itself(self, job: Job, begun_at: float) -> End:
        """The end of a launch that nobody tells to end."""
        if job.spec.timeout_s is not None:
            return max(begun_at + job.spec.timeout_s, self._now), job.spec.timeout_s, ""
        learnt = self._learn(job) if self._learn else None
        if learnt is not None and begun_at + learnt[0] > self._now:
            return begun_at + learnt[0], learnt[0], learnt[1]
        return ENDLESS, None, ""
