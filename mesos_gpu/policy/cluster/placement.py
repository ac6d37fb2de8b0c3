"""What is placed, on what, and where it goes: the nouns of placement (`policy.cluster` decides). Pure."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu


@dataclass(frozen=True, slots=True)
class Ask:
    """What one launch needs, its executor's own share included."""

    cpus: float
    mem_mib: float
    gpus: int = 0
    models: tuple[str, ...] = ()  # ordered fallbacks; empty: any
    min_driver: str | None = None  # the oldest driver that will do; None: any, or none at all
    gpu_memory_mib: int | None = None  # that each GPU has at least
    compute_capability: str | None = None  # the oldest that will do, "8.0"
    disk_mib: float = 0.0

    @property
    def choosy(self) -> bool:
        """Whether GPUs of one model may differ in whether they will do."""
        return self.gpu_memory_mib is not None or self.compute_capability is not None

    def takes(self, gpu: Gpu) -> bool:
        """Whether a GPU will do, whatever its model; one whose capability is not known will not where it counts."""
        enough = self.gpu_memory_mib is None or gpu.memory_mib >= self.gpu_memory_mib
        return enough and as_new_as(gpu.compute_capability, self.compute_capability)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent as it could be used now."""

    agent_id: AgentId
    hostname: str
    cpus: float
    mem_mib: float
    gpus_offered: int  # Mesos' count; not which
    free: tuple[Gpu, ...]  # healthy, held by nobody
    gpus_total: int = 0
    driver: str | None = None  # None: it has none, or it is not known
    models: tuple[str, ...] = ()  # of all its GPUs, each once, sorted; empty: those of the free ones
    disk_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where it goes."""

    agent_id: AgentId
    gpus: tuple[GpuId, ...]
