"""What a change of the tree of queues would do, as others see it. Amounts are thousandths of cost."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.why import RoomToCome


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """A queue in a pool, before a change and after it.

    Attributes:
        path: Of the queue.
        pool: Whose GPUs are divided.
        guarantee_before: What it is guaranteed now; None: it is not there.
        guarantee: What it would be; None: it would not be there.
        due_before: What it is due now; None: it is not there.
        due: What it would be due for what its jobs hold and wait for; None: it would not be there.
        if_asked: Of a queue that is new and takes jobs, what it would be due if all new ones asked for everything.
        held: What its jobs hold, and those of all queues below it.
        pending: What its jobs wait for that could run there.
    """

    path: str
    pool: str
    guarantee_before: int | None
    guarantee: int | None
    due_before: int | None
    due: int | None
    if_asked: int | None
    held: int
    pending: int

    @property
    def gains(self) -> int:
        """What it is due more than before; less: below 0."""
        return (self.due or 0) - (self.due_before or 0)

    @property
    def gives_back(self) -> int:
        """What of that which its jobs hold others would be due."""
        return 0 if self.due is None else max(0, self.held - self.due)


@dataclass(frozen=True, slots=True)
class PlannedReclaim:
    """Room that would be made for a job that waits."""

    taker: JobId
    queue: str  # of that
    room: RoomToCome


class PlannedKind(Enum):
    """Kind of work that a change of the queues blocks."""

    JOB = "job"
    APP = "app"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """Work that may start now, and that a change would let wait or refuse.

    Attributes:
        kind: Kind of the work.
        name: Id of a pending job or of an app, or a command as users write it.
        queue: Path of the queue of the work.
        reason: Reason for which the job would wait, or for which the command or an instance of the app would be
            refused.
    """

    kind: PlannedKind
    name: str
    queue: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What a change would do.

    Attributes:
        queues: All queues, by path and pool.
        borrowers: Running jobs that would no longer be within a guarantee.
        reclaims: Who would be stopped for whom, if those for whom no room is left gave back what they hold at once.
        blocks: Work that may start now and would wait or be refused.
    """

    queues: tuple[PlannedQueue, ...]
    borrowers: tuple[JobId, ...]
    reclaims: tuple[PlannedReclaim, ...] = ()
    blocks: tuple[PlannedBlock, ...] = ()
