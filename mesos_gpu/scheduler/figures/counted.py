"""Metrics derived from what the engine saves and executes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model import saves
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.queueing.queue import in_line_since
from mesos_gpu.scheduler.figures.meter import Meter

MAX_QUEUES: Final = 100  # with a histogram of their own: the first queues that launch jobs
OTHERS: Final = "*"  # label for all other queues together
_NOT_RUN_YET: Final = (TaskState.LAUNCHED, TaskState.STARTING)


@dataclass(frozen=True, slots=True)
class _InLine:
    """A waiting job's queue, and since when it waits in seconds since the epoch."""

    queue: str
    since: float


class Counted:
    """Updater of the meter, called once for each saved change. Only for the engine's thread.

    Changes before its creation are not counted.
    """

    def __init__(self, state: State, meter: Meter) -> None:
        self._meter = meter
        self._queues: dict[str, None] = {}
        self._line = {
            job.id: _InLine(job.spec.queue, in_line_since(job))
            for job in state.work.jobs.values()
            if job.state is JobState.PENDING
        }
        self._tasks = {task.id: task for task in state.work.tasks.values() if task.job_id and not task.ended}

    def heard(self, event: ev.Event) -> None:
        """Count offers received and rescinded."""
        if isinstance(event, ev.OffersArrived):
            self._meter.offers.labels("received").inc(len(event.offers))
        elif isinstance(event, ev.OfferRescinded):
            self._meter.offers.labels("rescinded").inc()

    def refused(self, error: MesosGpuError) -> None:
        """Count a refused request; the reason label is the class of the error, so there are few values."""
        self._meter.refusals.labels(type(error).__name__).inc()

    def saved(self, effects: Iterable[fx.Effect]) -> None:
        """Count the effects of a batch that was saved."""
        for effect in effects:
            if (count := _OF_EFFECT.get(type(effect))) is not None:
                count(self, effect)

    def _launch(self, effect: fx.Launch) -> None:
        self._meter.offers.labels("used").inc(len(effect.offer_ids))

    def _decline(self, effect: fx.Decline) -> None:
        self._meter.offers.labels("declined").inc(len(effect.offer_ids))

    def _job(self, effect: saves.SaveJob) -> None:
        job = effect.job
        if job.state is JobState.PENDING:
            self._line.setdefault(job.id, _InLine(job.spec.queue, in_line_since(job)))
        elif job.state.ended:
            self._line.pop(job.id, None)

    def _forget_job(self, effect: saves.ForgetJob) -> None:
        self._line.pop(effect.job_id, None)

    def _forget_task(self, effect: saves.ForgetTask) -> None:
        self._tasks.pop(effect.task_id, None)

    def _task(self, effect: saves.SaveTask) -> None:
        task = effect.task
        if task.job_id is None:
            return
        old = self._tasks.pop(task.id, None)
        if not task.ended:
            self._tasks[task.id] = task
        if old is None and task.state is TaskState.LAUNCHED:
            self._placed(task, task.job_id)
        elif old is not None:
            self._changed(old, task, task.job_id)

    def _placed(self, task: Task, job_id: JobId) -> None:
        self._meter.placements.inc()
        waited = self._line.pop(job_id, None)  # only the first task of a gang, so a gang counts once
        if waited is not None:
            queue = self._queue(waited.queue)
            self._meter.waits.labels(queue).observe(max(0.0, task.launched_at - waited.since))

    def _changed(self, old: Task, task: Task, job_id: JobId) -> None:
        if old.state in _NOT_RUN_YET and task.state is TaskState.RUNNING and task.started_at is not None:
            self._meter.launches.observe(max(0.0, task.started_at - task.launched_at))
        if task.evicted and not old.evicted:
            self._meter.preemptions.labels(_reason(task)).inc()
        if task.ended:
            self._meter.ends.labels(task.state.value).inc()
        gone_at = task.ended_at if task.ended else task.unreachable_since
        if job_id in self._line and gone_at is not None:  # the job waits again from then on
            place = self._line[job_id]
            self._line[job_id] = replace(place, since=max(place.since, gone_at))

    def _queue(self, name: str) -> str:
        """Return the queue's name, or `OTHERS` beyond the maximum number of labels."""
        if name in self._queues or len(self._queues) < MAX_QUEUES:
            self._queues[name] = None
            return name
        return OTHERS


def _reason(task: Task) -> str:
    if task.notice is not None and task.notice.stands:
        return task.notice.reason.value
    return "preemption" if task.preempted_for else "other"


_OF_EFFECT: Final[dict[type, Callable[[Counted, Any], None]]] = {
    fx.Launch: Counted._launch,
    fx.Decline: Counted._decline,
    saves.SaveJob: Counted._job,
    saves.ForgetJob: Counted._forget_job,
    saves.SaveTask: Counted._task,
    saves.ForgetTask: Counted._forget_task,
}
