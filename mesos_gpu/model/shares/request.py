"""Request of a job for a part of a card."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.shares.units import WHOLE


class Isolation(Enum):
    """Weakest enforcement of its share that a job accepts."""

    STRICT = "strict"  # memory by hardware, kernel or driver; faults of other owners' tasks do not end it
    SHARED = "shared"  # memory and compute are limited, at least by the CUDA library that the task gets
    ANY = "any"  # time slices are enough; nothing limits memory


class OnExcess(Enum):
    """Action against a task that uses more memory than its share, if only its CUDA library enforces the limit."""

    IGNORE = "ignore"
    WARN = "warn"  # the job's message tells it
    END = "end"  # the task is warned, then ended


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """Request of one task for a part of each of its cards.

    Attributes:
        compute_milli: Thousandths of the compute, 1 to 1000; with 1000 only memory is shared.
        memory_milli: Thousandths of the memory that the card has for shares; 0 if `memory_mib` has the amount.
        memory_mib: Memory in MiB; None if `memory_milli` has the amount.
        memory_max_mib: Most memory that it may use while no other task needs it; None for no more than its share.
        isolation: Weakest accepted enforcement.
        across_users: Whether it may share an MPS server with shares of other users, if its host also permits that.
    """

    compute_milli: int
    memory_milli: int = 0
    memory_mib: int | None = None
    memory_max_mib: int | None = None
    isolation: Isolation = Isolation.SHARED
    across_users: bool = False

    def memory_of(self, capacity_mib: int) -> int:
        """Return the requested memory in MiB on a card with a given capacity for shares. It is rounded down, so that as
        many shares fit as the fraction says."""
        return capacity_mib * self.memory_milli // WHOLE if self.memory_mib is None else self.memory_mib
