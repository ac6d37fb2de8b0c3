"""Recall of notices: a job with a notice goes on once the job for which it makes room has started or ended."""

from dataclasses import replace

from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tasks.notice import NoticeReason


def on_tick(turn: Turn) -> None:
    """Recall the notices of jobs whose end no longer helps another job, unless they are being ended."""
    state, takers = turn.state, dict[JobId, JobId]()
    for task_id in state.work.restless.in_order(state.work.restless.tasks):
        task = state.work.tasks[task_id]
        job, taker = state.work.current(task), task.preempted_for
        if task.notice is not None and task.notice.stands and taker is not None and job is not None:
            takers.setdefault(job.id, taker)
    for job_id, taker in takers.items():
        job = state.work.jobs[job_id]
        if (why := _needless(turn, taker)) and not job.kill_requested:
            notice = notices.stands(turn.state, job)
            for_it = notice is not None and notice.by is not None  # idle GPUs may be returned for no job, too
            of = (*notices.FOR_OTHERS, NoticeReason.IDLE) if for_it else notices.FOR_OTHERS
            if not notices.recall(turn, job, why, of=of):
                notices.make_room_for_nobody(turn, job)


def give_up_room(turn: Turn, backlog: Backlog, job: Job) -> Job:
    """Return a job that cannot start now, without the room that was made for it if that is of no use any more."""
    if job.room_made_at is None or not backlog.helps_no_more(job):
        return job
    return turn.put_job(replace(job, room_made_at=None, room_on=(), message="queued"))


def _needless(turn: Turn, taker: JobId) -> str:
    """Return why a job needs no room any more, in words; "" if it needs the room."""
    job = turn.state.work.jobs.get(taker)
    if job is None:
        return ""  # it is not known whether the job has ended
    if job.state.ended:
        return f"job {taker}, which it was to make room for, has ended"
    if job.state is not JobState.PENDING and not notices.goes_elsewhere(turn.state, job):
        return f"job {taker}, which it was to make room for, was started without its end"
    if job.room_made_at is None:
        return f"job {taker}, which it was to make room for, may not start now"
    return ""
