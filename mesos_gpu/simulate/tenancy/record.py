"""Record of a run, the same for all policies: when jobs held GPUs, ended and were stopped. All figures use only it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Time span in which a job held its GPUs."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """Stop of a job.

    Attributes:
        job_id: Job that was stopped.
        at_s: Time at which it was told to end.
        for_job: Job that was to get its room; None if the job was moved to join free room.
        lost_s: Seconds of work to repeat and of the next start.
        lost_gpu_s: `lost_s` multiplied by the GPUs of the job.
    """

    job_id: str
    at_s: float
    for_job: str | None
    lost_s: float
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a run of one policy.

    Attributes:
        policy: Name of the policy.
        ended_s: End of each job by its id, in seconds since the begin of the run.
        spans: Time spans in which each job held its GPUs, in order.
        stopped: Stops of jobs, in order.
    """

    policy: str
    ended_s: Mapping[str, float]
    spans: Mapping[str, Sequence[Span]]
    stopped: Sequence[Stopped]
