"""Why a job waits, as data."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.queue import Estimate


class Stage(Enum):
    """What can keep a job off an agent, in the order in which it is asked."""

    DRAINED = "drained"
    LOST = "lost"
    UNREPORTED = "unreported"  # its GPUs are not known, or no longer
    CONSTRAINT = "constraint"
    SCARCE = "scarce"  # it has GPUs, and they are for work that needs them
    DRIVER = "driver"
    MODEL = "model"
    SIZE = "size"  # fewer GPUs, whoever uses them
    MEMORY = "memory"  # of each GPU
    COMPUTE_CAPABILITY = "compute_capability"
    ISOLATION = "isolation"  # its cards cannot be shared as is asked for
    HEALTH = "health"
    CPUS = "cpus"
    MEM = "mem"
    DISK = "disk"
    PORTS = "ports"
    GPUS = "gpus"  # in use
    FRAGMENTATION = "fragmentation"  # in use, and all agents together have enough that are not
    PACE = "pace"  # the node's launch window is full, or the node is backed off
    OFFER = "offer"  # none of it is held
    KEPT = "kept"  # for a job before it
    TASKS = "tasks"  # there is room for some of its tasks only
    HOLD = "hold"  # its queue, or one above it, starts nothing
    CLASS = "class"  # its class is not for its queue any more
    POOL = "pool"  # not for it, or none that it may use has room in its limits
    QUEUE_LIMIT = "queue-limit"  # of its queue or one above it
    USER_LIMIT = "user-limit"  # of its user
    BUDGET = "budget"  # one that it is charged to is used up
    BOOKING = "booking"  # its booking has not begun, or has no GPUs left
    GUARANTEE = (
        "guarantee"  # room is made there; or it may not borrow, and what its queue is guaranteed is in use
    )


#: What keeps it waiting though there be room.
OF_LIMITS: Final = (
    Stage.HOLD, Stage.CLASS, Stage.POOL, Stage.QUEUE_LIMIT, Stage.USER_LIMIT, Stage.BUDGET,
    Stage.BOOKING, Stage.GUARANTEE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Removed:
    """The agents that one stage removed."""

    reason: Stage
    removed: int
    left: int  # after it
    example: str  # one of them, and why, in words


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """What keeps a job off one node; no reasons: it would fit there."""

    hostname: str
    agent_id: AgentId
    reasons: tuple[str, ...]
    stage: Stage | None = None  # of the first of them


@dataclass(frozen=True, slots=True)
class Nearest:
    """The node that lacks least, and what."""

    hostname: str
    missing: str


@dataclass(frozen=True, slots=True)
class Giver:
    """Jobs of one queue that end to make room, and the thousandths of GPUs that they hold."""

    queue: str
    jobs: tuple[JobId, ...]
    gpus_milli: int


@dataclass(frozen=True, slots=True)
class RoomToCome:
    """Room that will be made for a job that waits, as things stand.

    Attributes:
        givers: Who ends for it, by queue.
        at: When they are told, seconds since the epoch.
        until: When they have ended at the latest.
        after: What passes before they are told, in words; "": nothing.
        on: The nodes where the room will be.
    """

    givers: tuple[Giver, ...]
    at: float
    until: float
    after: str = ""
    on: tuple[AgentId, ...] = ()


@dataclass(frozen=True, slots=True)
class Owed:
    """What of a queue's guarantee a job that waits has, or would have.

    Attributes:
        queue: Whose guarantee it is: the job's queue, or one above it.
        seated: Whether a part of it is the job's as soon as it runs.
        in_nodes: Whether it is of whole nodes, and not a number of GPUs that may lie in pieces.
        seated_milli: Thousandths of GPUs of the nodes that may serve it that jobs within guarantees hold.
        spared_milli: Of those, what others hold who are not stopped for it.
        room: What is going to be made for it; None: nothing is known.
        too_large: Whether it asks for more than a seat can be, were nothing of the guarantee taken.
    """

    queue: str
    seated: bool
    in_nodes: bool
    seated_milli: int = 0
    spared_milli: int = 0
    room: RoomToCome | None = None
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """The answer to "why does it not run"."""

    job_id: JobId
    state: JobState
    summary: str  # one sentence
    queue_position: int | None  # from 0; None: not pending
    can_ever_run: bool
    nodes: tuple[NodeReasons, ...] = ()
    nearest: Nearest | None = None
    estimate: Estimate | None = None  # None: not pending
    funnel: tuple[Removed, ...] = ()  # only stages that removed something, in order
    tasks_fit: int | None = (
        None  # how many tasks of a job of several there is room for; None: it has one task
    )


class Verdict(Enum):
    """Fate of a job that is submitted now."""

    FITS = "fits"  # the next match would launch it
    WAITS = "waits"
    NEVER = "never"  # on the nodes that there are


@dataclass(frozen=True, slots=True)
class Relief:
    """A change of one field by which a job that can never run could run.

    Attributes:
        key: Name of the field in JSON.
        value: The most that it may be; None if it has to be left out.
    """

    key: str
    value: int | None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Fate of a job that is submitted now; of an array, of its first task.

    Attributes:
        verdict: Whether it fits now, waits, or can never run.
        why: The answer to "why does it not run" right after the submission.
        hostnames: Nodes that have room for it now, or for a task of it; empty unless it fits.
        reliefs: Changes of one field each by which it could run; empty unless it can never run.
    """

    verdict: Verdict
    why: Why
    hostnames: tuple[str, ...] = ()
    reliefs: tuple[Relief, ...] = ()
