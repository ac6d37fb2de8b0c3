"""What a task holds of a card: its amounts, how they are enforced, and what that guarantees.

Compute is counted in thousandths of a card, memory in MiB. Source of the guarantees: docs/isolation.md, "Shares".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

#: The domain of shares of several users, whom one server serves: no name of a user, useradd(8).
EVERYBODY: Final = "*"


class Method(Enum):
    """How a share is enforced: what limits its memory, and what its compute. The best come first."""

    MIG = "mig"
    DMEM_MPS3 = "dmem+mps3"
    MISC_MPS3 = "misc+mps3"
    DMEM_WINDOWS = "dmem+windows"
    MISC_WINDOWS = "misc+windows"
    SHIM_MPS2 = "shim+mps2"
    SHIM_WINDOWS = "shim+windows"
    TURNS = "turns"  # the card's own time slices; nothing limits memory

    @property
    def memory_by(self) -> str:
        """What limits memory: mig, dmem, misc, shim, or turns (nothing)."""
        return self.value.partition("+")[0]

    @property
    def compute_by(self) -> str:
        """What limits compute: mig, mps3, mps2, windows, or turns (equal turns)."""
        return self.value.rpartition("+")[2]

    @property
    def has_domain(self) -> bool:
        """Whether all shares of the card must be one user's: they share a server, and its fate."""
        return self.compute_by in ("mps3", "mps2")


@dataclass(frozen=True, slots=True)
class Share:
    """What one task holds of each of its cards, where it does not hold them whole.

    Attributes:
        compute_milli: Thousandths of the card's compute.
        memory_mib: Its memory.
        memory_max_mib: The most that it may use; equal to `memory_mib` unless it may burst.
        method: How that is enforced.
        domain: The UNIX user whose shares alone the card has while the method needs that; EVERYBODY: several users',
            where operators allow it; "": it needs none.
        instance: The UUID of its MIG instance, or "PROFILE@START" of one that its host makes for it; "": it has none.
    """

    compute_milli: int
    memory_mib: int
    memory_max_mib: int
    method: Method
    domain: str = ""
    instance: str = ""


def larger_of(one: Share, other: Share) -> Share:
    """The more of each amount: what a card must have for a share that changes from the one to the other."""
    return replace(
        one,
        compute_milli=max(one.compute_milli, other.compute_milli),
        memory_mib=max(one.memory_mib, other.memory_mib),
        memory_max_mib=max(one.memory_max_mib, other.memory_max_mib),
    )


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Who sees to it that a share is kept, each one of hardware, kernel, driver, cooperative, none.

    Attributes:
        memory: That it gets no more memory, and nobody takes its own.
        compute: That it gets no more compute.
        faults: What a neighbour's fault does: `contained`; `user`: all shares of its user on that card end; or `card`:
            all shares on that card end, whosever they are.
    """

    memory: str
    compute: str
    faults: str


_BY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "mig": "hardware",
        "dmem": "kernel",
        "misc": "driver",
        "mps3": "driver",
        "mps2": "cooperative",  # a client chooses its percentage, and may change its user's server's (docs/mps.md)
        "shim": "cooperative",
        "windows": "cooperative",
        "turns": "none",
    }
)


def guarantee(share: Share) -> Guarantee:
    """What is guaranteed of a share, by its method and by who shares its server."""
    method, faults = share.method, "contained"
    if method.has_domain:
        faults = "card" if share.domain == EVERYBODY else "user"
    return Guarantee(_BY[method.memory_by], _BY[method.compute_by], faults)
