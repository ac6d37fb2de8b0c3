"""Who is served first. Pure.

A job's effective priority is its own, one more for each `aging_step_s` since its submission, and never more
than the highest that anybody can ask for. So a job waits behind later ones for a bounded time: once it is at
the ceiling, only what was submitted before it can stand before it.
"""

from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job


def effective_priority(priority: int, waited_s: float, aging_step_s: float) -> int:
    """Priority with what waiting has added; `aging_step_s` may be infinite: then nothing is added."""
    if waited_s < aging_step_s:
        return priority
    return min(priority + int(waited_s // aging_step_s), HIGHEST_PRIORITY)


def in_line_since(job: Job) -> float:
    """The time from which a job's waiting counts, seconds since the epoch."""
    return job.submitted_at if job.in_line_since is None else job.in_line_since
