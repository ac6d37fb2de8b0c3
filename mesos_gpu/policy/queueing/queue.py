"""Priority of waiting jobs. Pure.

A job's effective priority is its own plus one for each `aging_step_s` since its submission, and never more than the
highest priority that a user can request. So a job waits behind later ones for a limited time: once it has the highest
priority, only jobs that were submitted before it can go before it.
"""

from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job


def effective_priority(priority: int, waited_s: float, aging_step_s: float) -> int:
    """Return the priority with the increase for waiting; with an infinite `aging_step_s` there is no increase."""
    if waited_s < aging_step_s:
        return priority
    return min(priority + int(waited_s // aging_step_s), HIGHEST_PRIORITY)


def in_line_since(job: Job) -> float:
    """Return the time from which a job's waiting counts, seconds since the epoch."""
    return job.submitted_at if job.in_line_since is None else job.in_line_since
