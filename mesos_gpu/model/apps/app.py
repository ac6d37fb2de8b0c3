"""An app and a group of apps as in Marathon 1.11, with the GPU options of mesos_gpu.

Defaults are those of Marathon. Times are seconds, memory and disk MiB. An id is absolute: "/shop/db".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeVar, get_type_hints

from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint
from mesos_gpu.model.jobs.fields import Field as JobField
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, FIELDS, JobSpec, NoticeSignal, OnGpuFailure, Placement
from mesos_gpu.model.jobs.permits import Control
from mesos_gpu.model.shares.units import WHOLE, milli_of

T = TypeVar("T")
#: Label with the requested part of one GPU, for clients that send only whole numbers.
GPU_SHARE: Final = "GPU_SHARE"


class EngineType(Enum):
    """Containerizer that runs a container."""

    MESOS = "MESOS"
    DOCKER = "DOCKER"


class NetworkMode(Enum):
    """Network in which a task runs."""

    CONTAINER = "container"  # a named network (CNI or Docker)
    BRIDGE = "container/bridge"
    HOST = "host"


class KillSelection(Enum):
    """Order in which instances are ended when an app scales down."""

    YOUNGEST_FIRST = "YOUNGEST_FIRST"
    OLDEST_FIRST = "OLDEST_FIRST"


class VolumeMode(Enum):
    """Access of a task to a volume."""

    RO = "RO"
    RW = "RW"


class DiskType(Enum):
    """Type of the agent's disk that holds a persistent volume."""

    ROOT = "root"
    PATH = "path"
    MOUNT = "mount"


class LostBehavior(Enum):
    """Action for an instance whose persistent volumes are on a lost agent."""

    WAIT = "WAIT_FOREVER"
    RELAUNCH = "RELAUNCH_AFTER_TIMEOUT"


class PortProtocol(Enum):
    """Transport protocols that are announced for a port."""

    TCP = "tcp"
    UDP = "udp"
    BOTH = "udp,tcp"


class HttpScheme(Enum):
    """URL scheme of a readiness check or a health check."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"


class IpcMode(Enum):
    """Shared memory that a container sees."""

    PRIVATE = "PRIVATE"
    SHARE_PARENT = "SHARE_PARENT"


@dataclass(frozen=True, slots=True)
class UpgradeStrategy:
    """Bounds on the number of instances during a deployment, as parts of the wanted number, 0 to 1."""

    minimum_health_capacity: float = 1.0  # lowest number of healthy instances
    maximum_over_capacity: float = 1.0  # highest number of additional instances


@dataclass(frozen=True, slots=True)
class UnreachableStrategy:
    """Handling of an instance on an unreachable agent. `inactive_after_s` <= `expunge_after_s`."""

    inactive_after_s: int = 0  # after this time another instance is started
    expunge_after_s: int = 0  # after this time it is given up, and killed if it comes back


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the app's tasks."""

    mode: NetworkMode = NetworkMode.CONTAINER
    name: str | None = None  # only of CONTAINER
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PortDefinition:
    """A port of the host, for host networking. `port` is the service port, 0 for any."""

    port: int = 0
    name: str | None = None
    protocol: PortProtocol = PortProtocol.TCP
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def service_port(self) -> int:
        """Service port, under the name that port mappings use."""
        return self.port


@dataclass(frozen=True, slots=True)
class PortMapping:
    """A port of a container with a network of its own."""

    container_port: int = 0  # 0 to use the number of the host's port
    host_port: int | None = None  # 0 for any free port; None if no port is mapped
    service_port: int = 0
    name: str | None = None
    protocol: PortProtocol = PortProtocol.TCP
    labels: Mapping[str, str] = field(default_factory=dict)
    network_names: tuple[str, ...] = ()  # networks of the app to which it applies; empty for all


@dataclass(frozen=True, slots=True)
class Persistent:
    """Terms of a persistent volume, of which each instance has its own."""

    size_mib: int
    type: DiskType = DiskType.ROOT
    constraints: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Residency:
    """Terms of instances with persistent volumes."""

    relaunch_escalation_timeout_s: int = 3600
    task_lost_behavior: LostBehavior = LostBehavior.WAIT


@dataclass(frozen=True, slots=True)
class Volume:
    """A mount in the container: a path of the host, a persistent directory, or a file with the value of a secret."""

    container_path: str
    host_path: str | None = None
    mode: VolumeMode = VolumeMode.RO
    secret: str | None = None  # key of the app's `secrets`; excludes `host_path`
    persistent: Persistent | None = None  # excludes `host_path`


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A reference to a secret in place of a value."""

    secret: str  # key of the app's `secrets`


@dataclass(frozen=True, slots=True)
class DockerParameter:
    """An option of docker run."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class DockerImage:
    """A Docker image with the options to run it."""

    image: str
    force_pull_image: bool = False
    privileged: bool = False
    parameters: tuple[DockerParameter, ...] = ()
    pull_config: SecretRef | None = None  # a secret with Docker's config.json for registries


