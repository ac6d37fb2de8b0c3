"""Tasks of this framework that Mesos knows and the scheduler's state does not: it is older than they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class AskedShare:
    """What a job asks for of each GPU, as its fields of these names say it."""

    gpu_milli: int = WHOLE
    gpu_compute_pct: int | None = None
    gpu_memory_mib: int | None = None
    gpu_memory_max_mib: int | None = None
    isolation: Isolation | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """What a launch says of itself in its labels, beside its job and GPUs: enough to take it up without the state."""

    job_id: JobId
    gpus: tuple[GpuId, ...] = ()
    ports: tuple[int, ...] = ()
    attempt: int = 1
    launch: int = 1  # of its job, from 1
    rank: int = 0
    tasks: int = 1  # of that launch
    launched_at: float = 0.0
    app: str | None = None
    app_version: float | None = None
    user: str | None = None
    queue: str = "default"
    owner: str = ""  # the proved name of who asked for it; "": nobody's, or an older scheduler launched it
    kill_grace_s: float = 5.0
    sealed: bool = False  # whether its executor is believed by its seal only
    share: Share | None = None  # of each of its GPUs, when it was launched; None: all of them
    asked: AskedShare | None = None  # None: it has no share, or an older scheduler launched it


@dataclass(frozen=True, slots=True)
class Listed:
    """A task as the master lists it. Memory in MiB."""

    task_id: TaskId
    agent_id: AgentId
    state: str  # a name of Mesos
    name: str = ""
    hostname: str = ""
    agent_url: str = ""
    cpus: float = 0.0
    mem_mib: int = 0
    label: Label | None = None  # None: it has none that can be read
    labels: Mapping[str, str] = field(default_factory=dict)  # its job's own


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a task is held: it runs on, and nothing is done with it but what an operator says."""

    since: float
    listed: Listed | None = None  # None: the master was not asked yet
