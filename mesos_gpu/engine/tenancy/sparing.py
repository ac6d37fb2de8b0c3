"""Protection from reclaim for jobs that lost guaranteed admission to a new document without a time of giving back."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tenancy import QueueDocument

FOR_EVER: Final = 1e11  # a time that never comes, in seconds since the epoch


def spared(document: QueueDocument, since: float, job: Job, seat: GuaranteedAdmission | None) -> float:
    """Return until when a job is protected from reclaim that got another seat now, or lost its seat.

    What regular hours of queues take is given back at once, as they were known when the job started.

    Args:
        document: Latest document of queues.
        since: Time at which hours changed last, in seconds since the epoch.
        job: Job with its seat before.
        seat: New seat; None if the job borrows now, by the latest document if its old seat is from an earlier one.
    """
    if seat is not None or job.seat is None or job.seat.since > document.at or since > document.at:
        return job.spared_until
    return FOR_EVER if document.reclaim_at is None else document.reclaim_at


def shorten(turn: Turn, until: float) -> None:
    """End the protection of jobs from reclaim at a time at the latest."""
    for job in list(turn.state.work.jobs.values()):
        if job.spared_until > until:
            turn.show_job(replace(job, spared_until=until, version=job.version + 1))
