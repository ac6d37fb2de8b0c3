"""The part of a queue's guarantee that a job has while it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """Room that a queue is guaranteed, taken by a job's GPUs, wherever these are: nobody stops a job that has one.

    A queue that is guaranteed shapes has a cell for each of their nodes; one that is guaranteed a number of GPUs has
    one cell of them all. The tasks of a job have their places in cells as if the queue were alone on such nodes.

    Attributes:
        queue: The path of the queue whose guarantee it is: the job's, or one above it.
        pool: Whose nodes are meant.
        cells: The number of the cell of each of its tasks, by rank.
        milli: What each task takes of its cell, thousandths of cost.
        since: When it was taken, seconds since the epoch.
    """

    queue: str
    pool: str
    cells: tuple[int, ...]
    milli: int
    since: float
