"""Capacity of a card and its host for shares: memory, MIG instances, and means of enforcement."""

from dataclasses import dataclass
from enum import Enum


class Ability(Enum):
    """A means of a host to enforce shares of a card."""

    MIG = "mig"  # instances separated by hardware; MIG mode of the card is on
    DMEM = "dmem"  # memory limits by cgroup, enforced by the kernel's dmem controller
    MISC = "misc"  # memory limits by cgroup, enforced by the driver
    MPS3 = "mps3"  # namespaces of NVIDIA's Multi-Process Service, protocol 3 (driver 615)
    MPS2 = "mps2"  # active thread percentages of NVIDIA's Multi-Process Service before protocol 3
    SHIM = "shim"  # the libcuda of this package in front of the driver's


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A compute instance of a card in MIG mode.

    Attributes:
        uuid: UUID as in CUDA_VISIBLE_DEVICES, "MIG-…".
        profile: Name of its profile, such as "1g.10gb".
        memory_mib: Memory of the instance in MiB.
        sm_count: Number of its streaming multiprocessors.
        gpu_instance, compute_instance: Ids, as in /proc/driver/nvidia-caps/mig-minors.
        compute_milli, memory_milli: Thousandths of the card's slices, rounded down: a seventh of an H100 is 142.
        start, width: First memory slice and number of slices that it occupies; width 0 if not known.
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
    """A kind of MIG instance that the host of a card creates for a share, and removes after it.

    Attributes:
        name: Name of the profile, such as "1g.10gb".
        number: NVML number of the profile on that card.
        memory_mib, compute_milli, memory_milli: Size of an instance, with the units of `MigInstance`.
        starts: Memory slices at which an instance may begin.
        width: Number of memory slices of an instance.
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
    """Capacity and abilities of a card and its host for shares.

    Attributes:
        memory_mib: Memory for all shares together, without the part that the driver reserves.
        abilities: Abilities, each with the reason why the host cannot use it, or "" if it can. An ability that is not
            listed is missing.
        sm_count: Number of streaming multiprocessors; None if not known.
        mig: Whether MIG mode is on; then only MIG instances can be shared out.
        instances: Existing MIG instances.
        profiles: Profiles of instances that the host creates as needed; empty if only an operator creates instances.
        mps_users: Whether the host permits shares of several users to use one MPS server.
        mps_clients: Number of clients of one MPS server, of which each share needs one; 0 for no limit.
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
        """Return the reason why the host cannot use an ability; "" if it can."""
        return dict(self.abilities).get(ability, "not reported")
