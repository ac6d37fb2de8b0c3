"""Types of answers; the views are type-checked against them, and the OpenAPI document is made from them.

Times are seconds since the epoch. A field that does not apply is null, never absent.
"""

from typing import Annotated, Final, TypedDict

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.api.spec.gpus.idle import ComingEnd, JobIdle
from mesos_gpu.api.spec.gpus.idle import Notice as Notice
from mesos_gpu.api.spec.gpus.use import GpuUse, JobUse
from mesos_gpu.api.spec.job_fields import ArrayCounts, Count, Mib, answered
from mesos_gpu.api.spec.schema import declare, one_of, says
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage, Verdict
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health as GpuHealth
from mesos_gpu.model.shares.share import Method
from mesos_gpu.model.tasks.shared_gpu import Cover
from mesos_gpu.model.tasks.task import TaskState

Moment = Annotated[float, says(description="seconds since the epoch")]


class _Named(TypedDict):
    id: str
    name: str
    state: Annotated[str, one_of(*JobState)]
    version: Annotated[int, says(description="increases with each change of the job")]
    owner: Annotated[
        str | None,
        says(
            description="name that submitted it; with a ?: the user that the job names, unauthenticated; null: neither"
        ),
    ]
    hidden: Annotated[
        bool, says(description="whether fields about what it runs are hidden from the caller, and empty")
    ]


class Requested(TypedDict):
    """Requested fields of a job. All amounts, and timeout_s, are for each of its tasks."""

    # Only fields that code reads by name are listed; `declare` below adds the others.
    command: str | None
    argv: list[str] | None
    args: list[str] | None
    cpus: float
    mem_mib: int
    gpus: int | float
    gpu_model: list[str]
    gpu_memory_mib: int | None
    gpu_compute_pct: int | None
    gpu_memory_max_mib: int | None
    isolation: str | None
    compute_capability: str | None
    tasks: int
    array: str | None
    on_member_failure: str
    preemptible: bool
    env: dict[str, str]
    runs_as: Annotated[
        str | None,
        says(description="`user`, or the user of jobs that name none; null: the executor's own user"),
    ]
    max_attempts: int
    image: str | None
    container_engine: str | None
    min_driver: str | None
    priority: int
    queue: str
    app: str | None


declare(Requested, answered())


class Guarantee(TypedDict):
    """Enforcement of a share: by hardware, kernel, driver, cooperatively (by the task's own
    libraries), or not at all (none).
    """

    memory: Annotated[
        str, says(description="enforcement of the memory limit, and of the memory guaranteed to it")
    ]
    compute: str
    faults: Annotated[
        str,
        says(
            enum=["contained", "user", "card"],
            description="what a fault of another task ends; contained: nothing else; user: all tasks of its user on "
            "the GPU; card: all tasks on the GPU",
        ),
    ]


class Share(TypedDict):
    """The share of each of its GPUs that a task is granted."""

    memory_mib: Mib
    memory_max_mib: Annotated[
        int, says(minimum=0, description="memory that it may use while others do not need it")
    ]
    compute_pct: float
    method: Annotated[str, one_of(*Method)]
    instance: Annotated[str, says(description="UUID of its MIG instance")] | None
    guarantee: Guarantee


class ShareUse(TypedDict):
    """Use of a task's share of a GPU, as its node last reported it; null where it is not known."""

    memory_mib: Count | None
    most_memory_mib: Annotated[int, says(minimum=0, description="most memory ever seen in use")] | None
    compute_pct: Annotated[float, says(description="part of the GPU's time since the previous report")] | None
    refused: (
        Annotated[int, says(minimum=0, description="number of allocations that did not fit its share")] | None
    )
    windows_missed: (
        Annotated[
            int,
            says(
                minimum=0, description="time windows without compute, to make up for work that took too long"
            ),
        ]
        | None
    )
    problem: (
        Annotated[str, says(description="problem such as a libcuda that does not enforce the share")] | None
    )


class UsedShare(ShareUse):
    """Use of one GPU by a task of a job."""

    gpu_id: str
    task_id: str


class Resize(TypedDict):
    """The latest requested change of a job's shares. While it is `asked` or `withdrawing`, the larger of the old and
    the new share counts.
    """

    state: Annotated[str, says(enum=["asked", "done", "refused", "withdrawing", "withdrawn"])]
    memory_mib: Mib
    memory_max_mib: Mib
    compute_pct: float
    since: Moment
    reason: Annotated[str, says(description="why it was refused")] | None
    used_memory_mib: (
        Annotated[int, says(minimum=0, description="memory in use, if it was refused for that")] | None
    )
    restart: Annotated[bool, says(description="whether the change would be possible with a restart")]


