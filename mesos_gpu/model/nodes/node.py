"""A node: an agent with the report of its monitor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.drain import Card, Drain
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.wires import SILENT, common


@dataclass(frozen=True, slots=True)
class Node:
    """An agent as the scheduler stores it. Times are seconds since the epoch."""

    id: AgentId
    hostname: str
    agent_url: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    inventory: Inventory | None = None  # None before the first report of a monitor
    reported_at: float | None = None
    monitor: TaskId | None = None
    monitor_launches: int = 0
    monitor_not_before: float = 0.0  # end of the back-off after a monitor died
    lost_at: float | None = None  # when the master removed the agent or marked it unreachable
    region: str | None = None  # region of its fault domain; None without one
    zone: str | None = None
    timeouts: int = 0  # number of executors that did not register in time, since one did
    launch_not_before: float = 0.0  # end of the back-off, in seconds since the epoch; 0 without a back-off

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs that the monitor reported, whatever their health."""
        return self.inventory.gpus if self.inventory else ()

    @property
    def is_unreported(self) -> bool:
        """Whether the node has offered GPUs but its monitor has not reported them yet."""
        return self.inventory is None and self.monitor_launches > 0

    @property
    def driver_version(self) -> str | None:
        """Driver version that the monitor reported; None without driver or if not known."""
        return self.inventory.driver_version if self.inventory else None

    @property
    def wire(self) -> int:
        """Message version to use with programs on the node; 0 without a common version."""
        program = self.inventory.program if self.inventory else None
        return SILENT if program is None else common(program.wire, program.oldest)

    def gpu(self, gpu_id: GpuId) -> Gpu | None:
        """Return the GPU with an id; None if the node has no such GPU."""
        return next((gpu for gpu in self.gpus if gpu.id == gpu_id), None)


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """A GPU of a node with its effective health: that of the node's report, overridden by drains."""

    node: Node
    gpu: Gpu  # as its node reports it
    health: Health  # effective health: drained even if the node reports ok
    reason: str
    since: float  # begin of that health, seconds since the epoch; 0 if not known
    drain: Drain | None = None  # drain of the GPU or of its node
    card: Card | None = None
