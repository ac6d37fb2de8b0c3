"""A job: what a user asks for, and what became of it."""

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
from mesos_gpu.model.seat import Seat
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.served import Served
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE

HIGHEST_PRIORITY: Final = 1000  # the lowest is its negative
MAX_TASKS: Final = 1024
DEFAULT_QUEUE: Final = "default"
PLAIN_CPUS: Final = 1.0  # of a job without GPUs that names none
PLAIN_MEM_MIB: Final = 128
_MAX_MIB: Final = 2**31
_MIB_FORM: Final = "a positive integer, at most 2**31"
GPUS: Final = Gpus(0, 1024)
_APP: Final = Text(NAME, "the name of an app, 1 to 63 of a-z, 0-9, '.' and '-', as web")


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


class NoticeSignal(Enum):
    """What a task is sent beside the file of a notice. A process that does not handle it is not sent it."""

    NONE = "none"
    SIGHUP = "SIGHUP"
    SIGINT = "SIGINT"
    SIGTERM = "SIGTERM"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


class Engine(Enum):
    """What runs a job's image."""

    MESOS = "mesos"  # the agent's Mesos containerizer, in a nested container; where that cannot, the executor
    OWN = "own"  # the executor itself
    DOCKER = "docker"  # the host's Docker Engine


@dataclass(frozen=True, slots=True, weakref_slot=True)
class JobSpec:
    """A command and what each of its tasks needs. Exactly one of `command` (for /bin/sh -c) and `argv` is set;
    with an image neither may be: then the image's own entrypoint runs, with `args` if there are some.

    What `asks` declares may be asked for, and is known everywhere by that declaration alone (`model.jobs.fields`).
    The order of the fields is that of state files and journals: new ones come last.
    """

    name: str = field(
        metadata=asks_first(
            Text(NAME, "1 to 63 of a-z, 0-9, '.' and '-', beginning and ending alphanumeric"),
            about="default: from the command",
            option=Option("--name", "Name, of a-z, 0-9, `.` and `-`", "from the command"),
            filled=True,
        )
    )
    command: str | None = asks(None, Command(), about="for /bin/sh -c")
    argv: tuple[str, ...] = asks((), Argv(), about="the first not empty")
    cpus: float = asks(
        PLAIN_CPUS,
        Number(0.001, 100_000, "a positive number, from 0.001 to 100000"),  # Mesos keeps three decimals
        about="default: 1; of a job with GPUs a part of the node for each (scheduler --default-cpus-per-gpu)",
        option=Option("--cpus", "CPUs, as 0.5", "1; with GPUs a part of the node for each", metavar="N"),
        shown="cpus",
        places=True,
        decided_later=True,
    )
    mem_mib: int = asks(
        PLAIN_MEM_MIB,
        Mib(1, _MAX_MIB, _MIB_FORM),
        about="default: 128; of a job with GPUs a part of the node for each (scheduler --default-mem-per-gpu)",
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
        about="of each task; a part of one, as 0.25, is a share of its memory and of its compute",
        option=Option("--gpus", "GPUs of each task, or a part of one, as 0.25", metavar="N"),
        shown="gpus",
        places=True,
    )
    gpu_model: tuple[str, ...] = asks(  # empty: any model
        (),
        Models(),
        about="names that mean cards of the cluster by their words, as A100, a100-80gb or RTX 4090",
        option=Option("--gpu-model", "GPU model, as A100 or A100-80GB; again for a second choice"),
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
    user: str | None = asks(  # None: the scheduler's default user
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
    max_attempts: int = asks(  # failures of the infrastructure do not count
        1,
        Whole(1, 1000),
        option=Option("--max-attempts", "Tries if the command fails"),
        shown="attempt",
    )
    timeout_s: float | None = asks(  # of one attempt's run time
        None,
        Seconds(0, 1e9, "a positive number of seconds, at most 1e9", above=True),
        option=Option("--timeout", "Longest run time of one attempt, as 90s or 2h"),
        shown="time limit",
    )
    kill_grace_s: float = asks(5.0, Seconds(0, 3600), shown="kill grace")  # between SIGTERM and SIGKILL
    image: str | None = asks(  # a Docker image; None: the host's file system
        None,
        Image(),
        about="[registry[:port]/]path[:tag][@digest]",
        option=Option("--image", "Docker image to run in, as repo/name:tag; without CMD, what it runs"),
        shown="image",
    )
    container_engine: Engine = asks(  # of no meaning without an image
        Engine.MESOS,
        OneOf(Engine),
        about="only with an image",
        option=Option("--container-engine", "What runs the image", "the scheduler's choice"),
        needs="image",
        decided_later=True,
    )
    on_gpu_failure: OnGpuFailure = asks(
        OnGpuFailure.RESTART,
        OneOf(OnGpuFailure),
        option=Option("--on-gpu-failure", "If a GPU of it breaks: start it elsewhere, say so, or nothing"),
        shown="if gpu fails",
        of_app="on_gpu_failure",
    )
    min_driver: str | None = asks(  # None: any, or none at all
        None,
        DriverVersion(MINIMUM, 'a driver version, as "535" or "535.104.05"'),
        about="the oldest NVIDIA driver",
        option=Option("--min-driver", "Oldest NVIDIA driver that may run it, as 535 or 535.104.05"),
        shown="min driver",
        of_app="min_driver",
        places=True,
    )
    placement: Placement | None = asks(  # None: as the scheduler is set
        None,
        OneOf(Placement),
        option=Option("--placement", "Which of the nodes that fit", "the scheduler's choice"),
        shown="placement",
        of_app="placement",
    )
    priority: int | None = asks(  # None: as its class or queue says, else 0
        None,
        Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
        about="higher is served first; null: as its class says, else its queue, else 0",
        option=Option("--priority", "Higher is served first", "as its class or queue gives, else 0"),
        of_app="priority",
        filled=True,
    )
    queue: str = asks(
        DEFAULT_QUEUE,
        Text(QUEUE, QUEUE_FORM),
        option=Option(
            "--queue", "Queue that it waits in and is charged to, as research/vision", metavar="PATH"
        ),
        shown="queue",
        of_app="queue",
    )
    app: str | None = asks(  # None: it is alone
        None,
        _APP,
        about="the jobs that constraints compare",
        option=Option("--app", "App that the job is one of, for its constraints", metavar="NAME"),
        shown="app",
        places=True,
    )
    constraints: tuple[Constraint, ...] = asks(
        (),
        Constraints(),
        option=Option(
            "--constraint", "Which nodes will do, as hostname:UNIQUE or rack:LIKE:r[1-3]; may be repeated"
        ),
        shown="constraints",
        places=True,
    )
    near: str | None = asks(
        None, _APP, about="an app on whose nodes it must run", shown="near", places=True,
        option=Option("--near", "Only on a node where a job of that app runs", metavar="APP"),
    )  # fmt: skip
    away: str | None = asks(  # nor may a job of that app come to its node
        None, _APP, about="an app on whose nodes it must not run", shown="away from", places=True,
        option=Option("--away", "On no node where a job of that app runs", metavar="APP"),
    )  # fmt: skip
    tasks: int = asks(  # members of a gang
        1,
        Whole(1, MAX_TASKS),
        about="all start at once or none does",
        option=Option("--tasks", "So many tasks, all at once or none, each with all of the above"),
        shown="tasks",
        places=True,
    )
    on_member_failure: OnMemberFailure = asks(
        OnMemberFailure.RESTART,
        OneOf(OnMemberFailure),
        option=Option(
            "--on-member-failure", "If one of several tasks fails: start all again, or end the job"
        ),
    )
    preemptible: bool = asks(  # if it is ended so, no attempt is used up
        False,
        Flag(),
        option=Option("--preemptible", "A job of higher priority may end it; it is queued again"),
        of_app="preemptible",
    )
    gpu_memory_mib: int | None = asks(
        None,
        Mib(1, _MAX_MIB, _MIB_FORM),
        about="what each GPU has at least; of a share: what it gets of each",
        option=Option(
            "--gpu-memory",
            "Least memory of each GPU in MiB, or with a unit, as 40GiB; of a share: what it gets of each",
        ),
        needs="gpus",
        of_app="memory_mib",
        places=True,
    )
    compute_capability: str | None = asks(
        None,
        Capability(CAPABILITY, 'a compute capability, as "8.0"'),
        about="the oldest that will do",
        option=Option("--compute-capability", "Oldest that will do, as 8.0"),
        needs="gpus",
        of_app="compute_capability",
        places=True,
    )
    health_checks: tuple[HealthCheck, ...] = asks((), HealthChecks(), shown="checks")
    ports: tuple[PortWish, ...] = asks(  # not of a gang, whose members have one each
        (),
        Ports(),
        about="of the host; 0: any",
        option=Option("--port", "Port of the host, as PORT0 and so on; 0: any; may be repeated"),
    )
    disk_mib: int = asks(  # of the agent's file system
        0,
        Mib(0, _MAX_MIB),
        about="for the sandbox",
        option=Option("--disk", "Disk for its sandbox in MiB, or with a unit, as 2GiB", "none"),
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
            "Path of the host, and where the task has it, or a named volume, as name=data,path=data,size=10GiB; ro: to "
            "read only; may be repeated",
            metavar="VOLUME",
        ),
        shown="volumes",
    )
    bridge: bool = False  # its container is on a bridge of the Docker Engine, to which its ports lead
    docker: DockerOptions = field(default_factory=DockerOptions)
    pull: bool = asks(
        False,
        Flag(),
        about="fetch the image at each launch",
        option=Option("--pull", "Fetch the image again, even if the host has one of that name"),
        needs="image",
    )
    args: tuple[str, ...] = asks((), Args(), about="for the entrypoint of an image")
    control_access: tuple[Control, ...] = asks(
        (),
        SomeOf(Control),
        about="as the operator allows",
        option=Option(
            "--control-access",
            "Control ports that it may reach, of api,master, if the operator allows it",
        ),
        shown="may reach",
        of_app="control_access",
    )
    gpu_milli: int = WHOLE  # thousandths of each GPU: less than WHOLE where `gpus` is asked for as a fraction
    gpu_compute_pct: int | None = asks(  # of each GPU; None: as the fraction says
        None, Whole(1, 100), needs="gpus", of_app="compute_pct", places=True,
        about="of each GPU's compute, which makes it a share; 100: only memory is shared",
        option=Option("--gpu-compute", "Percentage of each GPU's compute, which makes it a share; 100: all"),
    )  # fmt: skip
    gpu_memory_max_mib: int | None = asks(  # None: no more than its share
        None,
        Mib(1, _MAX_MIB, _MIB_FORM),
        about="the most that a share may use while nobody else needs it",
        option=Option(
            "--gpu-memory-max", "Most memory of each GPU that a share may use while others leave it"
        ),
        of_app="memory_max_mib",
        places=True,
    )
    isolation: Isolation | None = asks(  # None: as the scheduler is set
        None,
        OneOf(Isolation),
        about="the least that will do to enforce a share; null: as the scheduler is set",
        option=Option("--gpu-isolation", "Least that will do to enforce a share", "the scheduler's choice"),
        shown="isolation",
        of_app="isolation",
        places=True,
    )
    secrets: tuple[Secret, ...] = asks(
        (),
        Secrets(),
        about="by environment variable: where the store has its value",
        option=Option(
            "--secret",
            "Secret as a variable, or as a file that it names; may be repeated",
            metavar="NAME=PATH[:FILE]",
        ),
        shown="secrets",
    )
    notice_s: float | None = asks(
        None,
        Seconds(0, 86400),
        about="from a notice to SIGTERM, within what its queue gives; null: as its queue gives",
        option=Option("--notice", "Time from a notice to its end, as 60s", "as its queue gives"),
        shown="notice",
        of_app="notice_s",
    )
    notice_signal: NoticeSignal = asks(
        NoticeSignal.NONE,
        OneOf(NoticeSignal),
        about="sent with a notice to those of its processes that handle it",
        option=Option("--notice-signal", "Sent with a notice, to those of its processes that handle it"),
        shown="signal",
        of_app="notice_signal",
    )
    job_class: str | None = asks(  # None: of none
        None,
        Text(NAME, "1 to 63 of a-z, 0-9, '.' and '-', as batch"),
        key="class",
        about="a kind of work that the document of queues knows, with its priority and rules",
        option=Option("--class", "Kind of work, as batch; its queues say which there are", metavar="NAME"),
        shown="class",
        of_app="job_class",
    )
    upload: str | None = asks(  # None: nothing of the submitter's own is sent along
        None, UPLOAD, shown="upload", of_app="upload",
        about="an archive that its submitter has put into the scheduler's store, extracted into the sandbox",
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
        """Whether it asks for parts of GPUs."""
        return self.gpus > 0 and (self.gpu_milli < WHOLE or self.gpu_compute_pct is not None)

    @property
    def resources(self) -> Resources:
        """What one task takes of Mesos, without its executor: of a shared GPU nothing, another task holds that."""
        resources = Resources.of_spec(self)
        if self.mounts and (volumes_mib := sum([mount.volume_mib for mount in self.mounts])):
            resources += Resources(disk_mib=volumes_mib)
        return resources.with_gpus(0) if self.is_share else resources

    @property
    def compute_milli(self) -> int:
        """Thousandths of each GPU's compute."""
        return self.gpu_milli if self.gpu_compute_pct is None else self.gpu_compute_pct * PER_PERCENT

    @property
    def gpus_in_all(self) -> int:
        """The number of GPUs of all its tasks, whole or in part."""
        return self.gpus * self.tasks

    @property
    def counted_milli(self) -> int:
        """Thousandths of GPUs that one task counts as, in limits: of a share its compute, or its fraction if that is
        more. Memory in MiB is a different part of each model, and does not count."""
        if self.gpu_milli >= WHOLE and self.gpu_compute_pct is None:  # most jobs; asked for often
            return self.gpus * WHOLE
        fraction = self.gpu_milli if self.gpu_milli < WHOLE else 0
        return self.gpus * max(self.compute_milli, fraction)

    @property
    def gpu_milli_in_all(self) -> int:
        """Thousandths of GPUs that all its tasks count as, in limits."""
        return self.counted_milli * self.tasks

    def share_request(self, isolation: Isolation, *, across_users: bool = False) -> ShareRequest | None:
        """What each of its tasks asks for of each card; None: all of it.

        Args:
            isolation: Where it asks for none.
            across_users: As of `ShareRequest`; a strict share never does.
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


#: The order in which they are listed wherever people read them. What it does not name comes after.
_ORDER: Final = (
    "name", "command", "argv", "args", "cpus", "cpu_limit", "mem_mib", "disk_mib", "gpus", "gpu_model",
    "gpu_memory_mib", "gpu_compute_pct", "gpu_memory_max_mib", "isolation", "compute_capability", "tasks", "array",
    "ports", "upload", "fetch", "mounts", "on_member_failure", "env", "secrets", "user", "labels", "max_attempts",
    "timeout_s", "kill_grace_s", "image", "image_secret", "pull", "control_access", "container_engine",
    "on_gpu_failure", "min_driver", "placement", "priority", "preemptible", "notice_s", "notice_signal", "queue",
    "job_class", "app", "constraints", "near", "away", "topology", "segment", "notify", "health_checks",
)  # fmt: skip
FIELDS: Final = declared(JobSpec, _ORDER)  # all that a request may ask for


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
    app_version: float | None = None  # of an app's instance: the app's `last_config_change_at`
    in_line_since: float | None = (
        None  # of an app's instance that takes another's place: when that came; None: its own
    )
    nameless: bool = False  # of an app's instance: no other one takes its name when it ends
    checked: bool = False  # of an app's instance: whether the scheduler checks its health
    proves_ready: bool = False  # of an app's instance: whether it counts only once its readiness check passed
    learnt_min_driver: str | None = None  # the oldest for its image, as an executor read it
    room_made_at: float | None = None  # when others were last ended for it, since it last ran
    room_on: tuple[AgentId, ...] = ()  # in a tree of queues: the nodes that are kept for it since
    image_needs: str = ""  # what the image says of it, "CUDA 12.4 or newer"
    adopted: bool = False  # of an unknown task's labels: what it runs is not known, it is never launched
    seat: Seat | None = None  # part of a guarantee that its GPUs count as; None if they are borrowed
    spared_until: float = 0.0  # until then it is not stopped for others, though a new document took its seat
    stopped: int = 0  # how often it was ended to make room for others
    checkpoint_at: float | None = None  # up to when its work is kept, as it said last; None: it never said
    owner: str = ""  # the proved name of who submitted it; "": nobody was asked
    served: Served | None = None  # what it had of GPUs before it went back to its queue; None: nothing yet
    array: JobId | None = None  # whose member it is; None: it is alone
    index: int | None = None  # in that

    @property
    def app_id(self) -> str:
        """The id of the app whose instance this job is; "" for other jobs."""
        return self.spec.app or ""

    @property
    def charged_to(self) -> str:
        """Whose use and limits it counts in: the proved name of who submitted it, else the user that it says it runs
        as; "": nobody is known."""
        return self.owner or self.spec.user or ""

    @property
    def priority(self) -> int:
        """What its request says, or what was given to one that left it open."""
        return self.spec.priority or 0

    @property
    def min_driver(self) -> str | None:
        """The oldest driver that may run it, by its request and its image."""
        return newer_of(self.spec.min_driver, self.learnt_min_driver)
