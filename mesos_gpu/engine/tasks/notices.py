"""Delivery of notices to tasks: each is sent again until the executor confirms that its task can read it."""

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
    """Save a notice of a task, and send it."""
    task = replace(task, notice=notice)
    turn.put_task(task)
    _send(turn, task, notice)


def _send(turn: Turn, task: Task, notice: Notice) -> None:
    """Send a notice to a running task, if the master is connected."""
    if not turn.state.mesos.connected or task.state is not TaskState.RUNNING:
        return  # sent by a later tick, once the task runs and the master is connected
    turn.state.work.notified[task.id] = notice.number, turn.now
    left_s = max(notice.until - turn.now, 0.0)
    job = turn.state.work.current(task)
    signal = NoticeSignal.NONE if job is None or notice.warning else job.spec.notice_signal
    readable = notice if job is None else _veiled(turn, job, notice)
    turn.effects.append(GiveNotice(task.agent_id, task.executor_id, task.id, readable, left_s, signal))


def _veiled(turn: Turn, job: Job, notice: Notice) -> Notice:
    """Return a notice as a task may read it: without the job of another owner, and without the queue of that job.

    Users who may see these read them in the job's message.
    """
    gains = turn.state.work.jobs.get(notice.by) if notice.by is not None else None
    if gains is None or gains.owner in ("", job.owner):
        return notice
    why = notice.why.replace(f"job {gains.id}", "another job")
    for path in lineage(gains.spec.queue):  # the longest first
        if path not in lineage(job.spec.queue):
            why = why.replace(f"queue {path} ", "its queue ")
    return replace(notice, by=None, why=why)


def on_tick(turn: Turn) -> None:
    """Send notices again that no executor has confirmed."""
    for task_id in turn.state.work.restless.in_order(turn.state.work.restless.tasks):
        task = turn.state.work.tasks[task_id]
        notice = task.notice
        if notice is None or notice.told >= notice.number or task.evicted:
            continue
        silent_s = turn.now - (notice.recalled_at or notice.at)
        waits_s = patience_s(silent_s, turn.settings.tasks.notice_resend_s)
        last_sent = turn.state.work.notified.get(task_id)  # the number of a notice, and when it was sent
        if last_sent is None or last_sent[0] != notice.number or turn.now - last_sent[1] >= waits_s:
            _send(turn, task, notice)


def on_told(turn: Turn, task: Task, status: Status) -> None:
    """Record that a task can read its notice; a late or repeated answer changes nothing."""
    try:
        number = decode_told(status.data)
    except ValueError:
        return  # data of a foreign executor
    notice = task.notice
    if number is None or notice is None or number <= notice.told:
        return
    if number > notice.number:
        # A lost state had sent more notices: the task reads only a number that is new to it.
        tell(turn, task, replace(notice, number=number + 1, told=number))
    else:
        turn.show_task(replace(task, notice=replace(notice, told=number)))


def on_checkpoint(turn: Turn, task: Task, status: Status) -> None:
    """Record a checkpoint that a task reports."""
    try:
        ago_s = decode_checkpoint(status.data)
    except ValueError:
        return  # data of a foreign executor
    job = turn.state.work.current(task)
    if ago_s is not None and job is not None and not job.state.ended:
        keep(turn, job, task, turn.now - ago_s)


def on_checkpoint_told(turn: Turn, event: CheckpointTold) -> None:
    """Record a checkpoint of a job that a caller of the API reports.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run.
    """
    job = turn.state.work.jobs.get(event.job_id)
    if job is None:
        raise NotFound(f"there is no job {event.job_id}", remedy="list the jobs with: mesos-gpu ps --all")
    members = [
        task for task in turn.state.work.round_of(job) if not task.ended and task.started_at is not None
    ]
    if job.state is JobState.PENDING or job.state.ended or not members:
        raise Conflict(
            f"job {job.id} is {job.state.value}, and only a running job has checkpoints",
            remedy="report a checkpoint while the job runs",
        )
    keep(turn, job, members[0], turn.now)


def keep(turn: Turn, job: Job, task: Task, at: float) -> None:
    """Store the time up to which a job's work is saved: not before the task's start, nor in the future.

    Of reports within `checkpoint_again_s` only the first counts, as each is saved: the choice of victims depends on
    it.
    """
    at = min(max(at, task.started_at or task.launched_at), turn.now)
    if job.checkpoint_at is None or at - job.checkpoint_at >= turn.settings.tasks.checkpoint_again_s:
        happened(turn, EventKind.CHECKPOINT, job)
        turn.show_job(replace(job, checkpoint_at=at, version=job.version + 1))


def happened(turn: Turn, kind: EventKind, job: Job, notice: Notice | None = None, *, words: str = "") -> None:
    """Add an event to the event log; call it before the job is published.

    Args:
        kind: Kind of the event.
        job: Job of the event.
        notice: Notice of the event; None without one.
        words: Text if no notice has it.
    """
    number = _next_number(turn)
    turn.state.work.events.append(JobEvent(number, turn.now, kind, job.id, notice, words=words))


def reached(turn: Turn, use: BudgetUse) -> None:
    """Add an event that a budget has reached a threshold, and publish it."""
    event = JobEvent(_next_number(turn), turn.now, EventKind.BUDGET, JobId(""), budget=use)
    turn.state.work.events.append(event)
    turn.effects.append(Publish(event.job_id, event.number))


def _next_number(turn: Turn) -> int:
    """Return the number of the next event: milliseconds since the epoch, but always growing."""
    events = turn.state.work.events
    return max(int(turn.now * 1000), events[-1].number + 1 if events else 0)


def ends_in_time(task: Task, status: Status) -> bool:
    """Return whether a task with a notice has ended by itself, and not by one of its limits."""
    return task.notice is not None and task.notice.stands and ended_by_itself(status)


def noted(task: Task) -> Task:
    """Return a task that ended by itself after a notice, with the reason for which its job is queued again."""
    assert task.notice is not None
    return task if task.evicted else replace(task, evicted=f"{task.notice.why}; it ended within its notice")
