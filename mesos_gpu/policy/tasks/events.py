"""Events of jobs before the scheduler's start, reconstructed from the saved state. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.event import MAX_EVENTS, EventKind, JobEvent
from mesos_gpu.model.tasks.task import Task

_ORDER = tuple(EventKind)


def remembered(jobs: Iterable[Job], tasks: Iterable[Task]) -> list[JobEvent]:
    """Return the latest events of jobs, oldest first, without those of budget thresholds.

    These are the latest notice of each launch, with its recall or its end, and the latest checkpoint of each job. No
    event gets a larger number than it had before, so that clients that have seen it do not get it again.
    """
    by_key = {
        (event.job_id, event.kind, event.at): event for event in (*_of_tasks(tasks), *_checkpoints(jobs))
    }
    events: list[JobEvent] = []
    for event in sorted(
        by_key.values(), key=lambda event: (event.at, event.job_id, _ORDER.index(event.kind))
    ):
        last = events[-1].number if events else 0
        events.append(replace(event, number=max(int(event.at * 1000), last + 1)))
    return events[-MAX_EVENTS:]


def _of_tasks(tasks: Iterable[Task]) -> Iterator[JobEvent]:
    """Yield the events of tasks; members of a gang share theirs, of which the caller keeps one."""
    for task in tasks:
        notice = task.notice
        if notice is None or task.job_id is None:
            continue
        if notice.warning:
            yield JobEvent(0, notice.at, EventKind.IDLE_WARNING, task.job_id, notice)
            continue
        given = notice if notice.stands else replace(notice, number=notice.number - 1, recalled_at=None)
        if notice.until > notice.at:
            yield JobEvent(0, notice.at, EventKind.NOTICE, task.job_id, given)
        if notice.recalled_at is not None:
            yield JobEvent(0, notice.recalled_at, EventKind.RECALL, task.job_id, notice)
        elif task.evicted and task.kill_sent_at is not None:
            yield JobEvent(0, notice.until, EventKind.END, task.job_id, notice)


def _checkpoints(jobs: Iterable[Job]) -> Iterator[JobEvent]:
    """Yield the latest checkpoint of each job."""
    for job in jobs:
        if job.checkpoint_at is not None:
            yield JobEvent(0, job.checkpoint_at, EventKind.CHECKPOINT, job.id)
