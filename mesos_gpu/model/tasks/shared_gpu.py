"""State of GPUs that several tasks share."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method
from mesos_gpu.model.tasks.task import Task


class Cover(Enum):
    """State of a shared GPU in Mesos, which knows only whole GPUs."""

    OPEN = "open"  # a cover task holds it, and it has no shares now
    COVERED = "covered"  # a cover task holds it for its shares
    UNCOVERED = "uncovered"  # it has shares, but Mesos may offer it to others, so that it gets no more


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A GPU that is open to shares, with its free capacity.

    Attributes:
        gpu_id: UUID of the GPU.
        cover: Cover task that holds the GPU in Mesos; None if uncovered.
        tenants: Tasks with shares of the GPU, in the order of their launches.
        capacity_mib: Memory for all shares together; None if its node does not report it.
        compute_milli: Free thousandths of compute, more than 1000 with overcommitment.
        memory_mib: Free memory of the capacity; None if the capacity is unknown.
    """

    gpu_id: GpuId
    cover: Task | None
    tenants: tuple[Task, ...]
    capacity_mib: int | None
    compute_milli: int
    memory_mib: int | None

    @property
    def state(self) -> Cover:
        """State of the GPU in Mesos."""
        if self.cover is None:
            return Cover.UNCOVERED
        return Cover.COVERED if self.tenants else Cover.OPEN

    @property
    def method(self) -> Method | None:
        """Method by which its shares are enforced; None without shares."""
        return next((task.share.method for task in self.tenants if task.share), None)

    @property
    def domain(self) -> str:
        """User to whose shares the GPU is restricted; "" without restriction."""
        return next((task.share.domain for task in self.tenants if task.share), "")
