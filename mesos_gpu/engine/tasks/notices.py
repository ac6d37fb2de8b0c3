"""Notices on their way to tasks: each is sent again until the executor says that its task can read it."""

from dataclasses import replace

from mesos_gpu.engine.effects import GiveNotice, Publish
from mesos_gpu.engine.events import CheckpointTold
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState, NoticeSignal
from mesos_gpu.model.tasks.event import EventKind, JobEvent
from mesos_gpu.model.tasks.notice import Notice
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.usage import BudgetUse
from mesos_gpu.policy.queueing.backoff import patience_s
from mesos_gpu.policy.tasks.blame import ended_by_itself
from mesos_gpu.policy.tenancy.tree import lineage
from mesos_gpu.wire.mesos.notice import decode_checkpoint, decode_told


def tell(turn: Turn, task: Task, notice: Notice) -> None:
    """Keep a task's notice, and send it."""
    task = replace(task, notice=notice)
    turn.put_task(task)
    _send(turn, task, notice)


def _send(turn: Turn, task: Task, notice: Notice) -> None:
    if not turn.state.mesos.connected or task.state is not TaskState.RUNNING:
        return  # as soon as it can be heard
    turn.state.work.notified[task.id] = notice.number, turn.now
    left_s = max(notice.until - turn.now, 0.0)
    job = turn.state.work.current(task)
    signal = NoticeSignal.NONE if job is None or notice.warning else job.spec.notice_signal
    told = notice if job is None else _veiled(turn, job, notice)
    turn.effects.append(GiveNotice(task.agent_id, task.executor_id, task.id, told, left_s, signal))


def _veiled(turn: Turn, job: Job, notice: Notice) -> Notice:
    """The notice as a task of the job may read it: the job of another proved name, and its queue, are not named.
    Whoever has the right to see them asks for the job."""
    gains = turn.state.work.jobs.get(notice.by) if notice.by is not None else None
    if gains is None or gains.owner in ("", job.owner):
        return notice
    why = notice.why.replace(f"job {gains.id}", "another job")
    for path in lineage(gains.spec.queue):  # the longest first
        if path not in lineage(job.spec.queue):
            why = why.replace(f"queue {path} ", "its queue ")
    return replace(notice, by=None, why=why)


def on_tick(turn: Turn) -> None:
    """Send again what no executor has answered."""
    for task_id in turn.state.work.restless.in_order(turn.state.work.restless.tasks):
        task = turn.state.work.tasks[task_id]
        notice = task.notice
        if notice is None or notice.told >= notice.number or task.evicted:
            continue
        silent_s = turn.now - (notice.recalled_at or notice.at)
        waits_s = patience_s(silent_s, turn.settings.tasks.notice_resend_s)
        sent = turn.state.work.notified.get(task_id)  # the number of a notice, and when it was sent
        if sent is None or sent[0] != notice.number or turn.now - sent[1] >= waits_s:
            _send(turn, task, notice)


def on_told(turn: Turn, task: Task, status: Status) -> None:
    """Take in that a task can read its notice; an answer that is late or repeated changes nothing."""
    try:
        number = decode_told(status.data)
    except ValueError:
        return  # another executor's data
    notice = task.notice
    if number is None or notice is None or number <= notice.told:
        return
    if number > notice.number:
        # A state that was lost had told it more: it heeds only a number that is new to it.
        tell(turn, task, replace(notice, number=number + 1, told=number))
    else:
        turn.show_task(replace(task, notice=replace(notice, told=number)))


def on_checkpoint(turn: Turn, task: Task, status: Status) -> None:
    """Take in that a task says that it has kept its work."""
    try:
        ago_s = decode_checkpoint(status.data)
    except ValueError:
        return  # another executor's data
    job = turn.state.work.current(task)
    if ago_s is not None and job is not None and not job.state.ended:
        keep(turn, job, task, turn.now - ago_s)


def on_checkpoint_told(turn: Turn, event: CheckpointTold) -> None:
    """Take in that somebody says so of a job.

    Raises:
        NotFound: There is no such job.
        Conflict: It does not run.
    """
    job = turn.state.work.jobs.get(event.job_id)
    if job is None:
        raise NotFound(f"there is no job {event.job_id}", remedy="list the jobs with: mesos-gpu ps --all")
    members = [
        task for task in turn.state.work.round_of(job) if not task.ended and task.started_at is not None
    ]
    if job.state is JobState.PENDING or job.state.ended or not members:
        raise Conflict(
            f"job {job.id} is {job.state.value}, and only one that runs has work to keep",
            remedy="tell it while it runs",
        )
    keep(turn, job, members[0], turn.now)


def keep(turn: Turn, job: Job, task: Task, at: float) -> None:
    """Remember up to when a job's work is kept: never of the time before the task's start, nor of the future. Of what
    is told too often the first counts: somebody is judged by it, so each is saved."""
    at = min(max(at, task.started_at or task.launched_at), turn.now)
    if job.checkpoint_at is None or at - job.checkpoint_at >= turn.settings.tasks.checkpoint_again_s:
        happened(turn, EventKind.CHECKPOINT, job)
        turn.show_job(replace(job, checkpoint_at=at, version=job.version + 1))


def happened(turn: Turn, kind: EventKind, job: Job, notice: Notice | None = None, *, words: str = "") -> None:
    """Tell whoever listens to events, in `words` if a notice does not say it; call it before the job is published."""
    number = _next_number(turn)
    turn.state.work.events.append(JobEvent(number, turn.now, kind, job.id, notice, words=words))


def reached(turn: Turn, use: BudgetUse) -> None:
    """Tell whoever listens that a budget has reached a threshold, and publish it."""
    event = JobEvent(_next_number(turn), turn.now, EventKind.BUDGET, JobId(""), budget=use)
    turn.state.work.events.append(event)
    turn.effects.append(Publish(event.job_id, event.number))


def _next_number(turn: Turn) -> int:
    events = turn.state.work.events
    return max(int(turn.now * 1000), events[-1].number + 1 if events else 0)


def ends_in_time(task: Task, status: Status) -> bool:
    """Whether a task that was to end has done so by itself, and none of its limits has ended it."""
    return task.notice is not None and task.notice.stands and ended_by_itself(status)


def noted(task: Task) -> Task:
    """Say of a task that had notice and has ended by itself why its job is queued again."""
    assert task.notice is not None
    return task if task.evicted else replace(task, evicted=f"{task.notice.why}; it ended within its notice")
