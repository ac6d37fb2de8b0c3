"""Shares of GPUs: what is asked for of a card, what is granted, how that is enforced, and what is guaranteed then.

Compute is counted in thousandths of a card, memory in MiB. Source of the guarantees: docs/isolation.md, "Shares".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

WHOLE: Final = 1000  # thousandths of a card
PER_PERCENT: Final = 10  # thousandths
_FRACTION: Final = re.compile(r"0*\.([0-9]{1,3})0*")


def milli_of(text: str) -> int | None:
    """Thousandths of a card that a decimal between 0 and 1 says, exactly: "0.25" is 250. None: it says none."""
    match = _FRACTION.fullmatch(text)
    return int(match[1].ljust(3, "0")) or None if match else None


def cards_of(milli: int) -> tuple[int, int]:
    """The number of cards that so many thousandths are asked of, and thousandths of each: a fraction is of one."""
    return (1, milli) if 0 < milli < WHOLE else (milli // WHOLE, WHOLE)


def number_of(milli: int) -> float | int:
    """Thousandths of cards as a number of them: 250 are 0.25, 2000 are 2."""
    return milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE


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


class Ability(Enum):
    """What a host can use to enforce shares of a card."""

    MIG = "mig"  # instances that the hardware separates; the card's mode is on
    DMEM = "dmem"  # memory limits by cgroup, kept by the kernel's dmem controller
    MISC = "misc"  # the same, kept by the driver
    MPS3 = "mps3"  # namespaces of NVIDIA's Multi-Process Service, protocol 3 (driver 615)
    MPS2 = "mps2"  # active thread percentages of the same service before that
    SHIM = "shim"  # a libcuda of ours in front of the driver's


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
class Guarantee:
    """Who sees to it that a share is kept, each one of hardware, kernel, driver, cooperative, none.

    Attributes:
        memory: That it gets no more memory, and nobody takes its own.
        compute: That it gets no more compute.
        faults: What a neighbour's fault does: `contained`, or `user`: all shares of its user on that card end.
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


def guarantee(method: Method) -> Guarantee:
    """What a method guarantees."""
    faults = "user" if method.has_domain else "contained"
    return Guarantee(_BY[method.memory_by], _BY[method.compute_by], faults)


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """What one task asks for of each of its cards, where that is not the whole card.

    Attributes:
        compute_milli: Thousandths of its compute, 1 to 1000; 1000: only its memory is shared out.
        memory_milli: Thousandths of the memory that the card has for shares; 0: `memory_mib` says it.
        memory_mib: The memory in MiB; None: `memory_milli` says it.
        memory_max_mib: The most that it may use while nobody else needs it; None: no more than its share.
        isolation: The least that will do.
    """

    compute_milli: int
    memory_milli: int = 0
    memory_mib: int | None = None
    memory_max_mib: int | None = None
    isolation: Isolation = Isolation.SHARED

    def memory_of(self, capacity_mib: int) -> int:
        """The memory that it asks for of a card that has so much for shares, in MiB; rounded down, so that as many
        shares as a fraction says fit."""
        return capacity_mib * self.memory_milli // WHOLE if self.memory_mib is None else self.memory_mib


@dataclass(frozen=True, slots=True)
class Share:
    """What one task holds of each of its cards, where it does not hold them whole.

    Attributes:
        compute_milli: Thousandths of the card's compute.
        memory_mib: Its memory.
        memory_max_mib: The most that it may use; equal to `memory_mib` unless it may burst.
        method: How that is enforced.
        domain: The UNIX user whose shares alone the card has while the method needs that; "": anybody's.
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
class MigInstance:
    """A compute instance of a card in MIG mode.

    Attributes:
        uuid: As CUDA_VISIBLE_DEVICES names it, "MIG-…".
        profile: Its profile, "1g.10gb".
        memory_mib: Its memory.
        sm_count: Its streaming multiprocessors.
        gpu_instance, compute_instance: Ids, as in /proc/driver/nvidia-caps/mig-minors.
        compute_milli, memory_milli: Thousandths of the card's slices, rounded down: a seventh of an H100 is 142.
        start, width: The memory slices that it occupies; width 0: not known.
    """

    uuid: str
    profile: str
    memory_mib: int
    sm_count: int
    gpu_instance: int
    compute_instance: int
    compute_milli: int = 0
    memory_milli: int = 0
    start: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A kind of MIG instance that a card's host makes for a share, and removes after it.

    Attributes:
        name: "1g.10gb".
        number: As NVML numbers profiles on that card.
        memory_mib, compute_milli, memory_milli: As of an instance.
        starts: Memory slices at which it may begin.
        width: How many it occupies.
    """

    name: str
    number: int
    memory_mib: int
    compute_milli: int
    memory_milli: int
    starts: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a card and its host have for shares.

    Attributes:
        memory_mib: What all its shares together may have: without what the driver keeps for itself.
        abilities: Each with why the host cannot use it; "": it can. One that is not named is not there.
        sm_count: Its streaming multiprocessors; None: not known.
        mig: Whether its MIG mode is on; then only its instances can be shared out.
        instances: Those that it has.
        profiles: Of instances that its host makes as shares need them; none: it has those that an operator made.
    """

    memory_mib: int
    abilities: tuple[tuple[Ability, str], ...] = ()
    sm_count: int | None = None
    mig: bool = False
    instances: tuple[MigInstance, ...] = ()
    profiles: tuple[MigProfile, ...] = ()

    def lacks(self, ability: Ability) -> str:
        """Why the host cannot use an ability; "": it can."""
        return dict(self.abilities).get(ability, "not reported")
