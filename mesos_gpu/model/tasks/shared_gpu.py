"""A GPU that several tasks share, as it stands."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method
from mesos_gpu.model.tasks.task import Task


class Cover(Enum):
    """How a shared GPU stands in Mesos, which knows whole GPUs only."""

    OPEN = "open"  # a task of ours holds it there, and it has no shares now
    COVERED = "covered"  # a task of ours holds it there for its shares
    UNCOVERED = "uncovered"  # it has shares, and Mesos may offer it to others: no more are placed on it


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """What is granted of a GPU that is open to shares, and what is left of it.

    Attributes:
        gpu_id: Its UUID.
        cover: The task that holds it in Mesos; None: it is uncovered.
        tenants: Tasks that have shares of it, in the order of their launches.
        capacity_mib: What all shares together may have; None: its node does not say.
        compute_milli: Thousandths of its compute that are free; with overcommitment there may be more than 1000.
        memory_mib: What is free of its capacity; None: the capacity is not known.
    """

    gpu_id: GpuId
    cover: Task | None
    tenants: tuple[Task, ...]
    capacity_mib: int | None
    compute_milli: int
    memory_mib: int | None

    @property
    def state(self) -> Cover:
        """How it stands in Mesos."""
        if self.cover is None:
            return Cover.UNCOVERED
        return Cover.COVERED if self.tenants else Cover.OPEN

    @property
    def method(self) -> Method | None:
        """How its shares are enforced; None: it has none."""
        return next((task.share.method for task in self.tenants if task.share), None)

    @property
    def domain(self) -> str:
        """The user whose shares alone may be on it; "": anybody's."""
        return next((task.share.domain for task in self.tenants if task.share), "")
