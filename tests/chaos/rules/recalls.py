"""Rules of recalled notices: the end of the task is no longer needed, and has not begun."""

from typing import Final

from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import Stop
from tests.chaos.account import Account
from tests.chaos.rules import bookings, tree
from tests.chaos.violation import Violation

CALLED_OFF: Final = "a notice is recalled when it is not needed, before its end"


def judge(account: Account, task: Task, now: float) -> None:
    """Check a recalled notice when its task is saved.

    Of notices for budgets and for idle GPUs only the time of the recall is checked.

    Raises:
        Violation: The end is still needed, or has begun.
    """
    old = account.disk.tasks.get(task.id)
    was, notice = (None if old is None else old.notice), task.notice
    if old is None or was is None or notice is None or not was.stands or notice.recalled_at is None:
        return
    job = None if task.job_id is None else account.disk.jobs.get(task.job_id)
    if job is None or task.ended:
        return
    why = "it is being ended" if old.evicted else _needed(account, old, was.reason, job, now)
    if why:
        raise Violation(CALLED_OFF, f"{task.id} had {was}, and goes on, though {why}", task.id)


def _needed(account: Account, task: Task, reason: NoticeReason, job: Job, now: float) -> str:
    """Return the reason for which a task must still end; empty without a reason, or if that is not checked."""
    if reason is NoticeReason.TIME_LIMIT:
        return "its time limit ends"
    if reason is NoticeReason.CALENDAR:
        return bookings.needs_end(account, job, now)
    if reason is NoticeReason.DRAIN:
        return _drained(account, job, now)
    other = None if task.preempted_for is None else account.disk.jobs.get(task.preempted_for)
    if reason in (NoticeReason.RECLAIM, NoticeReason.PREEMPTION) and other is not None:
        waits = other.state is JobState.PENDING and other.room_made_at is not None
        return f"{other.id} waits for its room" if waits else ""
    return ""


def _drained(account: Account, job: Job, now: float) -> str:
    if any(spec.stop is Stop.DRAIN for spec in tree.specs_of(account.queues, job.spec.queue)):
        return "its queue is drained"
    every = (account.disk.tasks[task_id] for task_id in account.latest(job.id))
    tasks = [task for task in every if not task.ended]
    places = {(Target.NODE, task.hostname) for task in tasks}
    places |= {(Target.GPU, str(gpu)) for task in tasks for gpu in task.gpus}
    ends = [end for place in places if (end := account.drained.get(place)) is not None]
    return "a drain of its place is over" if any(end <= now for end in ends) else ""
