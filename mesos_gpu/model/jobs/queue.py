"""The queue as others see it."""

from dataclasses import dataclass

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job can start, and what that follows from."""

    at: float | None  # seconds since the epoch; None: nothing is known, and `basis` says why
    basis: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What no later job may take from one that is blocked."""

    hostname: str | None  # None: no node, only a share of its queue's limit
    gpus: tuple[GpuId, ...]
    at: float | None  # when it can start at the latest; None: nobody knows


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job at its place."""

    job: Job
    position: int  # from 0
    effective_priority: int  # with what waiting has added
    kept: Kept | None
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class QueueUse:
    """A queue: its limit, and what it holds."""

    name: str
    limit_gpus: int | None  # None: no limit
    used_gpus: float  # of its jobs that start or run, shares as parts of one
    waiting: int
    waiting_since: float | None = None  # the longest, seconds since the epoch; None: none waits


@dataclass(frozen=True, slots=True)
class Ends:
    """That an app's instances end by themselves, one after the other. Times are seconds since the epoch."""

    in_a_row: int  # at most as many as are remembered
    last: Job
    next_at: float | None  # when the next may start; None: nothing delays it


@dataclass(frozen=True, slots=True)
class LaunchDelay:
    """Why an app has fewer instances than it wants: some failed, and none starts before `until`."""

    missing: int
    since: float  # seconds since the epoch, as `until`
    until: float
