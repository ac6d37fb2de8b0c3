"""GPUs, and what one host reports of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import GpuId


class Health(Enum):
    """Whether a GPU may be given out. Only OK may."""

    OK = "ok"
    SICK = "sick"
    UNKNOWN = "unknown"  # the probe failed; never schedulable


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between two GPUs of one host; `kind` is as in `nvidia-smi topo -m` (NV4, PIX, SYS …)."""

    peer: GpuId
    kind: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU.

    Raises:
        ValueError: A field is out of range; the message names it.
    """

    id: GpuId
    model: str
    memory_mib: int
    minor: int  # N of /dev/nvidiaN; comes from NVML, never from the index
    pci_bus_id: str
    numa_node: int | None = None  # None: the kernel reported -1
    links: tuple[Link, ...] = ()
    health: Health = Health.UNKNOWN
    reason: str = ""  # why it is not OK, for people

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("uuid must not be empty")
        if not self.model:
            raise ValueError(f"{self.id}: model must not be empty")
        if self.memory_mib <= 0:
            raise ValueError(f"{self.id}: memory_mib must be positive, got {self.memory_mib}")
        if not 0 <= self.minor < 1 << 20:  # MINORBITS in the kernel's include/linux/kdev_t.h
            raise ValueError(f"{self.id}: minor must be from 0 to 1048575, got {self.minor}")


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a node monitor found on its host.

    Raises:
        ValueError: Two GPUs have one UUID or one minor number.
    """

    gpus: tuple[Gpu, ...] = ()
    source: str = "none"  # "nvml", "simulated", "none": a CPU host
    driver_version: str | None = None

    def __post_init__(self) -> None:
        _once("uuid", (gpu.id for gpu in self.gpus))
        _once("minor", (str(gpu.minor) for gpu in self.gpus))


def _once(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value} stands twice in the inventory")
        seen.add(value)