class Progress(TypedDict):
    """Progress of a job, and where its latest launch is."""

    healthy: Annotated[bool, says(description="null: no health checks, or not all have results")] | None
    learnt_min_driver: str | None
    submitted_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    attempts: Count
    launches: Count
    infrastructure_failures: Count
    kill_requested: bool
    exit_code: int | None
    message: str
    task_id: str | None
    task_ids: Annotated[list[str], says(description="task ids of the latest launch, by rank")]
    hostname: str | None
    hostnames: list[str]
    gpu_ids: list[str]
    share: Annotated[
        Share | None, says(description="share of each of gpu_ids; null: it holds no GPUs, or whole ones")
    ]
    share_uses: Annotated[list[UsedShare], says(description="use by each task of each GPU, as far as known")]
    use: Annotated[JobUse | None, says(description="null: it holds no GPUs, or its hosts do not report it")]
    resize: Resize | None
    notice: Annotated[Notice | None, says(description="latest notice to its latest launch")]
    coming_end: Annotated[ComingEnd | None, says(description="null: no end is planned")]
    idle: Annotated[JobIdle | None, says(description="null: it was not seen idle, and is not protected")]
    checkpoint_at: Annotated[float, says(description="time up to which its work is saved")] | None
    stopped: Annotated[int, says(minimum=0, description="number of preemptions")]
    array_id: Annotated[str, says(description="id of its job array")] | None
    array_index: Count | None
    array_counts: ArrayCounts | None
    room_made_by: Annotated[list[str], says(description="jobs that are or were preempted for it")]


class Job(_Named, Requested, Progress):
    """A job, and where its latest launch is. All requested amounts, and timeout_s, are for each of its tasks."""


class Jobs(TypedDict):
    """The first matching jobs, newest first unless another order was requested. total: number of all matching jobs."""

    jobs: list[Job]
    total: Count


class Task(TypedDict):
    """A launch, a node monitor, or a task that holds a shared GPU in Mesos."""

    id: str
    job_id: Annotated[str, says(description="null: not a launch of a job")] | None
    name: str
    state: Annotated[str, one_of(*(state for state in TaskState if state is not TaskState.ABSENT))]
    ended_as: Annotated[
        str | None,
        says(
            description="preempted, or evicted (drain, broken GPU): the scheduler ended it, and the job continues"
        ),
    ]
    hostname: str
    agent_id: str
    attempt: int
    rank: int
    ports: list[int]
    ports_problem: Annotated[
        str, says(description="why the task is not proved to listen on a port; empty if no problem is known")
    ]
    healthy: bool | None
    notice: Annotated[Notice | None, says(description="latest notice")]
    preempted_for: Annotated[str, says(description="job for which it was preempted")] | None
    gpu_ids: list[str]
    share: Annotated[Share | None, says(description="share of each of gpu_ids; null: no GPUs, or whole ones")]
    covers: Annotated[str, says(description="shared GPU that it holds in Mesos for all shares")] | None
    launched_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    message: str


class Tasks(TypedDict):
    """A list of tasks."""

    tasks: list[Task]


class UnknownTask(TypedDict):
    """A running task of this framework that the scheduler's state does not know; an operator must end or adopt it."""

    id: str
    job_id: Annotated[str, says(description="null: its labels do not have it")] | None
    name: str | None
    state: Annotated[str, one_of(*(state for state in TaskState if state is not TaskState.ABSENT))]
    hostname: str
    agent_id: str
    gpu_ids: list[str]
    user: str | None
    app: str | None
    tasks: Annotated[int, says(minimum=1, description="number of tasks launched together")]
    since: Moment
    launched_at: Moment | None
    kill_requested: bool
    adoptable: Annotated[bool, says(description="whether its labels describe its job")]


class UnknownTasks(TypedDict):
    """Running tasks that the scheduler's state does not know."""

    tasks: list[UnknownTask]


class LogTime(TypedDict):
    """A time at which all output before an offset had been written."""

    offset: Count
    at: Moment


class Logs(TypedDict):
    """A piece of a task's output. Offsets are bytes; invalid UTF-8 becomes U+FFFD, unless base64 was requested."""

    data: str
    offset: Count
    next_offset: Count
    task_id: str
    times: (
        Annotated[
            list[LogTime],
            says(description="times of the output in `data`; null: not requested, or not known"),
        ]
        | None
    )


class Drain(TypedDict):
    """A drain: it keeps new work off a GPU or a node."""

    target: Annotated[str, one_of(*Target)]
    name: Annotated[str, says(description="UUID of the GPU, or host name")]
    reason: str
    by: str
    since: Moment
    deadline_at: Moment | None


