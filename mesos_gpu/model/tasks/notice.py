"""What a task is told before it is ended for something that is not its own doing."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import JobId


class NoticeReason(Enum):
    """Why a task is to end."""

    RECLAIM = "reclaim"  # somebody is owed its GPUs
    PREEMPTION = "preemption"  # a job of higher priority takes its place
    TIME_LIMIT = "time_limit"  # its own
    BUDGET = "budget"  # a budget that it is charged to is used up
    DRAIN = "drain"  # its node, card or queue is taken out
    IDLE = "idle"  # its GPUs do nothing
    CALENDAR = "calendar"  # hours or a booking begin or end


@dataclass(frozen=True, slots=True)
class Notice:
    """A task's notice, as the scheduler keeps it. Times are seconds since the epoch.

    Attributes:
        number: Grows with each notice, and each recall, of the task, from 1.
        reason: Why it is to end.
        why: The same in words, with who gains by it.
        at: When it was given.
        until: When the task is ended if it still runs.
        by: The job that it makes room for; None: no job.
        recalled_at: When it was called off; None: it stands.
        told: The number of the latest that the executor says its task can read; 0: none.
        final: The job ends with it, and does not go back to its queue.
        warning: It only says what comes if nothing changes: the task is not to end yet.
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
        """Whether the task is to end."""
        return self.recalled_at is None and not self.warning


@dataclass(frozen=True, slots=True)
class ComingEnd:
    """End of a running job that is known before it comes.

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
