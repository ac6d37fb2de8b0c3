"""Explanations why a job waits, as data."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.queue import Estimate


class Stage(Enum):
    """A check that can exclude an agent for a job, in the order of the checks."""

    DRAINED = "drained"
    LOST = "lost"
    UNREPORTED = "unreported"  # its GPUs are not known (any more)
    CONSTRAINT = "constraint"
    SCARCE = "scarce"  # its GPUs are for work that needs GPUs
    DRIVER = "driver"
    MODEL = "model"
    SIZE = "size"  # it has fewer GPUs in total
    MEMORY = "memory"  # memory of each GPU
    COMPUTE_CAPABILITY = "compute_capability"
    ISOLATION = "isolation"  # its GPUs cannot be shared as requested
    HEALTH = "health"
    CPUS = "cpus"
    MEM = "mem"
    DISK = "disk"
    PORTS = "ports"
    GPUS = "gpus"  # GPUs are in use
    FRAGMENTATION = "fragmentation"  # GPUs are in use, but all agents together have enough free ones
    PACE = "pace"  # the node's launch window is full, or launches on it are delayed
    OFFER = "offer"  # no offer of it is held
    KEPT = "kept"  # reserved for an earlier job
    TASKS = "tasks"  # only some of its tasks fit
    HOLD = "hold"  # its queue, or one above it, is stopped
    CLASS = "class"  # its class may no longer be used in its queue
    POOL = "pool"  # it may not use the pool, or its pools have reached limits
    QUEUE_LIMIT = "queue-limit"  # limit of its queue or one above it
    USER_LIMIT = "user-limit"  # limit of its user
    BUDGET = "budget"  # a budget that it is charged to is used up
    BOOKING = "booking"  # its booking has not begun, or has no free GPUs
    # Capacity is being freed; or it may not borrow, and its queue's guarantee is in use.
    GUARANTEE = "guarantee"


#: Stages of limits, which make a job wait even if nodes have free capacity.
OF_LIMITS: Final = (
    Stage.HOLD, Stage.CLASS, Stage.POOL, Stage.QUEUE_LIMIT, Stage.USER_LIMIT, Stage.BUDGET,
    Stage.BOOKING, Stage.GUARANTEE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Removed:
    """Agents that one stage excluded."""

    reason: Stage
    removed: int
    left: int  # number of agents left after the stage
    example: str  # one excluded agent with the reason, as text


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """Reasons why a job does not fit one node; without reasons it would fit."""

    hostname: str
    agent_id: AgentId
    reasons: tuple[str, ...]
    stage: Stage | None = None  # stage of the first reason


@dataclass(frozen=True, slots=True)
class Nearest:
    """The node that lacks least for a job, with what it lacks."""

    hostname: str
    missing: str


@dataclass(frozen=True, slots=True)
class VictimGroup:
    """Jobs of one queue that will be preempted for a job, with the thousandths of GPUs that they hold."""

    queue: str
    jobs: tuple[JobId, ...]
    gpus_milli: int


@dataclass(frozen=True, slots=True)
class PendingReclaim:
    """Capacity that will be freed for a waiting job, as things stand.

    Attributes:
        givers: Jobs that will be preempted for it, by queue.
        at: Time at which they get notice, seconds since the epoch.
        until: Latest time at which they have ended.
        after: Condition or delay before the notice, as text; "" for none.
        on: Nodes on which the capacity will be free.
    """

    givers: tuple[VictimGroup, ...]
    at: float
    until: float
    after: str = ""
    on: tuple[AgentId, ...] = ()


@dataclass(frozen=True, slots=True)
class GuaranteeShare:
    """Part of a queue's guarantee that a waiting job has, or would have.

    Attributes:
        queue: Queue that has the guarantee: the job's queue, or one above it.
        seated: Whether the job will have guaranteed capacity as soon as it runs.
        in_nodes: Whether the guarantee is of whole nodes, instead of any GPUs.
        seated_milli: Thousandths of GPUs on suitable nodes that jobs within guarantees hold.
        spared_milli: Thousandths of GPUs on suitable nodes that other protected jobs hold.
        room: Capacity that will be freed for it; None if nothing is known.
        too_large: Whether it requests more than the guarantee can hold even if unused.
    """

    queue: str
    seated: bool
    in_nodes: bool
    seated_milli: int = 0
    spared_milli: int = 0
    room: PendingReclaim | None = None
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """Explanation why a job does not run."""

    job_id: JobId
    state: JobState
    summary: str  # one sentence
    queue_position: int | None  # from 0; None if not pending
    can_ever_run: bool
    nodes: tuple[NodeReasons, ...] = ()
    nearest: Nearest | None = None
    estimate: Estimate | None = None  # None if not pending
    funnel: tuple[Removed, ...] = ()  # stages that excluded agents, in order
    tasks_fit: int | None = None  # number of a gang's tasks that fit; None for a job of one task


class Verdict(Enum):
    """Outcome for a job that is submitted now."""

    FITS = "fits"  # the next match would launch it
    WAITS = "waits"
    NEVER = "never"  # not on the existing nodes


@dataclass(frozen=True, slots=True)
class Relief:
    """A change of one field by which a job that can never run could run.

    Attributes:
        key: Name of the field in JSON.
        value: Highest value with which it could run; None if the field must be left out.
    """

    key: str
    value: int | None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Outcome for a job that is submitted now; for an array, for its first task.

    Attributes:
        verdict: Whether it fits now, waits, or can never run.
        why: Explanation why it does not run, right after submission.
        hostnames: Nodes with capacity for it, or for one of its tasks; empty unless it fits.
        reliefs: Changes of one field each by which it could run; empty unless it can never run.
    """

    verdict: Verdict
    why: Why
    hostnames: tuple[str, ...] = ()
    reliefs: tuple[Relief, ...] = ()
