"""A job: the user's request and its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.job_state import JobState as JobState
from mesos_gpu.model.jobs.artifact import UPLOAD, Artifact
from mesos_gpu.model.jobs.constraint import Constraint, Topology
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.fields import (
    ARRAY,
    BOOKING,
    CPU_LIMIT,
    ENV_KEY,
    IMAGE_SECRET,
    LABEL_KEY,
    NAME,
    NOTIFY,
    QUEUE,
    QUEUE_FORM,
    SEGMENT,
    TOPOLOGY,
    USER,
    Args,
    Argv,
    Artifacts,
    Capability,
    Command,
    Constraints,
    DriverVersion,
    Flag,
    Gpus,
    HealthChecks,
    Image,
    Mib,
    Models,
    Mounts,
    Number,
    OneOf,
    Option,
    Ports,
    Seconds,
    Secrets,
    SomeOf,
    Strings,
    Text,
    Variables,
    Whole,
    asks,
    asks_first,
    declared,
)
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.jobs.permits import Control
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import MINIMUM, newer_of
from mesos_gpu.model.nodes.gpu import CAPABILITY
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.served import Served
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE

HIGHEST_PRIORITY: Final = 1000  # the lowest is its negative
MAX_TASKS: Final = 1024
DEFAULT_QUEUE: Final = "default"
PLAIN_CPUS: Final = 1.0  # CPUs of a job without GPUs whose request has none
PLAIN_MEM_MIB: Final = 128
_MAX_MIB: Final = 2**31
_MIB_FORM: Final = "a positive integer, at most 2**31"
GPUS: Final = Gpus(0, 1024)
_APP: Final = Text(NAME, "the name of an app, 1 to 63 of a-z, 0-9, '.' and '-', as web")


class OnGpuFailure(Enum):
    """Action when a GPU of a running job becomes sick or lost."""

    RESTART = "restart"  # the job is ended and requeued; no attempt is used up
    NOTIFY = "notify"  # the job's message tells it
    IGNORE = "ignore"


class Placement(Enum):
    """Choice among the nodes that fit a job."""

    BUNDLE = "bundle"  # the node with the fewest free GPUs, so that whole nodes stay free
    SPREAD = "spread"  # the node with the fewest jobs of its app, then the one with the most free GPUs
    FRAGMENTATION = "fragmentation"  # the node that keeps most idle GPUs usable for recent requests


class GpuNodes(Enum):
    """Use of nodes with GPUs by work without GPUs."""

    LAST = "last"  # only if no other node fits
    NEVER = "never"
    ALWAYS = "always"


class OnMemberFailure(Enum):
    """Action when a task of a gang fails or is lost. All tasks of the gang end in any case."""

    RESTART = "restart"  # all tasks start again if attempts are left, or if the infrastructure failed
    FAIL = "fail"  # the job fails


class NoticeSignal(Enum):
    """Signal sent with a notice, in addition to its file; only to processes that handle the signal."""

    NONE = "none"
    SIGHUP = "SIGHUP"
    SIGINT = "SIGINT"
    SIGTERM = "SIGTERM"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


class Engine(Enum):
    """Program that runs a job's image."""

    MESOS = "mesos"  # the agent's Mesos containerizer, in a nested container, or the executor if that is impossible
    OWN = "own"  # the executor itself
    DOCKER = "docker"  # the host's Docker Engine


