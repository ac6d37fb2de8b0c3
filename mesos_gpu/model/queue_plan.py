"""Preview of a change of the queue tree, for users. Amounts are thousandths of cost."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.why import PendingReclaim


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """Figures of a queue in one pool, before and after a change.

    Attributes:
        path: Path of the queue.
        pool: Pool whose GPUs are divided.
        guarantee_before: Guarantee now; None if the queue does not exist.
        guarantee: Guarantee after the change; None if the queue would not exist.
        due_before: Fair share now; None if the queue does not exist.
        due: Fair share after the change, for what its jobs hold and wait for; None if the queue would not exist.
        if_asked: Fair share of a new queue that takes jobs, if all new queues had unlimited demand; else None.
        held: Amount held by jobs of the queue and of all queues below it.
        pending: Demand of waiting jobs that could run in the pool.
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
        """Increase of the fair share; negative if it falls."""
        return (self.due or 0) - (self.due_before or 0)

    @property
    def gives_back(self) -> int:
        """Amount that its jobs hold beyond the fair share after the change."""
        return 0 if self.due is None else max(0, self.held - self.due)


@dataclass(frozen=True, slots=True)
class PlannedReclaim:
    """Capacity that reclaim would free for a waiting job."""

    taker: JobId
    queue: str  # of `taker`
    room: PendingReclaim


class PlannedKind(Enum):
    """Kind of work that a change of the queues blocks."""

    JOB = "job"
    APP = "app"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """Work that may start now, and that a change would delay or refuse.

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
    """Effects of a change of the queue tree.

    Attributes:
        queues: Figures of all queues, by path and pool.
        borrowers: Running jobs that would no longer be within a guarantee.
        reclaims: Reclaims that would follow for waiting jobs, if jobs without guaranteed capacity were ended at once.
        blocks: Work that may start now and would wait or be refused after the change.
    """

    queues: tuple[PlannedQueue, ...]
    borrowers: tuple[JobId, ...]
    reclaims: tuple[PlannedReclaim, ...] = ()
    blocks: tuple[PlannedBlock, ...] = ()
