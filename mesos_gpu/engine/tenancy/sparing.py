"""Who is not stopped for others though he borrows: a new document took his seat, and nobody said that he gives back."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.seat import Seat
from mesos_gpu.model.tenancy import QueueDocument

FOR_EVER: Final = 1e11  # seconds since the epoch


def spared(document: QueueDocument, since: float, job: Job, seat: Seat | None) -> float:
    """Until when a job is spared that has another seat now, or none. What hours take is given back at once: they were
    there to be read when it started.

    Args:
        document: The latest.
        since: When hours changed last, seconds since the epoch.
        job: As it was.
        seat: What it has now; None: it borrows. One that it had by an earlier document was taken by the latest.
    """
    if seat is not None or job.seat is None or job.seat.since > document.at or since > document.at:
        return job.spared_until
    return FOR_EVER if document.reclaim_at is None else document.reclaim_at


def shorten(turn: Turn, until: float) -> None:
    """Spare those that an earlier document had let borrow no longer than that."""
    for job in list(turn.state.work.jobs.values()):
        if job.spared_until > until:
            turn.show_job(replace(job, spared_until=until, version=job.version + 1))