@dataclass(frozen=True, slots=True)
class Seccomp:
    """System call filter of a container: either a named profile, or unconfined."""

    profile_name: str | None = None
    unconfined: bool = False


@dataclass(frozen=True, slots=True)
class IpcInfo:
    """Shared memory of a container."""

    mode: IpcMode
    shm_size_mib: int | None = None


@dataclass(frozen=True, slots=True)
class LinuxInfo:
    """Options that only the Mesos containerizer supports."""

    seccomp: Seccomp | None = None
    ipc: IpcInfo | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """The container of each task. Without a Docker image (MESOS only) tasks use the host's file system."""

    type: EngineType = EngineType.DOCKER
    docker: DockerImage | None = None
    volumes: tuple[Volume, ...] = ()
    port_mappings: tuple[PortMapping, ...] | None = None  # None for host networking
    linux_info: LinuxInfo | None = None


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """A check made only during deployments. An instance is ready once it answers with one of `ready_codes`."""

    name: str = "readinessCheck"
    protocol: HttpScheme = HttpScheme.HTTP
    path: str = "/"
    port_name: str = "http-api"
    interval_s: int = 30
    timeout_s: int = 10
    ready_codes: tuple[int, ...] = (200,)
    preserve_last_response: bool = False


@dataclass(frozen=True, slots=True)
class PortCheck:
    """Target of a `Check`; `path` and `scheme` apply to HTTP only."""

    port_index: int | None = None
    port: int | None = None
    path: str | None = None
    scheme: HttpScheme = HttpScheme.HTTP


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command line, or a program with its arguments. Exactly one of the two is set."""

    shell: str | None = None
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A check whose result is only reported in the task's status. Exactly one of http, tcp and exec is set."""

    http: PortCheck | None = None
    tcp: PortCheck | None = None
    exec: Command | None = None
    interval_s: int = 60
    timeout_s: int = 20
    delay_s: int = 15


