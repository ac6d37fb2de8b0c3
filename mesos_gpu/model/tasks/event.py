"""Events of jobs, budgets, GPUs, nodes and apps, for listeners."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.notice import Notice
from mesos_gpu.model.usage import BudgetUse

MAX_EVENTS: Final = 10_000  # events that are kept
_NO_JOB: Final = JobId("")


class EventKind(Enum):
    """Kind of an event."""

    NOTICE = "notice"  # a job's tasks get notice that they will be ended
    RECALL = "recall"  # a notice is withdrawn
    END = "end"  # a job is ended after its notice
    IDLE_WARNING = "idle_warning"  # a job is warned because its GPUs are idle
    IDLE_OVER = "idle_over"  # a warning about idle GPUs is withdrawn
    KEPT = "kept"  # a user protects an idle job from being ended, until a time
    KEEP_ENDED = "keep_ended"
    CHECKPOINT = "checkpoint"  # a job reports a checkpoint
    BUDGET = "budget"  # a threshold of a budget is reached, or it is used up
    SUBMITTED = "submitted"  # a job is submitted
    STARTED = "started"  # a job runs
    REQUEUED = "requeued"  # a job is back in its queue
    UNREACHABLE = "unreachable"  # the agent of a job is unreachable
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    GPU = "gpu"  # the health of a GPU has changed
    NODE = "node"  # an agent is lost, or back
    DRAINED = "drained"  # a GPU or node is drained, or the deadline of its drain changes
    UNDRAINED = "undrained"
    BOOKING_MADE = "booking_made"
    BOOKING_MOVED = "booking_moved"  # the time or the content of a booking is changed
    BOOKING_CHOSEN = "booking_chosen"  # nodes are chosen for a booking
    BOOKING_STARTED = "booking_started"
    BOOKING_REPLACED = "booking_replaced"  # nodes of a booking are replaced by others
    BOOKING_SHORT = "booking_short"  # a booking lacks nodes
    BOOKING_RETURNED = "booking_returned"  # an unused booking is given back
    BOOKING_FAILED = "booking_failed"  # a booking got no nodes until its end
    BOOKING_ENDED = "booking_ended"
    BOOKING_CANCELLED = "booking_cancelled"
    DEPLOYMENT = "deployment"  # a deployment of apps begins, is overdue, is done, or is stopped


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job or a budget, as the engine records it.

    Attributes:
        number: Number that grows with each event, across restarts as far as the clock does: the first event of a
            millisecond gets a number from its time since the epoch.
        at: Time of the event, seconds since the epoch.
        kind: Kind of the event.
        job_id: Id of the job; "" for an event of a budget.
        notice: Notice of the job, for events about it.
        budget: Use of the budget in its period, with the threshold that was reached.
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
    """An event as it is stored and sent to listeners, complete even if its subject no longer exists.

    Attributes:
        number: Number that grows with each event, across restarts.
        at: Time of the event, seconds since the epoch.
        kind: Kind of the event.
        job_id: Id of the job; "" for other events.
        owner: Proved name of the job's submitter, for checks of rights.
        user: User that the job is accounted to.
        queue: Queue of the job or of the budget.
        app: App of which the job is an instance.
        message: Last message of the job, for those who may read it; for other events their text.
        exit_code: Exit code of an ended job.
        node: Host name of a node.
        gpu: UUID of a GPU.
        state: Health of a GPU; lost or up for a node; begun, overdue, done or ended for a deployment.
        deployment: Id of a deployment.
        apps: Ids of the apps of a deployment.
        notice, budget: Details of a job's notice or a budget, as in `JobEvent`.
        notify: Receivers that the job's request names.
        booking: Id of a booking.
        array: Id of the array of which the job is a member.
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
    """Return an empty buffer for the latest events; it drops the oldest when full."""
    return deque(maxlen=MAX_EVENTS)
