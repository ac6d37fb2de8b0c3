"""What it costs to stop a job: the work that is done again, and more for one that was stopped before. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low


@dataclass(frozen=True, slots=True)
class Ran:
    """How long a job has run. Times are whole milliseconds.

    Attributes:
        since_start_ms: Since its start.
        since_checkpoint_ms: Since its work was kept last, by its own word; one that never said so: since its start.
        milli: What it holds, thousandths of cost.
        stopped: How often it was stopped for others.
    """

    since_start_ms: int
    since_checkpoint_ms: int
    milli: int
    stopped: int = 0


def ran(started_at: float | None, checkpoint_at: float | None, now: float, milli: int, stopped: int) -> Ran:
    """How long a job has run, from moments in seconds since the epoch; one that has not started has nothing to lose. A
    checkpoint that it says lies ahead is one of now."""
    if started_at is None:
        return Ran(0, 0, milli, stopped)
    since_start = max(round((now - started_at) * 1000), 0)
    if checkpoint_at is None:
        return Ran(since_start, since_start, milli, stopped)
    return Ran(since_start, min(since_start, max(round((now - checkpoint_at) * 1000), 0)), milli, stopped)


def least_ms(of_queue: Sequence[Ran]) -> int:
    """What a job of a queue counts at least as losing once it was stopped, whatever checkpoints it tells of: half of
    what the median of the queue's loses.

    Else who tells of a checkpoint each moment would be stopped each time, and would better keep silent. The first
    checkpoint that spares anybody work is worth all of it: who was never stopped for others has no such floor.
    """
    return median_low([each.since_checkpoint_ms for each in of_queue]) // 2 if of_queue else 0


def lost_milli_s(job: Ran, least: int, restart_ms: int) -> int:
    """Work that is done again if a job is stopped, thousandths of cost times seconds.

    Args:
        job: It.
        least: Of `least_ms`; it holds for a job that was stopped before.
        restart_ms: What it takes to be where it was, once it runs again.
    """
    lost = job.since_checkpoint_ms
    if job.stopped:
        lost = max(lost, min(job.since_start_ms, least))
    return (lost + restart_ms) * job.milli // 1000


def cost(job: Ran, least: int, restart_ms: int) -> int:
    """Work that is lost, times the square of how often it will have been stopped: nobody is hit again and again."""
    return lost_milli_s(job, least, restart_ms) * (1 + job.stopped) ** 2