@dataclass(frozen=True, slots=True)
class ExecutorResources:
    """Resources of the executor in addition to those of the task."""

    cpus: float = 0.1
    mem_mib: float = 32.0
    disk_mib: float = 10.0


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits up to which a task may exceed its request; None for the request itself, `math.inf` for no limit."""

    cpus: float | None = None
    mem_mib: float | None = None


#: Fields of jobs that an app may set in its object `gpu` for its instances, by their name there.
PASSED_ON: Final[Mapping[str, JobField]] = {
    job_field.of_app: job_field for job_field in FIELDS if job_field.of_app
}


def _with_fields_of_jobs(options: type[T]) -> type[T]:
    """Add all passed-on job fields to a class that will become a dataclass, so that its source need not list them
    all."""
    hints = get_type_hints(JobSpec)
    for name, declared in PASSED_ON.items():
        if name not in options.__annotations__:
            options.__annotations__[name] = hints[declared.name]
            setattr(options, name, field(default_factory=declared.standard))
    return options


@dataclass(frozen=True, slots=True)
@_with_fields_of_jobs
class GpuOptions:
    """GPU options of an app: the optional object `gpu`, which Marathon lacks. All fields but `in_place`,
    `progress_deadline_s` and `auto_revert` are fields of jobs."""

    models: tuple[str, ...] = ()  # accepted models, the first choice first; empty for any
    memory_mib: int | None = None  # least memory per GPU; for a share, the memory that it gets per GPU
    compute_pct: int | None = None  # compute per GPU of a share; None to use the fraction of `gpus`
    compute_capability: str | None = None  # oldest accepted, such as "8.0"
    min_driver: str | None = None  # oldest accepted NVIDIA driver, such as "535"
    placement: Placement | None = None  # None for the default of the scheduler
    on_gpu_failure: OnGpuFailure = OnGpuFailure.RESTART
    priority: int | None = None  # None for the default of its class or queue, or 0
    queue: str = DEFAULT_QUEUE
    preemptible: bool = False
    control_access: tuple[Control, ...] = ()  # control ports of the cluster that its tasks may reach
    in_place: bool = False  # whether an update ends an old instance before it starts a new one
    # Time without progress after which a deployment is overdue; None for never.
    progress_deadline_s: int | None = None
    auto_revert: bool = False  # whether an overdue deployment is rolled back
    notice_s: float | None = None  # time between a notice and SIGTERM; None for that of its queue
    notice_signal: NoticeSignal = NoticeSignal.NONE
    job_class: str | None = None  # name of a job class of the queue document; None for no class
    upload: str | None = None  # digest of an archive that its owner uploaded; None without one


@dataclass(frozen=True, slots=True)
class App:
    """A Marathon app: `instances` equal tasks. At most one of `cmd` (for /bin/sh -c) and `args` is set."""

    id: str
    cmd: str | None = None
    args: tuple[str, ...] = ()
    cpus: float = 1.0
    mem_mib: float = 128.0
    disk_mib: float = 0.0
    gpus: int = 0
    instances: int = 1
    constraints: tuple[Constraint, ...] = ()
    container: Container | None = None
    networks: tuple[Network, ...] = (Network(NetworkMode.HOST),)
    port_definitions: tuple[PortDefinition, ...] | None = (
        PortDefinition(name="default"),
    )  # None without host networking
    require_ports: bool = False  # whether the host's ports must be those of `port_definitions`
    env: Mapping[str, str | SecretRef] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # path in the store, by key
    fetch: tuple[Artifact, ...] = ()
    health_checks: tuple[HealthCheck, ...] = ()
    readiness_checks: tuple[ReadinessCheck, ...] = ()
    check: Check | None = None
    upgrade_strategy: UpgradeStrategy = UpgradeStrategy()
    kill_selection: KillSelection = KillSelection.YOUNGEST_FIRST
    unreachable_strategy: UnreachableStrategy | None = UnreachableStrategy()  # None if disabled
    backoff_s: int = 1
    backoff_factor: float = 1.15
    max_launch_delay_s: int = 300
    task_kill_grace_s: int | None = None  # between SIGTERM and SIGKILL
    dependencies: tuple[str, ...] = ()  # ids of apps and groups that must be up first
    accepted_resource_roles: tuple[str, ...] = ()  # empty for all
    user: str | None = None
    role: str | None = None
    executor: str = ""
    executor_resources: ExecutorResources | None = None
    resource_limits: ResourceLimits | None = None
    tty: bool | None = None
    gpu: GpuOptions | None = None
    gpu_milli: int = WHOLE  # thousandths per GPU; less than WHOLE if `gpus` was requested as a fraction
    owner: str = ""  # proved name of the author of what it runs; "" without authentication
    residency: Residency | None = None  # only with persistent volumes

    @property
    def persistent_volumes(self) -> tuple[Volume, ...]:
        """Persistent volumes of the app, which outlive its instances."""
        volumes = self.container.volumes if self.container is not None else ()
        return tuple(volume for volume in volumes if volume.persistent is not None)

    @property
    def is_resident(self) -> bool:
        """Whether its instances have persistent volumes."""
        return bool(self.persistent_volumes)

    @property
    def asked_milli(self) -> int:
        """Thousandths of GPUs that the field `gpus` requests."""
        return self.gpus * self.gpu_milli

    @property
    def part_milli(self) -> int:
        """Thousandths of each GPU that an instance gets, by the field `gpus` or the label `GPU_SHARE`."""
        return self.gpu_milli if self.gpu_milli < WHOLE else milli_of(self.labels.get(GPU_SHARE, "")) or WHOLE

    @property
    def ports(self) -> tuple[PortDefinition | PortMapping, ...]:
        """Ports of its tasks, in the order that the port index of a health check counts."""
        mappings = self.container.port_mappings if self.container else None
        return mappings or self.port_definitions or ()

    @property
    def service_ports(self) -> tuple[int, ...]:
        """Service port of each of `ports`, on which load balancers listen; 0 if not assigned yet."""
        return tuple(port.service_port for port in self.ports)


_NO_OPTIONS: Final = GpuOptions()


def same_but_scale(old: App, new: App) -> bool:
    """Return whether two versions differ at most in the number of instances and the terms of deployments.

    Then no instance needs a restart. Marathon restarts all instances for every other change, also of labels.
    """
    return _instance(replace(old, instances=new.instances)) == _instance(new)


def _instance(app: App) -> App:
    """Return the app reduced to what its instances depend on, with lists sorted that are sets in Marathon."""
    gpu = replace(app.gpu, progress_deadline_s=None, auto_revert=False) if app.gpu else None
    return replace(
        app,
        gpu=gpu if gpu != _NO_OPTIONS else None,
        constraints=tuple(sorted(app.constraints, key=repr)),
        dependencies=tuple(sorted(app.dependencies)),
        health_checks=tuple(sorted(app.health_checks, key=repr)),
        accepted_resource_roles=tuple(sorted(app.accepted_resource_roles)),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Apps and groups below one id; the root is "/"."""

    id: str
    apps: tuple[App, ...] = ()
    groups: tuple["Group", ...] = ()
    dependencies: tuple[str, ...] = ()  # ids on which all of its apps depend
    enforce_role: bool | None = None

    def all_apps(self) -> Iterator[App]:
        """Yield all apps of the group and of the groups below it."""
        yield from self.apps
        for group in self.groups:
            yield from group.all_apps()
