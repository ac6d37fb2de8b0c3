"""An app and a group of apps, as Marathon 1.11 has them, with what mesos_gpu adds for GPUs.

Defaults are Marathon's. Times are seconds, memory and disk MiB. An id is absolute: "/shop/db".
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
GPU_SHARE: Final = (
    "GPU_SHARE"  # a label: what of its one GPU an app asks for, by clients that know whole numbers only
)


class EngineType(Enum):
    """Which containerizer runs a container."""

    MESOS = "MESOS"
    DOCKER = "DOCKER"


class NetworkMode(Enum):
    """Whose network a task is in."""

    CONTAINER = "container"  # a named one (CNI, or Docker's)
    BRIDGE = "container/bridge"
    HOST = "host"


class KillSelection(Enum):
    """Which instance goes first when an app scales down."""

    YOUNGEST_FIRST = "YOUNGEST_FIRST"
    OLDEST_FIRST = "OLDEST_FIRST"


class VolumeMode(Enum):
    """Whether a task may write."""

    RO = "RO"
    RW = "RW"


class DiskType(Enum):
    """Disk of an agent that a persistent volume is on."""

    ROOT = "root"
    PATH = "path"
    MOUNT = "mount"


class LostBehavior(Enum):
    """Fate of an instance whose volumes are on an agent that is gone."""

    WAIT = "WAIT_FOREVER"
    RELAUNCH = "RELAUNCH_AFTER_TIMEOUT"


class PortProtocol(Enum):
    """What is announced of a port."""

    TCP = "tcp"
    UDP = "udp"
    BOTH = "udp,tcp"


class HttpScheme(Enum):
    """The scheme of a readiness check, or of a health check."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"


class IpcMode(Enum):
    """Whose shared memory a container sees."""

    PRIVATE = "PRIVATE"
    SHARE_PARENT = "SHARE_PARENT"


@dataclass(frozen=True, slots=True)
class UpgradeStrategy:
    """Shares of the instances, 0 to 1, held at every moment of a deployment."""

    minimum_health_capacity: float = 1.0  # so many are healthy at least
    maximum_over_capacity: float = 1.0  # so many more may run at most


@dataclass(frozen=True, slots=True)
class UnreachableStrategy:
    """What becomes of an instance whose agent is cut off. `inactive_after_s` <= `expunge_after_s`."""

    inactive_after_s: int = 0  # then another one is started
    expunge_after_s: int = 0  # then it is given up, and killed should it come back


@dataclass(frozen=True, slots=True)
class Network:
    """A network that the tasks are in."""

    mode: NetworkMode = NetworkMode.CONTAINER
    name: str | None = None  # of CONTAINER only
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PortDefinition:
    """A port of the host, with host networking. `port` is the service port; 0: any."""

    port: int = 0
    name: str | None = None
    protocol: PortProtocol = PortProtocol.TCP
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def service_port(self) -> int:
        """The port as a mapping has it."""
        return self.port


@dataclass(frozen=True, slots=True)
class PortMapping:
    """A port of a container with a network of its own."""

    container_port: int = 0  # 0: the host's port
    host_port: int | None = None  # 0: any; None: none
    service_port: int = 0
    name: str | None = None
    protocol: PortProtocol = PortProtocol.TCP
    labels: Mapping[str, str] = field(default_factory=dict)
    network_names: tuple[str, ...] = ()  # the app's networks that it is for; empty: all


@dataclass(frozen=True, slots=True)
class Persistent:
    """Terms of a persistent volume, which each instance has one of."""

    size_mib: int
    type: DiskType = DiskType.ROOT
    constraints: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Residency:
    """Terms of instances that have persistent volumes."""

    relaunch_escalation_timeout_s: int = 3600
    task_lost_behavior: LostBehavior = LostBehavior.WAIT


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory or file of the host, a persistent directory, or a file whose content is a secret's, seen in the
    container."""

    container_path: str
    host_path: str | None = None
    mode: VolumeMode = VolumeMode.RO
    secret: str | None = None  # a key of the app's secrets; then there is no path of the host
    persistent: Persistent | None = None  # then there is no path of the host


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A secret in place of a value."""

    secret: str  # a key of the app's secrets


