"""A node: an agent and what its monitor says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.drain import Card, Drain
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.wires import SILENT, common


@dataclass(frozen=True, slots=True)
class Node:
    """An agent as the scheduler keeps it. Times are seconds since the epoch."""

    id: AgentId
    hostname: str
    agent_url: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    inventory: Inventory | None = None  # None: no monitor has reported yet
    reported_at: float | None = None
    monitor: TaskId | None = None
    monitor_launches: int = 0
    monitor_not_before: float = 0.0  # back-off after a monitor that died
    lost_at: float | None = None  # the master removed the agent, or marked it unreachable
    region: str | None = None  # of its fault domain; None: it has none
    zone: str | None = None
    timeouts: int = 0  # executors that did not register in time, since the last one that did
    launch_not_before: float = 0.0  # end of the back-off, in seconds since the epoch; 0 without a back-off

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs that the monitor reported, in any health."""
        return self.inventory.gpus if self.inventory else ()

    @property
    def is_unreported(self) -> bool:
        """Whether it has offered GPUs, and its monitor has not reported them yet."""
        return self.inventory is None and self.monitor_launches > 0

    @property
    def driver_version(self) -> str | None:
        """The driver's version that the monitor reported; None: no driver, or not known."""
        return self.inventory.driver_version if self.inventory else None

    @property
    def wire(self) -> int:
        """The version of messages in which its programs are spoken to; 0: there is none that both sides know."""
        program = self.inventory.program if self.inventory else None
        return SILENT if program is None else common(program.wire, program.oldest)

    def gpu(self, gpu_id: GpuId) -> Gpu | None:
        """The GPU with that UUID."""
        return next((gpu for gpu in self.gpus if gpu.id == gpu_id), None)


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """A GPU on its node, with the health that counts: what its node reports, under what operators say."""

    node: Node
    gpu: Gpu  # as its node reports it
    health: Health  # what counts: drained, even if its node says ok
    reason: str
    since: float  # of that health, seconds since the epoch; 0: not known
    drain: Drain | None = None  # its own, or its node's
    card: Card | None = None
