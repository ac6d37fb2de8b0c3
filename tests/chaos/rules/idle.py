"""Rules of idle GPUs: unknown use is never idle, and no job ends without a warning and a notice."""

from collections.abc import Iterable
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import Idle
from tests.chaos.account import Account, Known
from tests.chaos.rules import tree
from tests.chaos.violation import Violation

_UNKNOWN: Final = "unknown is never idle"
_TOLD: Final = "nothing is returned without its warning and notice"
_AT_WORK: Final = "no job at work is ended for idle GPUs"
_KEPT: Final = "a kept job gets no notice and is not ended"
_CLOCKS_S: Final = 0.001
_SURE_WINDOWS: Final = 2.5  # windows that certainly contain a whole one, also across two reports


def asked(account: Account, event: ev.Event, now: float) -> None:
    """Record an accepted request to keep a job, or its withdrawal."""
    match event:
        case ev.KeepAsked(job_id, for_s) if for_s is not None:
            account.idling.kept[job_id] = now + for_s
        case ev.KeepWithdrawn(job_id):
            account.idling.kept.pop(job_id, None)


def hear(account: Account, uses: Iterable[TaskUse], now: float) -> None:
    """Take over the use of cards from a report; time between counts of different monitors is unknown."""
    for use in uses:
        known = account.idling.known.setdefault((use.task_id, use.gpu_id), Known())
        before, known.work = known.work, use.work
        if use.work is None:
            known.worked_ms = 0
            continue
        new = use.work
        old = before if before is not None and before.since == new.since else Work(new.since)
        idle_ms = new.seen_ms - old.seen_ms - (new.busy_ms - old.busy_ms)
        busy_ms = new.busy_ms - old.busy_ms
        known.idle_ms, known.busy_ms = known.idle_ms + idle_ms, known.busy_ms + busy_ms
        if busy_ms or idle_ms:  # a repeated report has no new counts
            known.worked_ms = known.worked_ms + busy_ms + idle_ms if busy_ms > idle_ms else 0
        if idle_ms > 0:
            known.idle_at = now


def told(account: Account, task: Task, now: float) -> None:
    """Check a saved warning or notice for idle GPUs.

    Raises:
        Violation: The job is kept, was not warned, or was not idle.
    """
    notice, idling = task.notice, account.idling
    if notice is None or notice.reason is not NoticeReason.IDLE or task.ended:
        return
    if idling.noticed.get(task.id) == notice.number or not (notice.warning or notice.stands):
        return
    idling.noticed[task.id] = notice.number
    job = account.disk.jobs.get(task.job_id or JobId(""))
    if job is None:
        return
    if (until := idling.kept.get(job.id, now)) > now:
        raise Violation(_KEPT, f"{task.id} gets an idle notice at {now}, and is kept until {until}", task.id)
    rules = _rules(account, job)
    _was_idle(account, job, rules)
    if notice.warning:
        idling.warned.add(task.id)
    elif task.id not in idling.warned:
        raise Violation(_TOLD, f"{task.id} has {notice}, and was never warned", task.id)


def _rules(account: Account, job: Job) -> Idle:
    rules = tree.inherited(account.queues, job.spec.queue, "idle")
    return rules if isinstance(rules, Idle) else Idle()


def _was_idle(account: Account, job: Job, rules: Idle) -> None:
    """Check that reports show enough idle time of all cards: half of each window."""
    least_ms = rules.warn_after_s * 1000 / 2 * (1 - 2 * rules.busy_share)
    for task_id in account.latest(job.id):
        task = account.disk.tasks[task_id]
        for gpu_id in task.gpus if not (task.ended or account.words[task_id].ended) else ():
            known = account.idling.known.get((task_id, gpu_id), Known())
            if known.idle_ms < least_ms - 1:
                words = f"{task_id} gets an idle notice; of {gpu_id} {known.idle_ms} ms are known to be idle"
                raise Violation(_UNKNOWN, words, task_id)


def ended(account: Account, task: Task, job: Job, now: float) -> bool:
    """Return whether a task may be ended after its notice for idle GPUs, which is always so.

    Raises:
        Violation: Its use since the notice is unknown, it is at work again, or it is kept.
    """
    notice, idling = task.notice, account.idling
    assert notice is not None, "the caller has checked"
    if task.id not in idling.warned:
        raise Violation(_TOLD, f"{task.id} is ended, and was never warned", task.id)
    if (until := idling.kept.get(job.id, now)) > now:
        raise Violation(_KEPT, f"{task.id} is ended at {now}, and is kept until {until}", task.id)
    _is_not_at_work(account, job)
    for gpu_id in task.gpus:
        known = idling.known.get((task.id, gpu_id), Known())
        if known.idle_at < notice.at - _CLOCKS_S:
            words = (
                f"{task.id} is ended; nothing is known of {gpu_id} since {known.idle_at:.1f}, before {notice}"
            )
            raise Violation(_UNKNOWN, words, task.id)
    return True


def _is_not_at_work(account: Account, job: Job) -> None:
    """Check that the cards of a job were not all at work for a whole window, at any `resume_s`."""
    rules = _rules(account, job)
    window_s = max(account.settings.programs.report_interval_s, min(60.0, rules.warn_after_s / 10))
    cards = [(each, gpu) for each in account.latest(job.id) for gpu in account.disk.tasks[each].gpus]
    worked_ms = min((account.idling.known.get(card, Known()).worked_ms for card in cards), default=0)
    if worked_ms > _SURE_WINDOWS * window_s * 1000:
        words = f"{job.id} is ended, and was at work for {worked_ms} ms"
        raise Violation(_AT_WORK, words, job.id)


def returned(account: Account, job: Job) -> bool:
    """Return whether a job may be killed without a user's request: a task has a notice for idle GPUs."""
    tasks = (account.disk.tasks.get(task_id) for task_id in account.latest(job.id))
    return any(
        task is not None
        and task.notice is not None
        and task.notice.stands
        and task.notice.reason is NoticeReason.IDLE
        for task in tasks
    )
