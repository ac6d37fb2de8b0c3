"""What befalls running jobs, and budgets, for whoever listens."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.notice import Notice
from mesos_gpu.model.usage import BudgetUse

MOST_EVENTS: Final = 10_000  # that are remembered


class EventKind(Enum):
    """What has happened."""

    NOTICE = "notice"  # its tasks are told that they are to end
    RECALL = "recall"  # they are told that they go on
    END = "end"  # the time of its notice has passed, and it is ended
    CHECKPOINT = "checkpoint"  # it says that its work is kept
    BUDGET = "budget"  # a threshold of a budget is reached, or nothing is left of it


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that has befallen a job, or a budget.

    Attributes:
        number: Grows from one event to the next, over restarts too as far as the clock does: the first of a
            millisecond has its number since the epoch.
        at: When, seconds since the epoch.
        kind: What.
        job_id: Whom; "": a budget.
        notice: The job's, if that is what it is about.
        budget: The period of the budget, with the threshold that it has reached.
    """

    number: int
    at: float
    kind: EventKind
    job_id: JobId
    notice: Notice | None = None
    budget: BudgetUse | None = None


def recent() -> deque[JobEvent]:
    """Make room for the latest events, for whoever listens."""
    return deque(maxlen=MOST_EVENTS)
