"""Notice times of jobs, and the times at which they have certainly ended."""

from math import inf

from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.capacity.node import Allocation
from mesos_gpu.policy.tenancy.tree import Tree, lineage


def notice_of(state: State, settings: Settings, job: Job) -> float:
    """Return the seconds from a notice to SIGTERM.

    It is what the job asks for, else what its queue gives. Where the document sets a time for the queue or one above,
    a job gets no more than that.
    """
    queue_s = _of_queue(state.quota.tree, job.spec.queue)
    asked_s = job.spec.notice_s
    if queue_s is None:
        return min(asked_s or 0.0, settings.tasks.most_notice_s)
    return queue_s if asked_s is None else min(asked_s, queue_s)


def lead_of(state: State, settings: Settings, job: Job) -> float:
    """Return the seconds from a notice until a job has certainly ended."""
    return notice_of(state, settings, job) + job.spec.kill_grace_s


def ends_by_limit(state: State, now: float, job: Job) -> float:
    """Return when a running job has ended for certain by its time limit and its grace, in seconds since the epoch.

    Infinity if the job has no limit, or should have ended already. The limit of a task that has not started yet begins
    when it starts.
    """
    ends_at = _end_of_limit(state, now, job)
    return ends_at if ends_at > now else inf


def _end_of_limit(state: State, now: float, job: Job) -> float:
    """Return when the time limit and grace of a job end, in seconds since the epoch; infinity without a limit."""
    started = [task.started_at or now for task in state.work.round_of(job)]
    if job.spec.timeout_s is None or not started:
        return inf
    return max(started) + job.spec.timeout_s + job.spec.kill_grace_s


def has_ended_by(state: State, now: float, held: Allocation, at: float) -> bool:
    """Return whether a launch has ended at a time, in seconds since the epoch; one that should have ended ends at once.

    An end that is under way, or that a notice announces, includes the grace; the time limit of a launch does not.
    """
    job = state.work.jobs.get(held.job_id) if held.job_id is not None and held.lasts_s is not None else None
    return (held.ends_at if job is None else max(_end_of_limit(state, now, job), now)) <= at


def _of_queue(tree: Tree, queue: str) -> float | None:
    """Return the notice time of a queue or the next one above it that sets one; None if none does."""
    specs = (tree.document.queues.get(path) for path in lineage(queue))
    return next((spec.notice_s for spec in specs if spec is not None and spec.notice_s is not None), None)
