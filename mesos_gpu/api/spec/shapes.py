"""What /v1 answers, as types: the views are checked against them, and api/openapi.py prints them.

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
    version: Annotated[int, says(description="grows with each change of the job")]
    owner: Annotated[
        str | None,
        says(description="who submitted it; with a ?: the user that it names, unproved; null: neither"),
    ]
    hidden: Annotated[bool, says(description="what it runs is hidden from who asks: such fields are empty")]


class Requested(TypedDict):
    """What a job asks for: all of it, and timeout_s, is of each of its tasks.

    Here stand the fields that code reads by name; the others are known by their declaration alone.
    """

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
        str | None, says(description="user, or that of jobs that name none; null: the executors' own")
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
    """Who sees to it that a share is kept: hardware, kernel, driver, cooperative (the task's own libraries) or none."""

    memory: Annotated[str, says(description="that it gets no more, and keeps its own")]
    compute: str
    faults: Annotated[
        str,
        says(
            enum=["contained", "user", "card"],
            description="user: what one of its user's breaks, all of them lose; card: all that are on the GPU",
        ),
    ]


class Share(TypedDict):
    """What a task is granted of each of its GPUs."""

    memory_mib: Mib
    memory_max_mib: Annotated[int, says(minimum=0, description="that it may use while others leave it")]
    compute_pct: float
    method: Annotated[str, one_of(*Method)]
    instance: Annotated[str, says(description="the UUID of its MIG instance")] | None
    guarantee: Guarantee


class ShareUse(TypedDict):
    """What a task uses of its share of a GPU, as its node last reported it; null where nobody can say."""

    memory_mib: Count | None
    most_memory_mib: Annotated[int, says(minimum=0, description="that was seen")] | None
    compute_pct: Annotated[float, says(description="of the GPU's time since the report before")] | None
    refused: Annotated[int, says(minimum=0, description="allocations that did not fit its share")] | None
    windows_missed: Annotated[int, says(minimum=0, description="to pay for work that ran over")] | None
    problem: Annotated[str, says(description="such as a libcuda that does not keep the share")] | None


class UsedShare(ShareUse):
    """What a task of a job uses, and of which GPU."""

    gpu_id: str
    task_id: str


class Resize(TypedDict):
    """The latest change of a job's shares that was asked for. While it is `asked` or `withdrawing`, its GPUs count the
    more of both."""

    state: Annotated[str, says(enum=["asked", "done", "refused", "withdrawing", "withdrawn"])]
    memory_mib: Mib
    memory_max_mib: Mib
    compute_pct: float
    since: Moment
    reason: Annotated[str, says(description="why it was refused")] | None
    used_memory_mib: Annotated[int, says(minimum=0, description="where that is why it was refused")] | None
    restart: Annotated[bool, says(description="whether it could have it if it started again")]


class Progress(TypedDict):
    """How far a job has come, and where its latest launch is."""

    healthy: Annotated[bool, says(description="null: no checks, or not all were made")] | None
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
    task_ids: Annotated[list[str], says(description="of the latest launch, by rank")]
    hostname: str | None
    hostnames: list[str]
    gpu_ids: list[str]
    share: Annotated[
        Share | None, says(description="of each of gpu_ids; null: it holds none, or all of them")
    ]
    share_uses: Annotated[list[UsedShare], says(description="of each task and GPU, as far as it is known")]
    use: Annotated[JobUse | None, says(description="null: it holds none, or its hosts do not say it")]
    resize: Resize | None
    notice: Annotated[Notice | None, says(description="of its latest launch")]
    coming_end: Annotated[ComingEnd | None, says(description="null: no end is known")]
    idle: Annotated[JobIdle | None, says(description="null: it was not seen idle, and nobody keeps it")]
    checkpoint_at: Annotated[float, says(description="up to when its work is kept")] | None
    stopped: Annotated[int, says(minimum=0, description="how often it made room for others")]
    array_id: Annotated[str, says(description="that it is a task of")] | None
    array_index: Count | None
    array_counts: ArrayCounts | None
    room_made_by: Annotated[list[str], says(description="jobs that end, or ended, so that it has room")]


class Job(_Named, Requested, Progress):
    """A job, and where its latest launch is. All that it asks for, and its timeout_s, is of each of its tasks."""


class Jobs(TypedDict):
    """The first jobs of those that match, newest first if no other order is asked for; total: so many match."""

    jobs: list[Job]
    total: Count


class Task(TypedDict):
    """A launch, a node monitor, or a task that holds a shared GPU in Mesos."""

    id: str
    job_id: Annotated[str, says(description="null: it is no launch")] | None
    name: str
    state: Annotated[str, one_of(*(state for state in TaskState if state is not TaskState.ABSENT))]
    ended_as: Annotated[
        str | None,
        says(
            description="preempted or evicted (a drain, a broken GPU): the scheduler ended it, and the job goes on"
        ),
    ]
    hostname: str
    agent_id: str
    attempt: int
    rank: int
    ports: list[int]
    ports_problem: Annotated[
        str, says(description="why a port is not proved to be the task's; empty if no problem is known")
    ]
    healthy: bool | None
    notice: Annotated[Notice | None, says(description="the latest")]
    preempted_for: Annotated[str, says(description="the job that it made room for")] | None
    gpu_ids: list[str]
    share: Annotated[Share | None, says(description="of each of gpu_ids; null: none, or all of them")]
    covers: Annotated[str, says(description="the GPU that it holds in Mesos for all that share it")] | None
    launched_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    message: str


class Tasks(TypedDict):
    """Tasks."""

    tasks: list[Task]


class UnknownTask(TypedDict):
    """A task of ours that runs and that the scheduler's state did not know: it waits for an operator's word."""

    id: str
    job_id: Annotated[str, says(description="null: its labels do not say")] | None
    name: str | None
    state: Annotated[str, one_of(*(state for state in TaskState if state is not TaskState.ABSENT))]
    hostname: str
    agent_id: str
    gpu_ids: list[str]
    user: str | None
    app: str | None
    tasks: Annotated[int, says(minimum=1, description="that were launched together")]
    since: Moment
    launched_at: Moment | None
    kill_requested: bool
    adoptable: Annotated[bool, says(description="whether its labels say what it is")]


class UnknownTasks(TypedDict):
    """Tasks that are held because the state does not know them."""

    tasks: list[UnknownTask]


class LogTime(TypedDict):
    """A moment at which all before an offset of a stream had been written."""

    offset: Count
    at: Moment


class Logs(TypedDict):
    """A piece of a task's output; offsets are bytes; what is no UTF-8 is U+FFFD, unless base64 was asked for."""

    data: str
    offset: Count
    next_offset: Count
    task_id: str
    times: (
        Annotated[list[LogTime], says(description="of what is in data; null: not asked for, or not known")]
        | None
    )


class Drain(TypedDict):
    """What keeps new work off a GPU or a node."""

    target: Annotated[str, one_of(*Target)]
    name: Annotated[str, says(description="a UUID, or a host name")]
    reason: str
    by: str
    since: Moment
    deadline_at: Moment | None


class Reset(TypedDict):
    """A reset of a GPU that is under way."""

    request: str
    reason: str
    by: str
    since: Moment


class GpuShare(Share):
    """A share of one GPU, and whose it is."""

    task_id: str
    job_id: str | None
    job_name: str | None
    used: ShareUse | None


class GpuSharing(TypedDict):
    """What is left of a GPU that tasks share, and how it stands in Mesos."""

    state: Annotated[
        str,
        one_of(*Cover),
        says(
            description="covered: a task of ours holds it in Mesos; open: so it is, without shares now; "
            "uncovered: none does, and it takes no more shares"
        ),
    ]
    task_id: Annotated[str, says(description="that holds it in Mesos for its shares")] | None
    memory_mib: Annotated[int, says(minimum=0, description="for shares; null: its node does not say")] | None
    free_memory_mib: Count | None
    free_compute_pct: float
    method: Annotated[str, one_of(*Method)] | None
    domain: Annotated[str, says(description="user whose shares alone it takes; *: several; null: any")] | None


class Gpu(TypedDict):
    """A GPU, how it stands, and who holds it."""

    uuid: str
    model: str
    memory_mib: Mib
    compute_capability: str | None
    index: Annotated[Count | None, says(description="as nvidia-smi shows; null: not listed now")]
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
    task_id: Annotated[str, says(description="that holds all of it; null: none does")] | None
    job_id: str | None
    job_name: str | None
    shares: list[GpuShare]
    sharing: Annotated[GpuSharing | None, says(description="null: it is not shared")]
    use: Annotated[GpuUse | None, says(description="null: its host does not say it")]


class Transition(TypedDict):
    """A change of a GPU's health; where `old` is `new` it is a note."""

    at: Moment
    old: Annotated[str, one_of(*GpuHealth)]
    new: Annotated[str, one_of(*GpuHealth)]
    reason: str


class GpuWithHistory(Gpu):
    """A GPU and its history, oldest first."""

    history: list[Transition]


class Gpus(TypedDict):
    """GPUs, each once."""

    gpus: list[Gpu]


class Counted(TypedDict):
    """GPUs, counted."""

    gpus_total: Count
    gpus_used: Count
    gpus_sick: Annotated[int, says(minimum=0, description="neither ok nor drained")]
    gpus_drained: Count


_OFFERED: Final = "null while the next offer is on its way"


class Node(Counted):
    """An agent with its GPUs."""

    agent_id: str
    hostname: str
    state: Annotated[str, says(enum=["up", "unmonitored", "unfit", "backed-off", "lost"])]
    launch_problem: Annotated[str, says(description="why it gets no launches")] | None
    level_problem: (
        Annotated[str, says(description="contradiction that has it outside of the levels of the fabric")]
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
    tasks: Annotated[int, says(minimum=0, description="that have not ended")]
    cpus_total: Annotated[float, says(description=f"free, and of tasks of this framework; {_OFFERED}")] | None
    cpus_free: Annotated[float, says(description=f"of the latest offers; {_OFFERED}")] | None
    mem_mib_total: (
        Annotated[float, says(description=f"free, and of tasks of this framework; {_OFFERED}")] | None
    )
    mem_mib_free: Annotated[float, says(description=f"of the latest offers; {_OFFERED}")] | None


class Nodes(TypedDict):
    """Nodes."""

    nodes: list[Node]


class Tls(TypedDict):
    """TLS of the interface."""

    subject: Annotated[str, says(description="of its certificate, as RFC 4514 writes it")]
    names: list[str]
    not_after: Moment
    clients: Annotated[str, one_of(*Clients)]
    crl_until: (
        Annotated[float, says(description="when the list of revoked certificates must have been renewed")]
        | None
    )
    loaded_at: Moment
    problem: Annotated[str, says(description="what an operator must correct")] | None


class Secured(TypedDict):
    """What keeps others from the interface."""

    open_to_all: Annotated[
        bool, says(description="other machines reach it, and nobody has to prove who he is")
    ]
    tls: Tls | None
    issuer_problem: Annotated[str, says(description="why keys of the issuer could not be read")] | None


class Status(Counted, Secured):
    """The scheduler and a summary."""

    framework_id: str | None
    master_url: str
    connected: bool
    webui_url: str
    started_at: Moment
    version: str
    jobs: Annotated[dict[str, int], says(description="how many jobs are in each state")]
    nodes: Count
    unsaved: Annotated[str, says(description="why no change can be saved, so that none is taken")] | None
    journal_problem: (
        Annotated[str, says(description="why the journal is larger than it should be, or has ended")] | None
    )
    level_problem: (
        Annotated[str, says(description="contradiction that has agents outside of the levels of the fabric")]
        | None
    )
    tasks_unknown: Annotated[
        int, says(minimum=0, description="held until an operator says what becomes of them")
    ]
    drains: list[Drain]
    isolation_off: list[str]
    control_ports_off: list[str]


class Health(TypedDict):
    """Whether the scheduler can do its work."""

    ok: bool
    connected: Annotated[bool, says(description="to the master")]
    saves: Annotated[bool, says(description="whether changes can be saved, as not on a full disk")]


class Removed(TypedDict):
    """The agents that one stage removed."""

    reason: Annotated[str, one_of(*Stage)]
    removed: Count
    left: Count
    example: str


class NodeReasons(TypedDict):
    """What keeps a job off one node."""

    hostname: str
    agent_id: str
    reasons: list[str]


class Nearest(TypedDict):
    """The node that lacks least."""

    hostname: str
    missing: str


class Estimate(TypedDict):
    """When a job may start, and what that follows from."""

    at: Annotated[float, says(description="seconds since the epoch; null: nobody knows")] | None
    basis: str


class Why(TypedDict):
    """Why a job waits."""

    job_id: str
    state: Annotated[str, one_of(*JobState)]
    summary: str
    queue_position: Annotated[int, says(minimum=0, description="null: it is not pending")] | None
    can_ever_run: bool
    tasks_fit: Annotated[int, says(minimum=0, description="null: the job has one task")] | None
    agents: Count
    funnel: list[Removed]
    nodes: list[NodeReasons]
    nearest: Nearest | None
    estimate: Estimate | None


class Relief(TypedDict):
    """A change of one field of a request by which a job that can never run could run."""

    field: str
    value: (
        Annotated[int, says(minimum=1, description="the most that it may be; null: leave the field out")]
        | None
    )


class JobPlan(TypedDict):
    """Fate of a job that is submitted now; of an array, of its first task."""

    verdict: Annotated[str, one_of(*Verdict)]
    hostnames: Annotated[
        list[str],
        says(description="nodes that have room for it now, or for a task of it; empty unless it fits"),
    ]
    reliefs: Annotated[list[Relief], says(description="empty unless it can never run")]
    why: Why


Move = TypedDict(
    "Move",
    {"job_id": str, "name": str, "from": str, "to": str, "gpu_ids": list[str], "lost_gpu_s": float},
)
Move.__doc__ = "One job is ended on one host and starts again on another; `gpu_ids` are there."


class Place(TypedDict):
    """Where a task has room after the moves."""

    hostname: str
    gpu_ids: list[str]


class Plan(TypedDict):
    """The fewest moves of jobs that make room; `target` is a list for a job of several tasks."""

    fits: bool
    feasible: bool
    proven_fewest: bool
    target: Place | list[Place] | None
    moves: list[Move]
    lost_gpu_s: float
    reason: str


class Problem(TypedDict):
    """A thing that is wrong; `path` is a JSON pointer, or / and the name of a query parameter."""

    path: str
    reason: str


class _Said(TypedDict):
    code: str
    message: str
    remedy: str
    request_id: Annotated[str, says(description="that the audit log and the scheduler's log have it by")]


class ErrorBody(_Said, total=False):
    """What went wrong, and what to do; `problems` only with 422, all at once."""

    problems: list[Problem]


class Error(TypedDict):
    """The one shape of an error."""

    error: ErrorBody


class TargetGroup(TypedDict):
    """Addresses that Prometheus may scrape. Names that begin with __meta_ are for relabelling alone."""

    targets: list[str]
    labels: dict[str, str]
