"""GPUs, and the inventory that the monitor of a host reports."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu_use import GpuUse, TaskUse
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.card import Sharing

CAPABILITY: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")  # form of a compute capability


class Health(Enum):
    """Health of a GPU. Only GPUs in health OK are assigned to tasks."""

    OK = "ok"
    SUSPECT = "suspect"  # one bad reading, or recovering: gets no new tasks, its running task continues
    SICK = "sick"  # its task is treated as the job's on_gpu_failure says
    LOST = "lost"  # fallen off the bus
    DRAINED = "drained"  # taken out of scheduling by an operator
    DIRTY = "dirty"  # used by a process that belongs to no task of this scheduler
    UNKNOWN = "unknown"  # health could not be read; gets no tasks

    @property
    def broken(self) -> bool:
        """Whether tasks on the GPU must be expected to fail."""
        return self in (Health.SICK, Health.LOST)


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between two GPUs of one host; `kind` as in `nvidia-smi topo -m` (NV4, PIX, SYS …)."""

    peer: GpuId
    kind: str


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of a GPU's health. `at`: seconds since the epoch."""

    at: float
    old: Health
    new: Health
    reason: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU with its health.

    Raises:
        ValueError: A field is out of range; the message names it.
    """

    id: GpuId
    model: str
    memory_mib: int
    minor: int  # N of /dev/nvidiaN; comes from NVML, never from the index
    pci_bus_id: str
    numa_node: int | None = None  # None if the kernel reports -1
    links: tuple[Link, ...] = ()
    health: Health = Health.UNKNOWN
    reason: str = ""  # reason why its health is not OK, for people
    since: float = 0.0  # begin of this health, seconds since the epoch; 0 if not known
    warnings: tuple[str, ...] = ()  # problems that do not affect health: slowdowns, XIDs of applications
    history: tuple[Transition, ...] = ()  # the latest changes, oldest first
    compute_capability: str | None = None  # such as "8.0"; None if not known
    sharing: Sharing | None = None  # None if its host cannot share it, or reports nothing about sharing
    index: int | None = None  # in NVML's list, as nvidia-smi shows; None if the list lacks the GPU

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("uuid must not be empty")
        if not self.model:
            raise ValueError(f"{self.id}: model must not be empty")
        if self.memory_mib <= 0:
            raise ValueError(f"{self.id}: memory_mib must be positive, got {self.memory_mib}")
        if not 0 <= self.minor < 1 << 20:  # MINORBITS in the kernel's include/linux/kdev_t.h
            raise ValueError(f"{self.id}: minor must be from 0 to 1048575, got {self.minor}")
        if self.index is not None and self.index < 0:
            raise ValueError(f"{self.id}: index must not be negative, got {self.index}")

    @property
    def place(self) -> tuple[bool, int, int]:
        """Sort key of the GPUs of one host: by index, and by minor number where the index is not known."""
        return self.index is None, self.index or 0, self.minor


def numbered(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs of a host with indexes in the order of their PCI bus ids, which is NVML's; unchanged if one has
    an index. GPUs that are lost, which NVML does not list, or that have no PCI bus id get none."""
    if any(gpu.index is not None for gpu in gpus):
        return tuple(gpus)
    places = {gpu.id: _bus_place(gpu.pci_bus_id) for gpu in gpus if gpu.health is not Health.LOST}
    order = sorted((place, name) for name, place in places.items() if place is not None)
    index = {name: number for number, (_, name) in enumerate(order)}
    return tuple(replace(gpu, index=index.get(gpu.id)) for gpu in gpus)


def _bus_place(pci_bus_id: str) -> tuple[int, ...] | None:
    """Return the numbers of "DOMAIN:BUS:DEVICE.FUNCTION" in hexadecimal digits; None for any other text."""
    try:
        domain, bus, device = pci_bus_id.split(":")
        device, function = device.split(".")
        return tuple(int(part, 16) for part in (domain, bus, device, function))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """Release of a node monitor or an executor, as it reports itself.

    Attributes:
        version: Version of the release, such as "0.1.0".
        wire: Newest message version that it reads and writes (`mesos_gpu.model.nodes.wires`).
        oldest: Oldest message version that it reads and writes.
        digest: SHA-256 of the archive from which it was started, or of the list of installed files, hexadecimal; "" if
            it was started from neither.
        replaced: Digest of the archive or list that now exists there, if it has changed since; "" if unchanged.
    """

    version: str
    wire: int
    oldest: int
    digest: str = ""
    replaced: str = ""


MAX_REMOVALS: Final = 100  # persistent volumes that a node is asked to remove at a time


@dataclass(frozen=True, slots=True)
class VolumeRoot:
    """Directory of a node for persistent volumes.

    Attributes:
        problem: Reason why tasks get no volumes there, in words for people; "" if they get some.
        removed: Ids of the volumes that the node was last asked to remove, and that are gone.
    """

    problem: str = ""
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """Report of a node monitor about its host.

    Raises:
        ValueError: Two GPUs have one UUID or one minor number.
    """

    gpus: tuple[Gpu, ...] = ()
    source: str = "none"  # "nvml", "simulated", or "none" for a host without GPUs
    driver_version: str | None = None
    cuda_version: str | None = None  # the newest CUDA that the driver can run, "12.2"
    isolation: str = ""  # mechanism that keeps tasks from other GPUs: "cgroup1", "cgroup2", "off"
    control_ports: str = ""  # access of tasks to control ports: "denied", "off" (allowed); "" if not reported
    volume: str | None = None  # version of the driver volume that is ready on the node, "535.183.01"
    volume_problem: str = ""  # reason why no driver volume is ready, for people
    uses: tuple[ShareUse, ...] = ()  # use of shares by tasks
    gpu_uses: tuple[GpuUse, ...] = ()  # use of GPUs; empty if not reported
    task_uses: tuple[TaskUse, ...] = ()  # use of GPUs by tasks that hold them, whole or in part
    secrets_key: str = ""  # public key to encrypt secrets of its tasks; "" if it accepts no secrets
    secrets_problem: str = ""  # reason why it accepts no secrets, for people
    program: Program | None = None  # release of the monitor; None if not reported
    volumes: VolumeRoot | None = None  # directory for persistent volumes, if the node has one

    def __post_init__(self) -> None:
        _once("uuid", (gpu.id for gpu in self.gpus))
        _once("minor", (str(gpu.minor) for gpu in self.gpus))


def _once(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value} appears twice in the inventory")
        seen.add(value)
