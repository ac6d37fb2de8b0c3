"""What happened to the jobs in a run, in one form for all policies: figures are made of this alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A job held its GPUs."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job was stopped.

    Attributes:
        job_id: It.
        at_s: When it was told.
        for_job: Who was to have its room; None: it is moved, to make one place of two.
        lost_s: Work that is done again, and what its next start takes.
        lost_gpu_s: The same, of all its GPUs together.
    """

    job_id: str
    at_s: float
    for_job: str | None
    lost_s: float
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """A run of a policy.

    Attributes:
        policy: Its name.
        ended_s: When each job ended.
        spans: When each held its GPUs, in order.
        stopped: In order.
    """

    policy: str
    ended_s: Mapping[str, float]
    spans: Mapping[str, Sequence[Span]]
    stopped: Sequence[Stopped]
