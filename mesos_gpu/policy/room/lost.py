"""Cost of ending a job: the work that must be repeated, weighted for jobs that were ended before. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low


@dataclass(frozen=True, slots=True)
class Ran:
    """The time for which a job has run, in whole milliseconds.

    Attributes:
        since_start_ms: Time since its start.
        since_checkpoint_ms: Time since its latest checkpoint; since its start if it has reported none.
        milli: Cost of its GPUs, in thousandths.
        stopped: Number of times that it was ended for others.
    """

    since_start_ms: int
    since_checkpoint_ms: int
    milli: int
    stopped: int = 0


def ran(started_at: float | None, checkpoint_at: float | None, now: float, milli: int, stopped: int) -> Ran:
    """Return the time for which a job has run, which is 0 for a job that has not started.

    Args:
        started_at: Start in seconds since the epoch; None if some of its tasks do not run yet.
        checkpoint_at: Latest checkpoint in seconds since the epoch; a later moment than now counts as now.
        now: Seconds since the epoch.
        milli: Cost of its GPUs, in thousandths.
        stopped: Number of times that it was ended for others.
    """
    if started_at is None:
        return Ran(0, 0, milli, stopped)
    since_start = max(round((now - started_at) * 1000), 0)
    if checkpoint_at is None:
        return Ran(since_start, since_start, milli, stopped)
    return Ran(since_start, min(since_start, max(round((now - checkpoint_at) * 1000), 0)), milli, stopped)


def least_ms(of_queue: Sequence[Ran]) -> int:
    """Return the least loss that is assumed for a job that was ended before: half the median loss of its queue.

    The loss is in milliseconds. Without it, a job that checkpoints all the time would be ended each time, and would do
    better to report no checkpoints. A job that was never ended for others has no least loss: its checkpoints count in
    full.
    """
    return median_low([job.since_checkpoint_ms for job in of_queue]) // 2 if of_queue else 0


def lost_milli_s(job: Ran, least: int, restart_ms: int) -> int:
    """Return the work that must be repeated if a job is ended, in thousandths of cost times seconds.

    Args:
        job: Run times of the job.
        least: Least loss in milliseconds, from `least_ms`, for a job that was ended before.
        restart_ms: Time from its next start until it is where it was, in milliseconds.
    """
    lost = job.since_checkpoint_ms
    if job.stopped:
        lost = max(lost, min(job.since_start_ms, least))
    return (lost + restart_ms) * job.milli // 1000


def cost(job: Ran, least: int, restart_ms: int) -> int:
    """Return the lost work times (1 + number of earlier ends) squared, which protects a job from repeated ends."""
    return lost_milli_s(job, least, restart_ms) * (1 + job.stopped) ** 2
