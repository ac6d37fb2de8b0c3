"""How long before its end a job is told of it, and when it has ended for certain."""

from math import inf

from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.capacity.node import Allocation
from mesos_gpu.policy.tenancy.tree import Tree, lineage


def notice_of(state: State, settings: Settings, job: Job) -> float:
    """Seconds from a notice to SIGTERM. What the job asks for, and if it asks for nothing what its queue gives; never
    more than its queue gives, where the document says that for it or a queue above."""
    given_s = _of_queue(state.quota.tree, job.spec.queue)
    asked_s = job.spec.notice_s
    if given_s is None:
        return min(asked_s or 0.0, settings.tasks.most_notice_s)
    return given_s if asked_s is None else min(asked_s, given_s)


def lead_of(state: State, settings: Settings, job: Job) -> float:
    """Seconds from a notice until a job has ended for certain."""
    return notice_of(state, settings, job) + job.spec.kill_grace_s


def ends_by_limit(state: State, now: float, job: Job) -> float:
    """Return when a running job has ended for certain by its time limit and its grace, in seconds since the epoch.

    Infinity if the job has no limit, or should have ended already. The limit of a task that has not started yet begins
    when it starts.
    """
    ends_at = _end_of_limit(state, now, job)
    return ends_at if ends_at > now else inf


def _end_of_limit(state: State, now: float, job: Job) -> float:
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
    specs = (tree.document.queues.get(path) for path in lineage(queue))
    return next((spec.notice_s for spec in specs if spec is not None and spec.notice_s is not None), None)
