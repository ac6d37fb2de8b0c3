"""Guaranteed admission of a running job: the part of a queue's guarantee that it occupies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuaranteedAdmission:
    """Part of a queue's guarantee that a job's GPUs occupy, on whichever nodes. Other queues do not preempt such a job.

    A guarantee of shapes has one cell for each node of a shape; a guarantee of a number of GPUs is one cell. Tasks are
    assigned to cells as if the queue were alone on such nodes.

    Attributes:
        queue: Path of the queue that has the guarantee: the job's queue or one above it.
        pool: Pool of the guarantee.
        cells: Number of the cell of each task, by rank.
        milli: Amount that each task takes of its cell, thousandths of cost.
        since: Time of the admission, seconds since the epoch.
    """

    queue: str
    pool: str
    cells: tuple[int, ...]
    milli: int
    since: float
