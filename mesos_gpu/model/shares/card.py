"""What a card and its host offer for shares: memory, MIG instances, and ways to enforce."""

from dataclasses import dataclass
from enum import Enum


class Ability(Enum):
    """What a host can use to enforce shares of a card."""

    MIG = "mig"  # instances that the hardware separates; the card's mode is on
    DMEM = "dmem"  # memory limits by cgroup, kept by the kernel's dmem controller
    MISC = "misc"  # the same, kept by the driver
    MPS3 = "mps3"  # namespaces of NVIDIA's Multi-Process Service, protocol 3 (driver 615)
    MPS2 = "mps2"  # active thread percentages of the same service before that
    SHIM = "shim"  # a libcuda of ours in front of the driver's


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
        mps_users: Whether its host permits shares of several users to have one server of MPS.
        mps_clients: How many clients a server of MPS takes, of which each share needs one; 0: nothing limits them.
    """

    memory_mib: int
    abilities: tuple[tuple[Ability, str], ...] = ()
    sm_count: int | None = None
    mig: bool = False
    instances: tuple[MigInstance, ...] = ()
    profiles: tuple[MigProfile, ...] = ()
    mps_clients: int = 0
    mps_users: bool = False

    def lacks(self, ability: Ability) -> str:
        """Why the host cannot use an ability; "": it can."""
        return dict(self.abilities).get(ability, "not reported")