class Reset(TypedDict):
    """A reset of a GPU in progress."""

    request: str
    reason: str
    by: str
    since: Moment


class GpuShare(Share):
    """A share of one GPU, and the job that has it."""

    task_id: str
    job_id: str | None
    job_name: str | None
    used: ShareUse | None


class GpuSharing(TypedDict):
    """Free capacity of a shared GPU, and its state in Mesos."""

    state: Annotated[
        str,
        one_of(*Cover),
        says(
            description="covered: a task of this framework holds it in Mesos; open: likewise, without shares now; "
            "uncovered: none does, and it takes no more shares"
        ),
    ]
    task_id: Annotated[str, says(description="task that holds it in Mesos for its shares")] | None
    memory_mib: (
        Annotated[int, says(minimum=0, description="memory for shares; null: its node does not report it")]
        | None
    )
    free_memory_mib: Count | None
    free_compute_pct: float
    method: Annotated[str, one_of(*Method)] | None
    domain: (
        Annotated[
            str, says(description="the only user whose shares it accepts; *: several users; null: any user")
        ]
        | None
    )


class Gpu(TypedDict):
    """A GPU, its health, and the job that holds it."""

    uuid: str
    model: str
    memory_mib: Mib
    compute_capability: str | None
    index: Annotated[Count | None, says(description="index in nvidia-smi; null: not listed now")]
    minor: Count
    pci_bus_id: str
    numa_node: int | None
    health: Annotated[str, one_of(*GpuHealth)]
    reason: str
    since: Moment | None
    node_health: Annotated[str, one_of(*GpuHealth)]
    node_reason: str
    warnings: list[str]
    drain: Drain | None
    reset: Reset | None
    hostname: str
    agent_id: str
    task_id: Annotated[str, says(description="task that holds the whole GPU; null if none does")] | None
    job_id: str | None
    job_name: str | None
    shares: list[GpuShare]
    sharing: Annotated[GpuSharing | None, says(description="null: not shared")]
    use: Annotated[GpuUse | None, says(description="null: its host does not report it")]


class Transition(TypedDict):
    """A change of a GPU's health; a note if `old` equals `new`."""

    at: Moment
    old: Annotated[str, one_of(*GpuHealth)]
    new: Annotated[str, one_of(*GpuHealth)]
    reason: str


class GpuWithHistory(Gpu):
    """A GPU with its history, oldest first."""

    history: list[Transition]


class Gpus(TypedDict):
    """GPUs, each listed once."""

    gpus: list[Gpu]


class Counted(TypedDict):
    """Numbers of GPUs."""

    gpus_total: Count
    gpus_used: Count
    gpus_sick: Annotated[int, says(minimum=0, description="GPUs that are neither ok nor drained")]
    gpus_drained: Count


_OFFERED: Final = "null while the next offer is on its way"


class Node(Counted):
    """An agent with its GPUs."""

    agent_id: str
    hostname: str
    state: Annotated[str, says(enum=["up", "unmonitored", "unfit", "backed-off", "lost"])]
    launch_problem: Annotated[str, says(description="why nothing is launched on it")] | None
    level_problem: (
        Annotated[str, says(description="contradiction for which it is left out of the levels of the fabric")]
        | None
    )
    attributes: dict[str, str]
    region: str | None
    zone: str | None
    driver_version: str | None
    cuda_version: str | None
    volume: str | None
    volume_problem: str | None
    isolation: str | None
    control_ports: str | None
    drain: Drain | None
    source: str | None
    reported_at: Moment | None
    tasks: Annotated[int, says(minimum=0, description="tasks that have not ended")]
    cpus_total: (
        Annotated[float, says(description=f"free and held by tasks of this framework; {_OFFERED}")] | None
    )
    cpus_free: Annotated[float, says(description=f"in the latest offers; {_OFFERED}")] | None
    mem_mib_total: (
        Annotated[float, says(description=f"free and held by tasks of this framework; {_OFFERED}")] | None
    )
    mem_mib_free: Annotated[float, says(description=f"in the latest offers; {_OFFERED}")] | None


class Nodes(TypedDict):
    """A list of nodes."""

    nodes: list[Node]


class Tls(TypedDict):
    """TLS of the REST interface."""

    subject: Annotated[str, says(description="subject of the certificate, as in RFC 4514")]
    names: list[str]
    not_after: Moment
    clients: Annotated[str, one_of(*Clients)]
    crl_until: Annotated[float, says(description="when the certificate revocation list expires")] | None
    loaded_at: Moment
    problem: Annotated[str, says(description="what an operator must correct")] | None


