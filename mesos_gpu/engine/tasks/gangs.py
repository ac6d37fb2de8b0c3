"""Jobs of several tasks: all start, or none does; what befalls one befalls all."""

from dataclasses import replace

from mesos_gpu.engine.effects import Start
from mesos_gpu.engine.tasks.evictions import end_tasks
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.driver import newer_of
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Action, Task, TaskState
from mesos_gpu.policy.tasks.blame import exit_code
from mesos_gpu.policy.tasks.gang import Verdict, verdict

_READY = (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED)


def on_member(
    turn: Turn, job: Job, task: Task, actions: tuple[Action, ...], status: Status, outcome: Outcome | None
) -> None:
    """One task of a job of several has changed."""
    if job.state is JobState.PENDING or job.state.ended:
        return  # a launch that was given up has ended after all
    if Action.RETRY in actions or Action.REQUEUE in actions:
        said = task.evicted or status.message or f"{status.state} {status.reason}".strip()
        job = _learnt(job, outcome)
        if not task.evicted:
            job = replace(job, message=f"rank {task.rank}: {said}", exit_code=exit_code(outcome))
            turn.put_job(job)
        _end_rest(turn, job, task, said)
    elif Action.SAVE in actions and not task.ended:
        _show(turn, job)
    release(turn, turn.state.jobs[job.id])
    settle(turn, turn.state.jobs[job.id])


def _learnt(job: Job, outcome: Outcome | None) -> Job:
    if outcome is None or outcome.min_driver is None:
        return job
    least = newer_of(job.learnt_min_driver, outcome.min_driver)
    return replace(job, learnt_min_driver=least, image_needs=outcome.needs or job.image_needs)


def _end_rest(turn: Turn, job: Job, first: Task, said: str) -> None:
    """End the others: a gang is whole, or it is nothing."""
    why = first.evicted or f"rank {first.rank} is gone: {said}"
    end_tasks(turn, job, why, first.preempted_for)


def _show(turn: Turn, job: Job) -> None:
    """The state that its tasks together have; what ended them stays to be read."""
    members = turn.state.round_of(job)
    if any(task.evicted for task in members):
        return
    states = [task.state for task in members]
    if job.kill_requested:
        shown = JobState.KILLING
    elif TaskState.UNREACHABLE in states or TaskState.ABANDONED in states:
        shown = JobState.UNREACHABLE
    elif all(state in (TaskState.RUNNING, TaskState.FINISHED) for state in states):
        shown = JobState.RUNNING
    else:
        shown = JobState.STARTING
    if shown is job.state:
        return
    started_at = job.started_at
    if shown is JobState.RUNNING and started_at is None:
        started_at = turn.now
    turn.put_job(replace(job, state=shown, started_at=started_at, message=shown.value))


def settle(turn: Turn, job: Job) -> None:
    """When the last of them has ended: what becomes of the job."""
    members = turn.state.round_of(job)
    found = verdict(members, job.spec.on_member_failure, kill_requested=job.kill_requested)
    match found:
        case None:
            return
        case Verdict.FINISHED:
            turn.end_job(
                replace(job, attempts=job.attempts + 1), JobState.FINISHED, "all tasks have finished", 0
            )
        case Verdict.KILLED:
            turn.end_job(job, JobState.KILLED, job.message, job.exit_code)
        case Verdict.RETRY:
            turn.retry(job, job.message, job.exit_code, final=False)
        case Verdict.FAILED:
            used = any(task.state is TaskState.FAILED for task in members)
            turn.end_job(
                replace(job, attempts=job.attempts + used), JobState.FAILED, job.message, job.exit_code
            )
        case Verdict.REQUEUE if any(task.preempted_for for task in members):
            turn.give_way(job, members[0].evicted)
        case Verdict.REQUEUE:
            turn.requeue(job, job.message)


def release(turn: Turn, job: Job) -> None:
    """Tell those that wait at the barrier to start, when all have their places. A word that is lost is repeated."""
    members = turn.state.round_of(job)
    if job.kill_requested or any(task.state not in _READY or task.evicted for task in members):
        return
    for task in members:
        told_at = turn.state.released.get(task.id)
        due = told_at is None or turn.now - told_at >= turn.settings.start_resend_s
        if task.state is TaskState.STARTING and due:
            turn.state.released[task.id] = turn.now
            turn.effects.append(Start(task.agent_id, task.executor_id, task.id))


def on_tick(turn: Turn) -> None:
    """Repeat the word to start."""
    waiting = {
        task.job_id
        for task in (turn.state.tasks[task_id] for task_id in turn.state.live)
        if task.launch and task.state is TaskState.STARTING
    }
    for job_id in waiting:
        job = turn.state.jobs.get(job_id) if job_id else None
        if job is not None and job.state is not JobState.PENDING and not job.state.ended:
            release(turn, job)