@dataclass(frozen=True, slots=True, weakref_slot=True)
class JobSpec:
    """A request for a job: a command, and the needs of each task. Exactly one of `command` (for /bin/sh -c) and `argv`
    is set; with an image both may be empty, so that the image's entrypoint runs, with `args` if given.

    Requests can set the fields declared with `asks`, from which other code is derived (`model.jobs.fields`).
    The order of fields is that of state files and journals: append new ones at the end.
    """

    name: str = field(
        metadata=asks_first(
            Text(NAME, "1 to 63 of a-z, 0-9, '.' and '-', beginning and ending alphanumeric"),
            about="default: derived from the command",
            option=Option("--name", "Name, of a-z, 0-9, `.` and `-`", "from the command"),
            filled=True,
        )
    )
    command: str | None = asks(None, Command(), about="for /bin/sh -c")
    argv: tuple[str, ...] = asks((), Argv(), about="the first string must not be empty")
    cpus: float = asks(
        PLAIN_CPUS,
        Number(0.001, 100_000, "a positive number, from 0.001 to 100000"),  # Mesos keeps three decimals
        about="default: 1; for a job with GPUs a part of the node for each GPU (scheduler --default-cpus-per-gpu)",
        option=Option("--cpus", "CPUs, as 0.5", "1; with GPUs a part of the node for each", metavar="N"),
        shown="cpus",
        places=True,
        decided_later=True,
    )
    mem_mib: int = asks(
        PLAIN_MEM_MIB,
        Mib(1, _MAX_MIB, _MIB_FORM),
        about="default: 128; for a job with GPUs a part of the node for each GPU (scheduler --default-mem-per-gpu)",
        option=Option(
            "--mem", "Memory in MiB, or with a unit, as 2GiB", "128; with GPUs a part of the node for each"
        ),
        shown="memory",
        places=True,
        decided_later=True,
    )
    gpus: int = asks(
        0,
        GPUS,
        about="GPUs per task; a fraction, as 0.25, is a share of one GPU's memory and compute",
        option=Option("--gpus", "GPUs per task, or a fraction of one, as 0.25", metavar="N"),
        shown="gpus",
        places=True,
    )
    gpu_model: tuple[str, ...] = asks(  # empty: any model
        (),
        Models(),
        about="GPU models, by words of their names, as A100, a100-80gb or RTX 4090",
        option=Option("--gpu-model", "GPU model, as A100 or A100-80GB; repeat for further choices"),
        needs="gpus",
        of_app="models",
        places=True,
    )
    env: Mapping[str, str] = asks(
        {},
        Variables(ENV_KEY, "'=' and NUL"),
        option=Option("--env", "Environment variable; may be repeated"),
        shown="env",
    )
    user: str | None = asks(  # None for the scheduler's default user
        None,
        Text(USER, "a user name of Linux, as alice"),
        option=Option("--user", "User to run as on the agent"),
        shown="runs as",
    )
    labels: Mapping[str, str] = asks(
        {},
        Strings(LABEL_KEY, "NUL"),
        option=Option("--label", "Label; may be repeated"),
        shown="labels",
        places=True,
    )
    max_attempts: int = asks(  # infrastructure failures do not count
        1,
        Whole(1, 1000),
        option=Option("--max-attempts", "Number of attempts if the command fails"),
        shown="attempt",
    )
    timeout_s: float | None = asks(  # limit of one attempt's run time
        None,
        Seconds(0, 1e9, "a positive number of seconds, at most 1e9", above=True),
        option=Option("--timeout", "Longest run time of one attempt, as 90s or 2h"),
        shown="time limit",
    )
    kill_grace_s: float = asks(5.0, Seconds(0, 3600), shown="kill grace")  # between SIGTERM and SIGKILL
    image: str | None = asks(  # a Docker image; None to use the host's file system
        None,
        Image(),
        about="[registry[:port]/]path[:tag][@digest]",
        option=Option("--image", "Docker image, as repo/name:tag; without CMD its entrypoint runs"),
        shown="image",
    )
    container_engine: Engine = asks(  # ignored without an image
        Engine.MESOS,
        OneOf(Engine),
        about="only with an image",
        option=Option("--container-engine", "Program that runs the image", "the scheduler's choice"),
        needs="image",
        decided_later=True,
    )
    on_gpu_failure: OnGpuFailure = asks(
        OnGpuFailure.RESTART,
        OneOf(OnGpuFailure),
        option=Option("--on-gpu-failure", "If one of its GPUs fails: restart elsewhere, notify, or nothing"),
        shown="if gpu fails",
        of_app="on_gpu_failure",
    )
    min_driver: str | None = asks(  # None if any driver, or none, will do
        None,
        DriverVersion(MINIMUM, 'a driver version, as "535" or "535.104.05"'),
        about="oldest NVIDIA driver that may run it",
        option=Option("--min-driver", "Oldest NVIDIA driver that may run it, as 535 or 535.104.05"),
        shown="min driver",
        of_app="min_driver",
        places=True,
    )
    placement: Placement | None = asks(  # None for the scheduler's choice
        None,
        OneOf(Placement),
        option=Option("--placement", "Preference among the nodes that fit", "the scheduler's choice"),
        shown="placement",
        of_app="placement",
    )
    priority: int | None = asks(  # None for that of its class or queue, or 0
        None,
        Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
        about="jobs with higher priority are served first; null for that of its class or queue, or 0",
        option=Option("--priority", "Higher ones are served first", "that of its class or queue, or 0"),
        of_app="priority",
        filled=True,
    )
    queue: str = asks(
        DEFAULT_QUEUE,
        Text(QUEUE, QUEUE_FORM),
        option=Option("--queue", "Queue where it waits and is charged, as research/vision", metavar="PATH"),
        shown="queue",
        of_app="queue",
    )
    app: str | None = asks(  # None if it belongs to no app
        None,
        _APP,
        about="name of an app; constraints compare its jobs",
        option=Option("--app", "App that the job belongs to, for constraints", metavar="NAME"),
        shown="app",
        places=True,
    )
    constraints: tuple[Constraint, ...] = asks(
        (),
        Constraints(),
        option=Option(
            "--constraint", "Condition on nodes, as hostname:UNIQUE or rack:LIKE:r[1-3]; may be repeated"
        ),
        shown="constraints",
        places=True,
    )
    near: str | None = asks(
        None, _APP, about="an app; the job runs only on nodes where a job of that app runs", shown="near", places=True,
        option=Option("--near", "Only on a node where a job of that app runs", metavar="APP"),
    )  # fmt: skip
    away: str | None = asks(  # jobs of that app are also kept off its node
        None, _APP, about="an app; the job runs only on nodes without jobs of that app", shown="away from", places=True,
        option=Option("--away", "On no node where a job of that app runs", metavar="APP"),
    )  # fmt: skip
    tasks: int = asks(  # members of a gang
        1,
        Whole(1, MAX_TASKS),
        about="number of tasks, which all start at once or not at all",
        option=Option("--tasks", "Number of tasks that start together, each with the resources above"),
        shown="tasks",
        places=True,
    )
    on_member_failure: OnMemberFailure = asks(
        OnMemberFailure.RESTART,
        OneOf(OnMemberFailure),
        option=Option(
            "--on-member-failure", "Action if one of several tasks fails: restart all, or fail the job"
        ),
    )
    preemptible: bool = asks(  # a preemption uses up no attempt
        False,
        Flag(),
        option=Option("--preemptible", "Allow jobs of higher priority to end it; it is then requeued"),
        of_app="preemptible",
    )
    gpu_memory_mib: int | None = asks(
        None,
        Mib(1, _MAX_MIB, _MIB_FORM),
        about="least memory of each GPU; for a share, the memory that it gets of each",
        option=Option(
            "--gpu-memory",
            "Least memory of each GPU in MiB, or with a unit, as 40GiB; for a share, its memory of each",
        ),
        needs="gpus",
        of_app="memory_mib",
        places=True,
    )
    compute_capability: str | None = asks(
        None,
        Capability(CAPABILITY, 'a compute capability, as "8.0"'),
        about="oldest compute capability that may run it",
        option=Option("--compute-capability", "Oldest compute capability that may run it, as 8.0"),
        needs="gpus",
        of_app="compute_capability",
        places=True,
    )
    health_checks: tuple[HealthCheck, ...] = asks((), HealthChecks(), shown="checks")
    ports: tuple[PortWish, ...] = asks(  # not for a gang, whose members get one each
        (),
        Ports(),
        about="ports of the host; 0 for any",
        option=Option("--port", "Port of the host, passed as PORT0 and so on; 0 for any; may be repeated"),
    )
    disk_mib: int = asks(  # in the agent's file system
        0,
        Mib(0, _MAX_MIB),
        about="disk space for the sandbox",
        option=Option("--disk", "Disk space for its sandbox in MiB, or with a unit, as 2GiB", "none"),
        shown="disk",
        places=True,
    )
    fetch: tuple[Artifact, ...] = asks(
        (),
        Artifacts(),
        option=Option("--fetch", "File for the sandbox; an archive is extracted there; may be repeated"),
        shown="fetched",
    )
    mounts: tuple[Mount, ...] = asks(
        (),
        Mounts(),
        key="volumes",
        option=Option(
            "--volume",
            "Path of the host and its path in the task, or a named volume, as name=data,path=data,size=10GiB; ro for "
            "read-only; may be repeated",
            metavar="VOLUME",
        ),
        shown="volumes",
    )
    bridge: bool = False  # whether its container is on a bridge of the Docker Engine with its ports
    docker: DockerOptions = field(default_factory=DockerOptions)
    pull: bool = asks(
        False,
        Flag(),
        about="whether the image is fetched at each launch",
        option=Option("--pull", "Fetch the image again, even if the host has one with that name"),
        needs="image",
    )
    args: tuple[str, ...] = asks((), Args(), about="arguments for the entrypoint of the image")
    control_access: tuple[Control, ...] = asks(
        (),
        SomeOf(Control),
        about="control ports of the cluster that its tasks may reach, if the operator allows it",
        option=Option(
            "--control-access",
            "Control ports of the cluster that it may reach (api, master), if the operator allows it",
        ),
        shown="may reach",
        of_app="control_access",
    )
    gpu_milli: int = WHOLE  # thousandths per GPU; less than WHOLE if `gpus` was requested as a fraction
    gpu_compute_pct: int | None = asks(  # compute per GPU; None to use the fraction of `gpus`
        None, Whole(1, 100), needs="gpus", of_app="compute_pct", places=True,
        about="percentage of each GPU's compute, which makes it a share; with 100 only memory is shared",
        option=Option("--gpu-compute", "Percentage of each GPU's compute, which makes it a share; 100: all"),
    )  # fmt: skip
    gpu_memory_max_mib: int | None = asks(  # None for no more than its share
        None,
        Mib(1, _MAX_MIB, _MIB_FORM),
        about="most memory of each GPU that a share may use while no other share needs it",
        option=Option(
            "--gpu-memory-max", "Most memory of each GPU that a share may use while no other share needs it"
        ),
        of_app="memory_max_mib",
        places=True,
    )
    isolation: Isolation | None = asks(  # None for the scheduler's choice
        None,
        OneOf(Isolation),
        about="weakest accepted enforcement of a share; null for the scheduler's choice",
        option=Option("--gpu-isolation", "Weakest accepted enforcement of a share", "the scheduler's choice"),
        shown="isolation",
        of_app="isolation",
        places=True,
    )
    secrets: tuple[Secret, ...] = asks(
        (),
        Secrets(),
        about="path in the store of secrets, by environment variable",
        option=Option(
            "--secret",
            "Secret as an environment variable, or as a file whose path the variable has; may be repeated",
            metavar="NAME=PATH[:FILE]",
        ),
        shown="secrets",
    )
    notice_s: float | None = asks(
        None,
        Seconds(0, 86400),
        about="time from a notice to SIGTERM, at most that of its queue; null for that of its queue",
        option=Option("--notice", "Time from a notice to its end, as 60s", "that of its queue"),
        shown="notice",
        of_app="notice_s",
    )
    notice_signal: NoticeSignal = asks(
        NoticeSignal.NONE,
        OneOf(NoticeSignal),
        about="signal sent with a notice, to those of its processes that handle it",
        option=Option("--notice-signal", "Signal sent with a notice, to its processes that handle it"),
        shown="signal",
        of_app="notice_signal",
    )
    job_class: str | None = asks(  # None for no class
        None,
        Text(NAME, "1 to 63 of a-z, 0-9, '.' and '-', as batch"),
        key="class",
        about="kind of work from the queue document, with its own priority and rules",
        option=Option("--class", "Kind of work, as batch; the queue document lists them", metavar="NAME"),
        shown="class",
        of_app="job_class",
    )
    upload: str | None = asks(  # None without an upload
        None, UPLOAD, shown="upload", of_app="upload",
        about="id of an archive that its submitter uploaded; it is extracted into the sandbox",
    )  # fmt: skip
    notify: tuple[str, ...] = NOTIFY
    array: str | None = ARRAY
    booking: str | None = BOOKING
    topology: Topology | None = TOPOLOGY
    segment: int | None = SEGMENT
    image_secret: str | None = IMAGE_SECRET
    cpu_limit: float | None = CPU_LIMIT

    @property
    def is_share(self) -> bool:
        """Whether it requests parts of GPUs instead of whole ones."""
        return self.gpus > 0 and (self.gpu_milli < WHOLE or self.gpu_compute_pct is not None)

    @property
    def resources(self) -> Resources:
        """Resources that one task takes in Mesos without its executor. Shared GPUs are not included: a cover task has
        them."""
        resources = Resources.of_spec(self)
        if self.mounts and (volumes_mib := sum([mount.volume_mib for mount in self.mounts])):
            resources += Resources(disk_mib=volumes_mib)
        return resources.with_gpus(0) if self.is_share else resources

    @property
    def compute_milli(self) -> int:
        """Requested thousandths of each GPU's compute."""
        return self.gpu_milli if self.gpu_compute_pct is None else self.gpu_compute_pct * PER_PERCENT

    @property
    def gpus_in_all(self) -> int:
        """Number of GPUs of all its tasks, each counted whole."""
        return self.gpus * self.tasks

    @property
    def counted_milli(self) -> int:
        """Thousandths of GPUs that one task counts as in limits: for a share its compute, or its fraction if that is
        larger. Memory in MiB does not count, as it is a different part of each model."""
        if self.gpu_milli >= WHOLE and self.gpu_compute_pct is None:  # the common case, on a hot path
            return self.gpus * WHOLE
        fraction = self.gpu_milli if self.gpu_milli < WHOLE else 0
        return self.gpus * max(self.compute_milli, fraction)

    @property
    def gpu_milli_in_all(self) -> int:
        """Thousandths of GPUs that all its tasks together count as in limits."""
        return self.counted_milli * self.tasks

    def share_request(self, isolation: Isolation, *, across_users: bool = False) -> ShareRequest | None:
        """Return the request of each task for a part of each GPU; None if it requests whole GPUs.

        Args:
            isolation: Isolation to use if the job requests none.
            across_users: Value of `ShareRequest.across_users`, ignored for strict isolation.
        """
        if not self.is_share:
            return None
        exact = self.gpu_memory_mib is not None
        return ShareRequest(
            compute_milli=self.compute_milli,
            memory_milli=0 if exact else self.gpu_milli,
            memory_mib=self.gpu_memory_mib,
            memory_max_mib=self.gpu_memory_max_mib,
            isolation=(least := self.isolation or isolation),
            across_users=across_users and least is not Isolation.STRICT,
        )


