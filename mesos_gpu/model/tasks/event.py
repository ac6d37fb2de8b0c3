"""What befalls jobs, budgets, cards, nodes and apps, for whoever listens."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.notice import Notice
from mesos_gpu.model.usage import BudgetUse

MAX_EVENTS: Final = 10_000  # that are remembered
_NO_JOB: Final = JobId("")


class EventKind(Enum):
    """What has happened."""

    NOTICE = "notice"  # its tasks are told that they are to end
    RECALL = "recall"  # they are told that they go on
    END = "end"  # the time of its notice has passed, and it is ended
    IDLE_WARNING = "idle_warning"  # its GPUs do nothing, and it is told what comes of that
    IDLE_OVER = "idle_over"  # after such a warning: nothing comes of it any more
    KEPT = "kept"  # somebody keeps it from being ended for that, until a time
    KEEP_ENDED = "keep_ended"
    CHECKPOINT = "checkpoint"  # it says that its work is kept
    BUDGET = "budget"  # a threshold of a budget is reached, or nothing is left of it
    SUBMITTED = "submitted"  # a job
    STARTED = "started"  # it runs
    REQUEUED = "requeued"  # it is back in its queue
    UNREACHABLE = "unreachable"  # its agent is cut off
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    GPU = "gpu"  # the health of a card has changed
    NODE = "node"  # an agent is lost, or there again
    DRAINED = "drained"  # a card or a node takes no more work, or has another deadline
    UNDRAINED = "undrained"
    BOOKING_MADE = "booking_made"
    BOOKING_MOVED = "booking_moved"  # it is another one: at another time, or of something else
    BOOKING_CHOSEN = "booking_chosen"  # its nodes
    BOOKING_STARTED = "booking_started"
    BOOKING_REPLACED = "booking_replaced"  # nodes of it, by others
    BOOKING_SHORT = "booking_short"  # nodes are lacking
    BOOKING_RETURNED = "booking_returned"  # nobody used it
    BOOKING_FAILED = "booking_failed"  # there were no nodes for it until its end
    BOOKING_ENDED = "booking_ended"
    BOOKING_CANCELLED = "booking_cancelled"
    DEPLOYMENT = "deployment"  # of apps: it begins, is overdue, is done, or is ended where it was


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
        words: Text of an event that has neither notice nor budget; else "".
    """

    number: int
    at: float
    kind: EventKind
    job_id: JobId
    notice: Notice | None = None
    budget: BudgetUse | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event as it is kept, and told to people and programs: what it is of need not be there any more.

    Attributes:
        number: Grows from one to the next, over restarts too.
        at: When, seconds since the epoch.
        kind: What.
        job_id: The job that it is of; "": none.
        owner: The proved name of who submitted that, as rights are asked for.
        user: Whom that is put down to.
        queue: That it is in; of a budget: whose that is.
        app: Of an app's instance: its app.
        message: Of a job: the latest thing that happened to it, for who may read it; else in words what has happened.
        exit_code: Of a job that has ended.
        node: A host's name.
        gpu: The UUID of a card.
        state: Of a card: its health; of a node: lost or up; of a deployment: begun, overdue, done or ended.
        deployment: The id of one.
        apps: Whom a deployment is of.
        notice, budget: As of `JobEvent`.
        notify: Where the job has asked for it to be told.
        booking: Of a booking: its id.
        array: Of a task of a job array: that.
    """

    number: int
    at: float
    kind: EventKind
    job_id: JobId = _NO_JOB
    owner: str = ""
    user: str = ""
    queue: str = ""
    app: str = ""
    message: str = ""
    exit_code: int | None = None
    node: str = ""
    gpu: str = ""
    state: str = ""
    deployment: str = ""
    apps: tuple[str, ...] = ()
    notice: Notice | None = None
    budget: BudgetUse | None = None
    notify: tuple[str, ...] = ()
    array: str = ""
    booking: str = ""


def recent() -> deque[JobEvent]:
    """Make room for the latest events, for whoever listens."""
    return deque(maxlen=MAX_EVENTS)
