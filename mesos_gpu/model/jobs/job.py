"""A job: what a user asks for, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.jobs.permits import Control
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import newer_of

HIGHEST_PRIORITY: Final = 1000  # the lowest is its negative
MOST_TASKS: Final = 1024
DEFAULT_QUEUE: Final = "default"


class OnGpuFailure(Enum):
    """What happens to a running job when one of its GPUs turns sick or is lost."""

    RESTART = "restart"  # it is ended and queued again; no attempt is used up
    NOTIFY = "notify"  # its message says so
    IGNORE = "ignore"


class Placement(Enum):
    """Which of the nodes that fit a job goes to."""

    BUNDLE = "bundle"  # the one with the least free GPU: whole nodes stay free
    SPREAD = "spread"  # where the fewest of its app are, then the one with the most free GPU
    FRAGMENTATION = "fragmentation"  # where the idle GPU that recent requests could not use grows least


class GpuNodes(Enum):
    """Whether work without GPUs may use nodes that have some."""

    LAST = "last"  # if nothing else fits
    NEVER = "never"
    ALWAYS = "always"


class OnMemberFailure(Enum):
    """What happens to a job of several tasks when one of them fails or is lost. All of them end in any case."""

    RESTART = "restart"  # all start again: while it has attempts left, or if the infrastructure is to blame
    FAIL = "fail"  # the job has failed


class Engine(Enum):
    """What runs a job's image."""

    MESOS = "mesos"  # the agent's Mesos containerizer, in a nested container
    DOCKER = "docker"  # the host's Docker Engine


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A command and what each of its tasks needs. Exactly one of `command` (for /bin/sh -c) and `argv` is set;
    with an image neither may be: then the image's own entrypoint runs, with `args` if there are some."""

    name: str
    command: str | None = None
    argv: tuple[str, ...] = ()
    cpus: float = 1.0
    mem_mib: int = 128
    gpus: int = 0
    gpu_model: tuple[str, ...] = ()  # ordered fallbacks; empty: any model
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None  # None: the scheduler's default user
    labels: Mapping[str, str] = field(default_factory=dict)
    max_attempts: int = 1  # failures of the infrastructure do not count
    timeout_s: float | None = None  # of one attempt's run time
    kill_grace_s: float = 5.0  # between SIGTERM and SIGKILL
    image: str | None = None  # a Docker image, "name[:tag]"; None: the host's file system
    container_engine: Engine = Engine.MESOS  # of no meaning without an image
    on_gpu_failure: OnGpuFailure = OnGpuFailure.RESTART
    min_driver: str | None = (
        None  # the oldest NVIDIA driver that may run it, "535"; None: any, or none at all
    )
    placement: Placement | None = None  # None: as the scheduler is set
    priority: int = 0  # -1000 to 1000; higher is served first
    queue: str = DEFAULT_QUEUE  # whose limit of GPUs it counts against
    app: str | None = None  # the jobs that its constraints compare it with; None: it is alone
    constraints: tuple[Constraint, ...] = ()
    near: str | None = None  # only on a node where a job of that app runs
    away: str | None = None  # on no node where one does; nor may one of them come to it
    tasks: int = 1  # members of a gang: all start together, each with all of the above, or none does
    on_member_failure: OnMemberFailure = OnMemberFailure.RESTART
    preemptible: bool = (
        False  # a job of higher priority may end it; it is queued again, and no attempt is used up
    )
    gpu_memory_mib: int | None = None  # that each of its GPUs has at least
    compute_capability: str | None = None  # the oldest that will do, "8.0"
    health_checks: tuple[HealthCheck, ...] = ()
    ports: tuple[PortWish, ...] = ()  # of its host; not of a gang, whose members have one each
    disk_mib: int = 0  # of the agent's file system, for its sandbox
    fetch: tuple[Artifact, ...] = ()  # into each task's sandbox, before it starts
    mounts: tuple[Mount, ...] = ()
    bridge: bool = False  # its container is on a bridge of the Docker Engine, to which its ports lead
    docker: DockerOptions = field(default_factory=DockerOptions)
    pull: bool = False  # its image is fetched before each launch, whether it is there or not
    args: tuple[str, ...] = ()  # of the image's entrypoint, in place of the image's own
    control_access: tuple[Control, ...] = ()  # what commands the cluster and its tasks may reach

    @property
    def gpus_in_all(self) -> int:
        """The number of GPUs of all its tasks."""
        return self.gpus * self.tasks


class JobState(Enum):
    """What a user sees of a job."""

    PENDING = "pending"  # waits for resources, or for its next attempt
    STARTING = "starting"  # launched; its command does not run yet
    RUNNING = "running"
    UNREACHABLE = "unreachable"  # its agent is cut off; it may still run there
    KILLING = "killing"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self in (JobState.FINISHED, JobState.FAILED, JobState.KILLED)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the scheduler keeps it. Times are seconds since the epoch."""

    id: JobId
    spec: JobSpec
    submitted_at: float
    sequence: int  # place in the queue: a requeued job keeps it
    state: JobState = JobState.PENDING
    version: int = 1  # grows with each change
    task_id: TaskId | None = None  # the latest launch
    launches: int = 0
    attempts: int = 0  # launches that ran and failed by themselves, or finished
    infrastructure_failures: int = 0  # launches that ended for reasons that are not the job's
    not_before: float = 0.0  # back-off before the next launch
    kill_requested: bool = False
    started_at: float | None = None  # when the latest attempt was RUNNING
    ended_at: float | None = None
    exit_code: int | None = None  # as a shell gives it: 128 + N after signal N
    message: str = ""  # the latest thing that happened, for people
    app_version: float | None = (
        None  # of an app's instance: the app's `last_config_change_at`; None: it is none
    )
    in_line_since: float | None = (
        None  # of an app's instance that takes another's place: when that came; None: its own
    )
    nameless: bool = False  # of an app's instance: no other one takes its name when it ends
    checked: bool = False  # of an app's instance: whether the scheduler checks its health
    proves_ready: bool = False  # of an app's instance: whether it counts only once its readiness check passed
    learnt_min_driver: str | None = (
        None  # the oldest driver for its image, as an executor read it; None: unknown
    )
    room_made_at: float | None = None  # when others were last ended for it; None: since its launch nobody was
    image_needs: str = ""  # what the image says of it, "CUDA 12.4 or newer"
    adopted: bool = (
        False  # made of an unknown task's labels: what it runs is not known, so it is never launched
    )

    @property
    def min_driver(self) -> str | None:
        """The oldest driver that may run it, by its request and its image."""
        return newer_of(self.spec.min_driver, self.learnt_min_driver)
