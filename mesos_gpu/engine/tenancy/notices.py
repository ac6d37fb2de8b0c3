"""Notices: messages to the tasks of a job some time before the job is ended, and the end itself.

All reasons use this one way. A notice is saved before it is sent, so a restart does not change when a task ends; nor
does a missing answer of its executor, as executors of earlier versions never answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.calendar.leads import notice_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks import notices
from mesos_gpu.engine.tasks.evictions import end_tasks, named, running
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Stop
from mesos_gpu.policy.tenancy.tree import Tree

#: Reasons of notices that are recalled when the jobs that wanted the GPUs no longer need them.
FOR_OTHERS: Final = (NoticeReason.RECLAIM, NoticeReason.PREEMPTION)


def lead_s(turn: Turn, job: Job) -> float:
    """Return the seconds from a notice to SIGTERM for a job, by `notice_of`."""
    return notice_of(turn.state, turn.settings, job)


def give(
    turn: Turn,
    job: Job,
    reason: NoticeReason,
    why: str,
    *,
    by: JobId | None = None,
    notice_s: float | None = None,
    final: bool = False,
) -> None:
    """Tell all tasks of a job at once that they will be ended.

    When the time has passed they are ended, and the job is queued again at its place without using up an attempt. If
    none of the tasks runs yet, nothing can be lost, and they are ended now. Nothing happens to a job without tasks,
    or that is being ended already; of two notices the earlier end counts.

    Args:
        job: Job that is to end.
        reason: Reason for programs.
        why: Reason in words, as "makes room for job b7, which its queue is guaranteed".
        by: Job that gains the GPUs; None if no job does.
        notice_s: Seconds from now to SIGTERM; None for the time of the job's request and queue, 0 for SIGTERM now.
        final: Whether the job ends for good instead of being queued again.
    """
    if job.state.ended or job.kill_requested:
        return
    members = _members(turn, job)
    if not members:
        return
    lead = lead_s(turn, job) if notice_s is None else notice_s
    runs = any(task.started_at is not None for task in members)
    until = turn.now + (max(lead, 0.0) if runs else 0.0)
    standing = [task.notice for task in members if task.notice is not None and task.notice.stands]
    ends_earlier = bool(standing) and min(notice.until for notice in standing) <= until
    for task in members:
        task = replace(task, preempted_for=by or task.preempted_for)
        if ends_earlier:
            turn.put_task(task)
            continue
        number = task.notice.number + 1 if task.notice else 1
        reported = task.notice.told if task.notice else 0
        notice = Notice(number, reason, why, turn.now, until, by, told=reported, final=final)
        if until > turn.now:
            notices.tell(turn, task, notice)
        else:
            turn.put_task(replace(task, notice=notice))
    if until <= turn.now:
        _end(turn, job, why, by, final=final)
    elif not ends_earlier:
        notices.happened(turn, EventKind.NOTICE, job, stands(turn.state, job))
        left = f"in {until - turn.now:g} s"
        turn.put_job(replace(job, message=f"{why}; it is ended {left}{'' if final else ' and queued again'}"))


def recall(turn: Turn, job: Job, why: str, of: tuple[NoticeReason, ...] = FOR_OTHERS) -> bool:
    """Recall the standing notice of a job, and tell its tasks.

    Args:
        job: Job that goes on.
        why: Reason in words, as "job b7 was started elsewhere".
        of: Reasons of notices that may be recalled; others stay.

    Returns:
        Whether the notice was recalled; False if its time has passed, as its tasks are being ended then.
    """
    members = _told(turn, job)
    if not members or any(task.notice.reason not in of for task in members if task.notice):
        return False
    for task in members:
        assert task.notice is not None
        notice = replace(task.notice, number=task.notice.number + 1, recalled_at=turn.now)
        notices.tell(turn, replace(task, preempted_for=None), notice)
    notices.happened(turn, EventKind.RECALL, job, turn.state.work.tasks[members[0].id].notice)
    turn.put_job(replace(job, message=f"it goes on: {why}", room_made_at=None, room_on=()))
    return True


def make_room_for_nobody(turn: Turn, job: Job) -> None:
    """Keep the notice of a victim, but record that its end makes room for no job any more.

    For a victim whose notice is not recalled because it has another reason too, such as a drain. The place that was
    reserved for the victim on other nodes is given up.
    """
    members = _told(turn, job)
    for task in members:
        turn.put_task(replace(task, preempted_for=None))
    if members and job.room_on:
        turn.put_job(replace(job, room_made_at=None, room_on=()))


def stands(state: State, job: Job) -> Notice | None:
    """Return the notice of a job that was not recalled; None without one."""
    latest = (task.notice for task in state.work.round_of(job) if not task.ended)
    return next((notice for notice in latest if notice is not None and notice.stands), None)


def goes_elsewhere(state: State, job: Job) -> bool:
    """Return whether a running job has notice and a place on other nodes is reserved for it.

    A job that has just started where room was made for it, and ends for another reason, has no such place.
    """
    if not job.room_on or job.state is JobState.PENDING or job.kill_requested:
        return False
    return any(task.preempted_for is not None for task in state.work.round_of(job) if not task.ended)


def _told(turn: Turn, job: Job) -> list[Task]:
    """Return the tasks of a job that have a standing notice; none once one of its tasks is being ended."""
    if any(task.evicted for task in turn.state.work.round_of(job)):
        return []
    return [task for task in _members(turn, job) if task.notice is not None and task.notice.stands]


def _members(turn: Turn, job: Job) -> list[Task]:
    """Return the tasks of a job to tell: all, also not started ones, but those that ended or are being ended."""
    tasks = turn.state.work.round_of(job)
    return [
        task
        for task in tasks
        if not task.ended and not task.evicted and task.state not in (TaskState.ABANDONED, TaskState.KILLING)
    ]


def on_tick(turn: Turn) -> None:
    """Process notices.

    Jobs whose time has passed are ended. Jobs get notice of drains and time limits, and notices whose reason is gone
    are recalled. Notices that executors have not acknowledged are sent again.
    """
    state, tree = turn.state, turn.state.quota.tree
    drains = {key: drain for key, drain in state.cluster.drains.items() if drain.deadline_at is not None}
    draining = any(queue.stop is Stop.DRAIN for queue in tree.queues.values())
    seen, restless = set[JobId](), state.work.restless
    for task_id in (
        list(state.work.live) if drains or draining else restless.in_order(restless.tasks | restless.limited)
    ):
        task = state.work.tasks[task_id]
        job = state.work.jobs.get(task.job_id) if task.job_id is not None else None
        if job is None or job.id in seen:
            continue
        limited = job.spec.timeout_s is not None and lead_s(turn, job) > 0
        if task.notice is None and not (drains or draining or limited):
            continue
        seen.add(job.id)
        if running(turn, task) is not None:
            _look_after(turn, job, drains, tree)
    notices.on_tick(turn)


def _look_after(turn: Turn, job: Job, drains: Mapping[tuple[Target, str], Drain], tree: Tree) -> None:
    """End or recall the notice of one job, or give it one for a drain or its time limit."""
    notice = stands(turn.state, job)
    if notice is not None and notice.reason is NoticeReason.TIME_LIMIT:
        return  # its executor ends it
    if notice is not None and notice.reason is NoticeReason.DRAIN:
        _look_after_drained(turn, job, notice, _drained(turn, job, drains, tree))
    elif notice is not None and notice.reason is NoticeReason.IDLE:
        return  # `tenancy.idle` decides by the use of its GPUs
    elif notice is not None and turn.now >= notice.until:
        end(turn, job, notice)
    elif notice is None and (drained := _drained(turn, job, drains, tree)) is not None:
        why, left_s = drained
        if left_s is None or any(task.started_at is not None for task in _members(turn, job)):
            give(turn, job, NoticeReason.DRAIN, why, notice_s=left_s)
    elif notice is None:
        _warn_of_limit(turn, job)


def _look_after_drained(
    turn: Turn, job: Job, notice: Notice, drained: tuple[str, float | None] | None
) -> None:
    """End a job with a drain notice, or recall the notice if the drain was withdrawn or put off.

    Args:
        job: Job with a notice.
        drained: Result of `_drained`; a drain with a deadline ends the job at that, not at the notice's time.
    """
    if drained is None:
        recall(turn, job, "its node or GPU is not drained any more", of=(NoticeReason.DRAIN,))
    elif turn.now < notice.until:
        return
    elif drained[1] is None:
        end(turn, job, notice)
    elif drained[1] > 0:
        recall(turn, job, "the drain of its node or GPU was put off", of=(NoticeReason.DRAIN,))


def _drained(
    turn: Turn, job: Job, drains: Mapping[tuple[Target, str], Drain], tree: Tree
) -> tuple[str, float | None] | None:
    """Return why a job needs notice now for a drain, and the seconds that are left to its end.

    The seconds are None if the notice time of the job counts, as for a drained queue. None if no drain concerns the
    job, or if there is time left before its notice.
    """
    queue = tree.queues.get(job.spec.queue)
    if queue is not None and queue.stop is Stop.DRAIN:
        return f"its queue {queue.path} is drained", None
    drained = drain_end(turn.state, job, drains)
    if drained is None or drained[0] - turn.now > lead_s(turn, job):
        return None
    return drained[1], drained[0] - turn.now


def drain_end(state: State, job: Job, drains: Mapping[tuple[Target, str], Drain]) -> tuple[float, str] | None:
    """Return the first deadline of the drains of a job's nodes and GPUs, with the drain in words; None without one.

    Args:
        state: State of the engine.
        job: Job with tasks.
        drains: Drains by target, each with or without a deadline.
    """
    ends: list[tuple[float, str]] = []
    for task in state.work.round_of(job) if drains else ():
        for key in ((Target.NODE, task.hostname), *((Target.GPU, gpu) for gpu in task.gpus)):
            drain = drains.get(key)
            if drain is not None and drain.deadline_at is not None and not task.ended:
                ends.append((drain.deadline_at, f"{named(drain)} was {drain.words}"))
    return min(ends, default=None)


def _warn_of_limit(turn: Turn, job: Job) -> None:
    """Give a job notice before the end of its time limit, at which its executors end it."""
    limit_s = job.spec.timeout_s
    started = [task.started_at for task in _members(turn, job) if task.started_at is not None]
    if limit_s is None or not started:
        return
    left_s = min(started) + limit_s - turn.now
    if 0 < left_s <= lead_s(turn, job):
        why = f"its time limit of {limit_s:g} s ends"
        give(turn, job, NoticeReason.TIME_LIMIT, why, notice_s=left_s)


def end(turn: Turn, job: Job, notice: Notice) -> None:
    """End a job whose notice has run out."""
    _end(turn, job, notice.why, notice.by, final=notice.final)


def _end(turn: Turn, job: Job, why: str, by: JobId | None, *, final: bool) -> None:
    """End the tasks of a job for a reason, and report it."""
    notices.happened(turn, EventKind.END, job, stands(turn.state, job))
    what = "it is ended here" if final else "it is ended here and queued again"
    job = turn.put_job(replace(turn.state.work.jobs[job.id], message=f"{why}; {what}"))
    end_tasks(turn, job, why, by)