#: Order of fields in output for people; fields that are not listed follow.
_ORDER: Final = (
    "name", "command", "argv", "args", "cpus", "cpu_limit", "mem_mib", "disk_mib", "gpus", "gpu_model",
    "gpu_memory_mib", "gpu_compute_pct", "gpu_memory_max_mib", "isolation", "compute_capability", "tasks", "array",
    "ports", "upload", "fetch", "mounts", "on_member_failure", "env", "secrets", "user", "labels", "max_attempts",
    "timeout_s", "kill_grace_s", "image", "image_secret", "pull", "control_access", "container_engine",
    "on_gpu_failure", "min_driver", "placement", "priority", "preemptible", "notice_s", "notice_signal", "queue",
    "job_class", "app", "constraints", "near", "away", "topology", "segment", "notify", "health_checks",
)  # fmt: skip
FIELDS: Final = declared(JobSpec, _ORDER)  # all fields that a request may set


@dataclass(frozen=True, slots=True)
class Job:
    """A job in the scheduler's state. Times are seconds since the epoch."""

    id: JobId
    spec: JobSpec
    submitted_at: float
    sequence: int  # place in the order of submission, which a requeued job keeps
    state: JobState = JobState.PENDING
    version: int = 1  # grows with each change
    task_id: TaskId | None = None  # id of the latest launch
    launches: int = 0
    attempts: int = 0  # number of launches that finished or failed by their own fault
    infrastructure_failures: int = 0  # number of launches that ended without the job's fault
    not_before: float = 0.0  # end of the back-off before the next launch
    kill_requested: bool = False
    started_at: float | None = None  # begin of RUNNING in the latest attempt
    ended_at: float | None = None
    exit_code: int | None = None  # as a shell gives it: 128 + N after signal N
    message: str = ""  # latest event, for people
    app_version: float | None = None  # for an instance: the app's `last_config_change_at`
    in_line_since: float | None = None  # begin of the wait of the instance that it replaces, if any
    nameless: bool = False  # for an instance: whether no replacement takes over its id when it ends
    checked: bool = False  # for an instance: whether the scheduler checks its health
    proves_ready: bool = False  # for an instance: whether it counts only once its readiness check passed
    learnt_min_driver: str | None = None  # oldest driver for its image, as an executor read it
    room_made_at: float | None = None  # last time since it last ran at which jobs were preempted for it
    room_on: tuple[AgentId, ...] = ()  # with a queue tree: nodes reserved for it since then
    image_needs: str = ""  # requirement of the image behind `learnt_min_driver`, such as "CUDA 12.4 or newer"
    adopted: bool = False  # made from labels of an unknown task: its command is unknown, it is never launched
    seat: GuaranteedAdmission | None = (
        None  # part of a guarantee that its GPUs occupy; None if they are borrowed
    )
    spared_until: float = 0.0  # until then not preempted, although a new document took its `seat`
    stopped: int = 0  # number of times that it was preempted
    checkpoint_at: float | None = None  # time of its last reported checkpoint; None without one
    owner: str = ""  # proved name of its submitter; "" without authentication
    served: Served | None = None  # attained service of its ended launches; None before the first end
    array: JobId | None = None  # id of the array that it belongs to; None without array
    index: int | None = None  # its index in the array

    @property
    def app_id(self) -> str:
        """The id of the app whose instance this job is; "" for other jobs."""
        return self.spec.app or ""

    @property
    def charged_to(self) -> str:
        """User whose use and limits count the job: the proved name of its submitter, or else the user that it runs as;
        "" if neither is known."""
        return self.owner or self.spec.user or ""

    @property
    def priority(self) -> int:
        """Priority of the request, or the one assigned at admission."""
        return self.spec.priority or 0

    @property
    def min_driver(self) -> str | None:
        """Oldest driver that may run it, by its request and its image."""
        return newer_of(self.spec.min_driver, self.learnt_min_driver)
