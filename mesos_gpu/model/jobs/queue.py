"""Pending jobs and queues, for users."""

from dataclasses import dataclass

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated start of a job, with its basis."""

    at: float | None  # seconds since the epoch; None if unknown, then `basis` says why
    basis: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Reservation for a blocked job, which later jobs may not use."""

    hostname: str | None  # None if only a part of its queue's limit is reserved
    gpus: tuple[GpuId, ...]
    at: float | None  # latest start of the job; None if unknown


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job with its position in the queue order."""

    job: Job
    position: int  # from 0
    effective_priority: int  # including the increase by waiting
    kept: Kept | None
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class QueueUse:
    """Limit and use of one queue."""

    name: str
    limit_gpus: int | None  # None for no limit
    used_gpus: float  # GPUs of its starting and running jobs, shares as fractions
    waiting: int
    # Begin of the longest wait, seconds since the epoch; None if no job waits.
    waiting_since: float | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """Repeated ends of an app's instances by themselves. Times are seconds since the epoch."""

    in_a_row: int  # number of successive ends, as far as they are recorded
    last: Job
    next_at: float | None  # earliest start of the next instance; None without delay


@dataclass(frozen=True, slots=True)
class LaunchDelay:
    """Delay of an app's launches after failures: no instance starts before `until`."""

    missing: int
    since: float  # begin of the delay, seconds since the epoch like `until`
    until: float