@dataclass(frozen=True, slots=True)
class DockerParameter:
    """An option of docker run."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class DockerImage:
    """The image and how it runs."""

    image: str
    force_pull_image: bool = False
    privileged: bool = False
    parameters: tuple[DockerParameter, ...] = ()
    pull_config: SecretRef | None = None  # Docker's config.json, to pull with


@dataclass(frozen=True, slots=True)
class Seccomp:
    """Which system calls a container may make. Either a profile is named or it is unconfined."""

    profile_name: str | None = None
    unconfined: bool = False


@dataclass(frozen=True, slots=True)
class IpcInfo:
    """What shared memory a container sees."""

    mode: IpcMode
    shm_size_mib: int | None = None


@dataclass(frozen=True, slots=True)
class LinuxInfo:
    """What only the Mesos containerizer does."""

    seccomp: Seccomp | None = None
    ipc: IpcInfo | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """The container of each task. Without a docker image (MESOS only) the host's file system is used."""

    type: EngineType = EngineType.DOCKER
    docker: DockerImage | None = None
    volumes: tuple[Volume, ...] = ()
    port_mappings: tuple[PortMapping, ...] | None = None  # None: host networking
    linux_info: LinuxInfo | None = None


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """Asked during deployments only; an instance counts as up once it answers with one of the codes."""

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
    """Where a `Check` connects to; `path` and `scheme` are of HTTP."""

    port_index: int | None = None
    port: int | None = None
    path: str | None = None
    scheme: HttpScheme = HttpScheme.HTTP


