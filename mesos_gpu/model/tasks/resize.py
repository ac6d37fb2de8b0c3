"""A change of a running task's share: what its executor is asked for, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.shares.share import Share


@dataclass(frozen=True, slots=True)
class Resize:
    """What a task shall have of each of its GPUs from now on. It may be asked for more than once: the highest number
    counts, and one that was done is answered again.

    Attributes:
        number: Grows with each request of the task, from 1; 0: nothing is to change, it is to say what it has.
        memory_mib, memory_max_mib, compute_milli: As of a `Share`.
    """

    number: int
    memory_mib: int
    memory_max_mib: int
    compute_milli: int


@dataclass(frozen=True, slots=True)
class Resized:
    """What came of it.

    Attributes:
        number: Of the request that is answered.
        memory_mib, memory_max_mib, compute_milli: What the task has of each GPU now, be it changed or not.
        refused: Why nothing was changed, for people; "": all of it is done.
        used_mib: The memory that the task uses, where that is more than it would have had.
        restart: Whether the task could have it if it started again.
    """

    number: int
    memory_mib: int
    memory_max_mib: int
    compute_milli: int
    refused: str = ""
    used_mib: int | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Resizing:
    """A resize of a task's share as the scheduler keeps it: the latest that was asked for. Times are seconds since the
    epoch.

    Attributes:
        number: As of `Resize`; 0: it is asked only what it has, and nothing is to change.
        share: What the task is to have.
        before: What it had; of one that undoes another, what it may have got by that.
        since: When it was asked for.
        patch: What its job asks for of each GPU once all its tasks have it, by the names of its fields.
        restart: Whether the job is to start again if it cannot be changed while it runs.
        restartable: Whether its executor says that this would do.
        back: Whether it only undoes one that another task of the gang could not follow, or that was withdrawn.
        withdrawn: Whether it undoes one that was withdrawn.
        sent_at: When its executor was last asked; None: it was not.
        answered: Whether its executor has answered.
        refused: Why the executor did not do it; "": it did, or has not answered.
        used_mib: As of `Resized`.
    """

    number: int
    share: Share
    before: Share
    since: float
    patch: Mapping[str, int | None] = field(default_factory=dict)
    restart: bool = False
    restartable: bool = False
    back: bool = False
    withdrawn: bool = False
    sent_at: float | None = None
    answered: bool = False
    refused: str = ""
    used_mib: int | None = None

    @property
    def pending(self) -> bool:
        """Whether its executor may still do it."""
        return not self.answered