class Secured(TypedDict):
    """Protection of the REST interface."""

    open_to_all: Annotated[
        bool, says(description="whether other machines can reach it without authentication")
    ]
    tls: Tls | None
    issuer_problem: Annotated[str, says(description="why the issuer's keys could not be read")] | None


class Status(Counted, Secured):
    """The scheduler, and a summary of the cluster."""

    framework_id: str | None
    master_url: str
    connected: bool
    webui_url: str
    started_at: Moment
    version: str
    jobs: Annotated[dict[str, int], says(description="number of jobs in each state")]
    nodes: Count
    unsaved: Annotated[str, says(description="why changes cannot be saved, and are refused")] | None
    journal_problem: (
        Annotated[
            str, says(description="why the journal is larger than it should be, or is not written any more")
        ]
        | None
    )
    level_problem: (
        Annotated[
            str, says(description="contradiction for which agents are left out of the levels of the fabric")
        ]
        | None
    )
    tasks_unknown: Annotated[
        int, says(minimum=0, description="unknown tasks that an operator must end or adopt")
    ]
    drains: list[Drain]
    isolation_off: list[str]
    control_ports_off: list[str]


class Health(TypedDict):
    """Whether the scheduler can work."""

    ok: bool
    connected: Annotated[bool, says(description="whether it is connected to the Mesos master")]
    saves: Annotated[
        bool, says(description="whether changes can be saved; false with a full disk, for example")
    ]


class Removed(TypedDict):
    """The agents that one stage of the explanation excluded."""

    reason: Annotated[str, one_of(*Stage)]
    removed: Count
    left: Count
    example: str


class NodeReasons(TypedDict):
    """Reasons that keep a job off one node."""

    hostname: str
    agent_id: str
    reasons: list[str]


class Nearest(TypedDict):
    """The node that lacks least for a job."""

    hostname: str
    missing: str


class Estimate(TypedDict):
    """Estimated start of a job, and the basis of the estimate."""

    at: Annotated[float, says(description="seconds since the epoch; null: not known")] | None
    basis: str


class Why(TypedDict):
    """Reasons for which a job waits."""

    job_id: str
    state: Annotated[str, one_of(*JobState)]
    summary: str
    queue_position: Annotated[int, says(minimum=0, description="null: not pending")] | None
    can_ever_run: bool
    tasks_fit: Annotated[int, says(minimum=0, description="null: the job has one task")] | None
    agents: Count
    funnel: list[Removed]
    nodes: list[NodeReasons]
    nearest: Nearest | None
    estimate: Estimate | None


class Relief(TypedDict):
    """A change of one field with which a job that can never run could run."""

    field: str
    value: (
        Annotated[int, says(minimum=1, description="greatest value that works; null: leave the field out")]
        | None
    )


class JobPlan(TypedDict):
    """Prediction for a job that is submitted now; for an array, about its first task."""

    verdict: Annotated[str, one_of(*Verdict)]
    hostnames: Annotated[
        list[str],
        says(description="nodes with capacity for it now, or for one of its tasks; empty unless it fits"),
    ]
    reliefs: Annotated[list[Relief], says(description="empty unless it can never run")]
    why: Why


Move = TypedDict(
    "Move",
    {"job_id": str, "name": str, "from": str, "to": str, "gpu_ids": list[str], "lost_gpu_s": float},
)
Move.__doc__ = "A move of one job: it is ended on one host and starts again on another, on `gpu_ids` there."


class Place(TypedDict):
    """The place of a task after the moves."""

    hostname: str
    gpu_ids: list[str]


class Plan(TypedDict):
    """The fewest moves of jobs that make room. `target` is a list for a job with several tasks."""

    fits: bool
    feasible: bool
    proven_fewest: bool
    target: Place | list[Place] | None
    moves: list[Move]
    lost_gpu_s: float
    reason: str


class Problem(TypedDict):
    """A fault; `path` is a JSON pointer, or / and the name of a query parameter."""

    path: str
    reason: str


class _Said(TypedDict):
    code: str
    message: str
    remedy: str
    request_id: Annotated[str, says(description="id of the request in the audit log and the scheduler's log")]


class ErrorBody(_Said, total=False):
    """The error, and what to do; `problems` has all faults, only with 422."""

    problems: list[Problem]


class Error(TypedDict):
    """The form of all errors."""

    error: ErrorBody


class TargetGroup(TypedDict):
    """Addresses that Prometheus may scrape. Labels with names that begin with __meta_ are for relabelling only."""

    targets: list[str]
    labels: dict[str, str]
