"""Life of the tasks of a launch: all start or none, and the end of one ends all. A job of one task is a gang of one."""

from dataclasses import dataclass, replace

from mesos_gpu.engine.calendar.booked import booking_over
from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.effects import Start
from mesos_gpu.engine.tasks.evictions import end_tasks
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.driver import as_new_as, newer_of
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Action, Task, TaskState
from mesos_gpu.policy.tasks.blame import exit_code, is_final_error
from mesos_gpu.policy.tasks.gang import Verdict, shown, verdict
from mesos_gpu.policy.tenancy.las import at_end

_READY = (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED)


@dataclass(frozen=True, slots=True)
class _End:
    """End of a job whose last task has ended.

    Attributes:
        message: Message for users.
        exit_code: Exit code as a shell reports it; None if not known.
        final: Whether another attempt would fail in the same way.
        elsewhere: Whether the job needs a newer driver than known before, and nodes other than this one may have it.
    """

    message: str
    exit_code: int | None
    final: bool = False
    elsewhere: bool = False


def on_changed(
    turn: Turn, job: Job, task: Task, actions: tuple[Action, ...], status: Status, outcome: Outcome | None
) -> None:
    """Update a job, and the other tasks of its launch, after a change of one task of its latest launch."""
    if job.state is JobState.PENDING or job.state.ended:
        return  # late end of a launch that was given up
    end = _End(_message(job, task, status), exit_code(outcome), is_final_error(status))
    if Action.RETRY in actions or Action.REQUEUE in actions:
        job, elsewhere = _store_driver_need(turn, job, task, outcome)
        end = replace(end, elsewhere=elsewhere)
        if job.spec.tasks > 1:
            job = _end_rest(turn, job, task, end)
    elif Action.SAVE in actions and not task.ended:
        job = _show(turn, job, task, status)
    release(turn, job)
    _settle(turn, job, _end_of_gang(job) if job.spec.tasks > 1 else end)


def _message(job: Job, task: Task, status: Status) -> str:
    """Return the message on a task's end: the scheduler's reason if it ended the task against the user's wish."""
    message = status.message or f"{status.state} {status.reason}".strip()
    if task.ended and task.unhealthy and job.spec.tasks == 1:
        message = f"unhealthy: {task.unhealthy}"
    if task.state is TaskState.FAILED and task.excess and task.kill_sent_at is not None:
        return f"ended beyond its share: {task.excess}"
    if task.state in (TaskState.LOST, TaskState.ABANDONED) and not job.kill_requested:
        return task.evicted or message
    if task.state is TaskState.FINISHED and job.app_version is not None:
        message += "; an app must keep running, so a new instance starts"
    return message


def _store_driver_need(turn: Turn, job: Job, task: Task, outcome: Outcome | None) -> tuple[Job, bool]:
    """Store the driver version that a job's image needs; return whether the node of the task lacks it.

    A node that reports a new enough driver, though its executor found another, does not count as lacking it: the job
    must not be placed there again at once.
    """
    if outcome is None or outcome.min_driver is None or task.evicted or job.kill_requested:
        return job, False
    min_driver = newer_of(job.learnt_min_driver, outcome.min_driver)
    needs = (outcome.needs or job.image_needs) if min_driver == outcome.min_driver else job.image_needs
    node = turn.state.cluster.nodes.get(task.agent_id)
    elsewhere = node is None or not as_new_as(node.driver_version, min_driver)
    return replace(job, learnt_min_driver=min_driver, image_needs=needs), elsewhere


def _end_rest(turn: Turn, job: Job, first: Task, end: _End) -> Job:
    """Store which rank of a gang ended first, and end its other tasks."""
    if not first.evicted:
        job = replace(job, message=f"rank {first.rank}: {end.message}", exit_code=end.exit_code)
        job = turn.put_job(job)
    if first.state is TaskState.LOST and first.notice is not None and first.notice.stands:
        return turn.state.work.jobs[job.id]  # the other tasks have the rest of their notice
    why = first.evicted or f"rank {first.rank} is gone: {end.message}"
    end_tasks(turn, job, why, first.preempted_for)
    return turn.state.work.jobs[job.id]