@dataclass(frozen=True, slots=True)
class Command:
    """Exactly one of both: a line for /bin/sh -c, or a program and its arguments."""

    shell: str | None = None
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Reported in the status of a task and of no other effect. Exactly one of http, tcp and exec is set."""

    http: PortCheck | None = None
    tcp: PortCheck | None = None
    exec: Command | None = None
    interval_s: int = 60
    timeout_s: int = 20
    delay_s: int = 15


@dataclass(frozen=True, slots=True)
class ExecutorResources:
    """What the executor gets besides the task."""

    cpus: float = 0.1
    mem_mib: float = 32.0
    disk_mib: float = 10.0


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """How far a task may go beyond its share; None: not at all, `math.inf`: as far as it likes."""

    cpus: float | None = None
    mem_mib: float | None = None


#: Fields of jobs that an app asks for in its object `gpu` and passes on to its instances, by their name there.
PASSED_ON: Final[Mapping[str, JobField]] = {each.of_app: each for each in FIELDS if each.of_app}


def _with_fields_of_jobs(options: type[T]) -> type[T]:
    """A class, before it becomes a dataclass, with all fields of jobs that are passed on: its source may leave out
    those that no code reads by name."""
    hints = get_type_hints(JobSpec)
    for name, declared in PASSED_ON.items():
        if name not in options.__annotations__:
            options.__annotations__[name] = hints[declared.name]
            setattr(options, name, field(default_factory=declared.standard))
    return options


@dataclass(frozen=True, slots=True)
@_with_fields_of_jobs
class GpuOptions:
    """What mesos_gpu adds to Marathon's app: the object `gpu`. None of it is needed. But for `in_place`,
    `progress_deadline_s` and `auto_revert` these are fields of jobs."""

    models: tuple[str, ...] = ()  # ordered fallbacks; empty: any
    memory_mib: int | None = None  # that each GPU has at least; of a share: what it gets of each
    compute_pct: int | None = None  # of each GPU, which makes it a share; None: as the fraction says
    compute_capability: str | None = None  # the oldest that will do, "8.0"
    min_driver: str | None = None  # the oldest NVIDIA driver that will do, "535"
    placement: Placement | None = None  # None: as the scheduler is set
    on_gpu_failure: OnGpuFailure = OnGpuFailure.RESTART
    priority: int | None = None  # None: as its class or queue says, else 0
    queue: str = DEFAULT_QUEUE
    preemptible: bool = False
    control_access: tuple[Control, ...] = ()  # what commands the cluster and its tasks may reach
    in_place: bool = False  # an update that finds no GPUs over capacity may stop an instance first
    progress_deadline_s: int | None = None  # without progress, then a deployment is overdue; by default never
    auto_revert: bool = False  # a deployment that is overdue is undone
    notice_s: float | None = None  # from a notice to SIGTERM; None: as its queue gives
    notice_signal: NoticeSignal = NoticeSignal.NONE
    job_class: str | None = None  # kind of work, of the document of queues; None: of none
    upload: str | None = None  # its owner's archive, by digest; None: none


@dataclass(frozen=True, slots=True)
class App:
    """A service: `instances` tasks of one kind. At most one of `cmd` (for /bin/sh -c) and `args` is set."""

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
    )  # None: no host networking
    require_ports: bool = False  # the host's ports are those of port_definitions
    env: Mapping[str, str | SecretRef] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # name to source
    fetch: tuple[Artifact, ...] = ()
    health_checks: tuple[HealthCheck, ...] = ()
    readiness_checks: tuple[ReadinessCheck, ...] = ()
    check: Check | None = None
    upgrade_strategy: UpgradeStrategy = UpgradeStrategy()
    kill_selection: KillSelection = KillSelection.YOUNGEST_FIRST
    unreachable_strategy: UnreachableStrategy | None = UnreachableStrategy()  # None: disabled
    backoff_s: int = 1
    backoff_factor: float = 1.15
    max_launch_delay_s: int = 300
    task_kill_grace_s: int | None = None  # between SIGTERM and SIGKILL
    dependencies: tuple[str, ...] = ()  # ids of apps and groups that are up before it
    accepted_resource_roles: tuple[str, ...] = ()  # empty: all
    user: str | None = None
    role: str | None = None
    executor: str = ""
    executor_resources: ExecutorResources | None = None
    resource_limits: ResourceLimits | None = None
    tty: bool | None = None
    gpu: GpuOptions | None = None
    gpu_milli: int = WHOLE  # thousandths of each GPU: less than WHOLE where `gpus` is asked for as a fraction
    owner: str = ""  # the proved name of who asked for what it runs; "": nobody was asked
    residency: Residency | None = None  # only with persistent volumes

    @property
    def persistent_volumes(self) -> tuple[Volume, ...]:
        """The volumes that outlive its instances."""
        volumes = self.container.volumes if self.container is not None else ()
        return tuple(each for each in volumes if each.persistent is not None)

    @property
    def is_resident(self) -> bool:
        """Whether its instances have persistent volumes."""
        return bool(self.persistent_volumes)

    @property
    def asked_milli(self) -> int:
        """Thousandths of GPUs that its field `gpus` asks for."""
        return self.gpus * self.gpu_milli

    @property
    def part_milli(self) -> int:
        """Thousandths of each GPU that an instance gets, by that field or by its label."""
        return self.gpu_milli if self.gpu_milli < WHOLE else milli_of(self.labels.get(GPU_SHARE, "")) or WHOLE

    @property
    def ports(self) -> tuple[PortDefinition | PortMapping, ...]:
        """What the index of a health check counts, in the order of the ports that its tasks have."""
        mappings = self.container.port_mappings if self.container else None
        return mappings or self.port_definitions or ()

    @property
    def service_ports(self) -> tuple[int, ...]:
        """The service port of each of `ports`: where balancers listen for it; 0: none was given yet."""
        return tuple(each.service_port for each in self.ports)


_NO_OPTIONS: Final = GpuOptions()


def same_but_scale(old: App, new: App) -> bool:
    """Whether at most the number of instances and the terms of deployments differ: then nothing needs a restart.

    Marathon starts all instances anew for every other change, of labels too.
    """
    return _instance(replace(old, instances=new.instances)) == _instance(new)


def _instance(app: App) -> App:
    """Return the app without what its instances do not see, and with lists sorted that are sets in Marathon."""
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
    dependencies: tuple[str, ...] = ()  # what all of its apps depend on
    enforce_role: bool | None = None

    def all_apps(self) -> Iterator[App]:
        """All apps of the group and of the groups below."""
        yield from self.apps
        for group in self.groups:
            yield from group.all_apps()
