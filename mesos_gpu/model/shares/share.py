"""Assigned shares of cards: amounts, method of enforcement, and the resulting guarantees.

Compute is counted in thousandths of a card, memory in MiB. Source of the guarantees: docs/isolation.md, "Shares".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

#: Value of `Share.domain` if one MPS server serves several users; useradd(8) permits no such user name.
EVERYBODY: Final = "*"


class Method(Enum):
    """Method of enforcing a share: what limits memory, and what limits compute. The best methods come first."""

    MIG = "mig"
    DMEM_MPS3 = "dmem+mps3"
    MISC_MPS3 = "misc+mps3"
    DMEM_WINDOWS = "dmem+windows"
    MISC_WINDOWS = "misc+windows"
    SHIM_MPS2 = "shim+mps2"
    SHIM_WINDOWS = "shim+windows"
    TURNS = "turns"  # time slices of the card; nothing limits memory

    @property
    def memory_by(self) -> str:
        """Mechanism that limits memory: mig, dmem, misc, shim, or turns (no limit)."""
        return self.value.partition("+")[0]

    @property
    def compute_by(self) -> str:
        """Mechanism that limits compute: mig, mps3, mps2, windows, or turns (equal time slices)."""
        return self.value.rpartition("+")[2]

    @property
    def has_domain(self) -> bool:
        """Whether shares of a card use one MPS server, whose faults end them all, so that they must be one user's."""
        return self.compute_by in ("mps3", "mps2")


@dataclass(frozen=True, slots=True)
class Share:
    """The part of each of its cards that one task holds.

    Attributes:
        compute_milli: Thousandths of the card's compute.
        memory_mib: Guaranteed memory in MiB.
        memory_max_mib: Most memory that it may use; equal to `memory_mib` unless it may burst.
        method: Method of enforcement.
        domain: UNIX user to whose shares the card is restricted by the method; EVERYBODY if operators allow several
            users; "" if the method needs no restriction.
        instance: UUID of its MIG instance, or "PROFILE@START" of one that the host creates for it; "" without MIG.
    """

    compute_milli: int
    memory_mib: int
    memory_max_mib: int
    method: Method
    domain: str = ""
    instance: str = ""


def larger_of(one: Share, other: Share) -> Share:
    """Return the larger of each amount: what a card must have while a share changes from one to the other."""
    return replace(
        one,
        compute_milli=max(one.compute_milli, other.compute_milli),
        memory_mib=max(one.memory_mib, other.memory_mib),
        memory_max_mib=max(one.memory_max_mib, other.memory_max_mib),
    )


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Enforcer of a share's limits, each one of hardware, kernel, driver, cooperative, none.

    Attributes:
        memory: Enforcer of the memory limit, which also protects the memory of the share.
        compute: Enforcer of the compute limit.
        faults: Effect of a fault in another share: `contained` (none), `user` (all shares of its user on the card end)
            or `card` (all shares on the card end).
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
    """Return the guarantees of a share, by its method and the users that share its MPS server."""
    method, faults = share.method, "contained"
    if method.has_domain:
        faults = "card" if share.domain == EVERYBODY else "user"
    return Guarantee(_BY[method.memory_by], _BY[method.compute_by], faults)