def _show(turn: Turn, job: Job, task: Task, status: Status) -> Job:
    """Show the state of a job by its tasks.

    For a job of one task each message is shown. For a gang only changes of all tasks are shown, and the message of
    the task that ended it stays.
    """
    members = turn.state.work.round_of(job)
    state = shown(members, kill_requested=job.kill_requested)
    has_room = job.room_made_at is not None or bool(job.room_on)
    if has_room and state is JobState.RUNNING and not any(map(_gives_way, members)):
        # Until all tasks run, the room is kept, in case a launch is lost. A job that ends keeps its new place.
        job = changed(job, room_made_at=None, room_on=())
    if len(members) == 1:
        message = task.evicted or status.message or state.value
        return turn.put_job(changed(job, state=state, started_at=task.started_at, message=message))
    if state is job.state or any(member.evicted for member in members):
        return job
    started_at = job.started_at
    if state is JobState.RUNNING and started_at is None:
        started_at = turn.now
    return turn.put_job(replace(job, state=state, started_at=started_at, message=state.value))


def _end_of_gang(job: Job) -> _End:
    """Return the end of a gang, whose message was set when its first task ended."""
    return _End(job.message, job.exit_code)


def _settle(turn: Turn, job: Job, end: _End) -> None:
    """Decide what becomes of a job once the last of its tasks has ended: end, another attempt, or the queue."""
    members = turn.state.work.round_of(job)
    decision = verdict(members, job.spec.on_member_failure, kill_requested=job.kill_requested)
    if decision in (Verdict.RETRY, Verdict.REQUEUE):
        job = replace(job, served=at_end(job, members, turn.now))
    match decision:
        case None:
            return
        case Verdict.FINISHED:
            several = len(members) > 1
            message, code = ("all tasks have finished", 0) if several else (end.message, end.exit_code or 0)
            turn.end_job(replace(job, attempts=job.attempts + 1), JobState.FINISHED, message, code)
        case Verdict.KILLED:
            turn.end_job(job, JobState.KILLED, end.message, end.exit_code)
        case Verdict.RETRY | Verdict.REQUEUE if over := booking_over(turn.state, job):
            turn.end_job(job, JobState.KILLED, over, end.exit_code)
        case Verdict.RETRY:
            turn.retry(job, end.message, end.exit_code, final=end.final)
        case Verdict.FAILED:
            used = any(task.state is TaskState.FAILED for task in members)
            job = replace(job, attempts=job.attempts + used)
            turn.end_job(job, JobState.FAILED, end.message, end.exit_code)
        case Verdict.REQUEUE if (final := next(filter(_is_final, members), None)) is not None:
            assert final.notice is not None, "only a notice makes it final"
            turn.end_job(job, JobState.KILLED, final.evicted or final.notice.why, end.exit_code)
        case Verdict.REQUEUE if any(_gives_way(task) for task in members):
            for_others = any(task.preempted_for for task in members)
            why = next((task.evicted for task in members if task.evicted), end.message)
            turn.give_way(replace(job, stopped=job.stopped + for_others), why)
        case Verdict.REQUEUE if end.elsewhere:
            turn.give_way(job, end.message)
        case Verdict.REQUEUE:
            turn.requeue(job, end.message)


def _is_final(task: Task) -> bool:
    """Return whether a task had a notice that ends its job for good."""
    return task.notice is not None and task.notice.stands and task.notice.final


def _gives_way(task: Task) -> bool:
    """Return whether a task was ended for another job or by a notice, which is not the fault of its job."""
    return task.preempted_for is not None or (task.notice is not None and task.notice.stands)


def release(turn: Turn, job: Job) -> None:
    """Send the start message to tasks at the barrier once all tasks of the gang are ready; repeat it in time."""
    members = turn.state.work.round_of(job)
    if job.kill_requested or any(task.state not in _READY or task.evicted for task in members):
        return
    for task in members:
        sent_at = turn.state.work.released.get(task.id)
        due = sent_at is None or turn.now - sent_at >= turn.settings.tasks.start_resend_s
        if _waits(task) and due:
            turn.state.work.released[task.id] = turn.now
            turn.effects.append(Start(task.agent_id, task.executor_id, task.id))


def _waits(task: Task) -> bool:
    """Return whether a task waits at the barrier; the task of a single-task job does not."""
    return task.launch > 0 and task.state is TaskState.STARTING


def on_tick(turn: Turn) -> None:
    """Repeat start messages, in the order of launches."""
    restless = turn.state.work.restless
    tasks = (turn.state.work.tasks[task_id] for task_id in restless.in_order(restless.tasks))
    for job_id in dict.fromkeys(task.job_id for task in tasks if _waits(task)):
        job = turn.state.work.jobs.get(job_id) if job_id else None
        if job is not None and job.state is not JobState.PENDING and not job.state.ended:
            release(turn, job)
