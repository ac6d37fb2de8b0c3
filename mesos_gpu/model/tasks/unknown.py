"""Tasks of this framework that Mesos knows but the scheduler's state does not, as the state is older than they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class AskedShare:
    """Requested share of each GPU of a job, in the job's fields of these names."""

    gpu_milli: int = WHOLE
    gpu_compute_pct: int | None = None
    gpu_memory_mib: int | None = None
    gpu_memory_max_mib: int | None = None
    isolation: Isolation | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """Contents of a launch's labels, besides its job and GPUs, with which it can be adopted without the state."""

    job_id: JobId
    gpus: tuple[GpuId, ...] = ()
    ports: tuple[int, ...] = ()
    attempt: int = 1
    launch: int = 1  # number of the job's launch, from 1
    rank: int = 0
    tasks: int = 1  # number of tasks of that launch
    launched_at: float = 0.0
    app: str | None = None
    app_version: float | None = None
    user: str | None = None
    queue: str = "default"
    owner: str = ""  # proved name of its submitter; "" without one, or if an older scheduler launched it
    kill_grace_s: float = 5.0
    sealed: bool = False  # whether only sealed updates of its executor are accepted
    share: Share | None = None  # share of each of its GPUs at its launch; None for whole GPUs
    asked: AskedShare | None = None  # None without a share, or if an older scheduler launched it


@dataclass(frozen=True, slots=True)
class Listed:
    """A task in the master's list. Memory in MiB."""

    task_id: TaskId
    agent_id: AgentId
    state: str  # state as Mesos names it
    name: str = ""
    hostname: str = ""
    agent_url: str = ""
    cpus: float = 0.0
    mem_mib: int = 0
    label: Label | None = None  # None without readable labels
    labels: Mapping[str, str] = field(default_factory=dict)  # labels of its job


@dataclass(frozen=True, slots=True)
class Unknown:
    """State of an unknown task: it keeps running until an operator decides about it."""

    since: float
    listed: Listed | None = None  # None before the master's list was read
