"""What a job asks for of a card that it does not need whole."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.shares.units import WHOLE


class Isolation(Enum):
    """The least that a job accepts as enforcement of its share."""

    STRICT = "strict"  # memory by hardware, kernel or driver; no fate shared with another owner
    SHARED = "shared"  # memory and compute are limited, if only by the CUDA library that the task gets
    ANY = "any"  # equal turns will do: nothing limits its memory


class OnExcess(Enum):
    """What is done about a task that uses more memory than its share, where its own libraries alone keep that."""

    IGNORE = "ignore"
    WARN = "warn"  # its job says so
    END = "end"  # and then it is ended


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """What one task asks for of each of its cards, where that is not the whole card.

    Attributes:
        compute_milli: Thousandths of its compute, 1 to 1000; 1000: only its memory is shared out.
        memory_milli: Thousandths of the memory that the card has for shares; 0: `memory_mib` says it.
        memory_mib: The memory in MiB; None: `memory_milli` says it.
        memory_max_mib: The most that it may use while nobody else needs it; None: no more than its share.
        isolation: The least that will do.
        across_users: Whether it may share a server of MPS with other users' shares, where its host permits that, too.
    """

    compute_milli: int
    memory_milli: int = 0
    memory_mib: int | None = None
    memory_max_mib: int | None = None
    isolation: Isolation = Isolation.SHARED
    across_users: bool = False

    def memory_of(self, capacity_mib: int) -> int:
        """The memory that it asks for of a card that has so much for shares, in MiB; rounded down, so that as many
        shares as a fraction says fit."""
        return capacity_mib * self.memory_milli // WHOLE if self.memory_mib is None else self.memory_mib
