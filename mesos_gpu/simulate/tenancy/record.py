"""Record of the jobs of a run, in one form for all policies: all figures are computed from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Time in which a job held its GPUs, in seconds from the start of the trace."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """Stop of a job.

    Attributes:
        job_id: Job that was stopped.
        at_s: Time of its notice, from the start of the trace.
        for_job: Job that was to get its GPUs; None if it was moved to join free GPUs on one node.
        lost_s: Time of work that must be done again, plus the cost of the next start.
        lost_gpu_s: `lost_s` times the job's GPUs.
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
        ended_s: End of each job, by job id.
        spans: Times in which each job held its GPUs, in order.
        stopped: Stops of jobs, in order.
    """

    policy: str
    ended_s: Mapping[str, float]
    spans: Mapping[str, Sequence[Span]]
    stopped: Sequence[Stopped]
