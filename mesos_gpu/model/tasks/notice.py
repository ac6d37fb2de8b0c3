"""Notices to tasks before they are ended for a reason outside of the job."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import JobId


class NoticeReason(Enum):
    """Reason why a task will be ended."""

    RECLAIM = "reclaim"  # a queue reclaims its guarantee
    PREEMPTION = "preemption"  # a job of higher priority needs its GPUs
    TIME_LIMIT = "time_limit"  # the time limit of the job
    BUDGET = "budget"  # a budget that it is charged to is used up
    DRAIN = "drain"  # its node, GPU or queue is drained
    IDLE = "idle"  # its GPUs are idle
    CALENDAR = "calendar"  # hours of queues or a booking begin or end


@dataclass(frozen=True, slots=True)
class Notice:
    """A task's notice in the scheduler's state. Times are seconds since the epoch.

    Attributes:
        number: Number that grows with each notice and each recall for the task, from 1.
        reason: Reason why the task will be ended.
        why: Reason as text, with the job or queue that benefits.
        at: Time of the notice.
        until: Time at which the task is ended if it still runs.
        by: Id of the job for which the GPUs are freed; None if for no job.
        recalled_at: Time of the recall; None if the notice stands.
        told: Number of the latest notice that the task can read, as its executor reports; 0 for none.
        final: Whether the job ends for good, and is not requeued.
        warning: Whether it only announces what will happen without a change: the task will not be ended yet.
    """

    number: int
    reason: NoticeReason
    why: str
    at: float
    until: float
    by: JobId | None = None
    recalled_at: float | None = None
    told: int = 0
    final: bool = False
    warning: bool = False

    @property
    def stands(self) -> bool:
        """Whether the task will be ended."""
        return self.recalled_at is None and not self.warning


@dataclass(frozen=True, slots=True)
class ComingEnd:
    """Expected end of a running job.

    Attributes:
        at: Moment at which the job is ended if it still runs, in seconds since the epoch.
        reason: Cause of the end.
        why: Cause of the end in words, as "node n1 was drained by ann: new kernel".
        then: Fate of the job after that, in words.
    """

    at: float
    reason: NoticeReason
    why: str
    then: str
