"""The REST interface's answers as types; docs/reference/rest.md says what each field means."""

from typing import TypedDict

from mesos_gpu.model.job import JobState


class HealthCheck(TypedDict):
    """How a job's tasks are checked."""

    protocol: str
    command: str | None
    path: str | None
    port: int | None
    grace_period_s: int
    interval_s: int
    timeout_s: int
    max_consecutive_failures: int
    delay_s: int


class Job(TypedDict):
    """A job."""

    id: str
    name: str
    state: str
    version: int
    command: str | None
    argv: list[str] | None
    cpus: float
    mem_mib: int
    gpus: int
    gpu_model: list[str]
    gpu_memory_mib: int | None
    compute_capability: str | None
    tasks: int
    on_member_failure: str
    preemptible: bool
    env: dict[str, str]
    user: str | None
    labels: dict[str, str]
    max_attempts: int
    timeout_s: float | None
    kill_grace_s: float
    image: str | None
    container_engine: str | None
    on_gpu_failure: str
    min_driver: str | None
    placement: str | None
    priority: int
    queue: str
    app: str | None
    constraints: list[list[str]]
    near: str | None
    away: str | None
    ports: list[int]
    health_checks: list[HealthCheck]
    healthy: bool | None
    learnt_min_driver: str | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    attempts: int
    launches: int
    infrastructure_failures: int
    kill_requested: bool
    exit_code: int | None
    message: str | None
    task_id: str | None
    task_ids: list[str]
    hostname: str | None
    hostnames: list[str]
    gpu_ids: list[str]


class Task(TypedDict):
    """One launch of a job, or a node monitor."""

    id: str
    job_id: str | None
    name: str
    state: str
    hostname: str
    agent_id: str
    attempt: int
    rank: int
    ports: list[int]
    healthy: bool | None
    preempted_for: str | None
    gpu_ids: list[str]
    launched_at: float
    started_at: float | None
    ended_at: float | None
    message: str | None


class Drain(TypedDict):
    """What keeps new work off a GPU or a node."""

    target: str
    name: str
    reason: str
    by: str
    since: float
    deadline_at: float | None


class Reset(TypedDict):
    """A reset that its node has not answered yet."""

    request: str
    reason: str
    by: str
    since: float


class Transition(TypedDict):
    """A change of a GPU's health; a note if `old` is `new`."""

    at: float
    old: str
    new: str
    reason: str


class Gpu(TypedDict):
    """A GPU and who holds it."""

    uuid: str
    model: str
    memory_mib: int
    compute_capability: str | None
    minor: int
    pci_bus_id: str
    numa_node: int | None
    health: str
    reason: str | None
    since: float | None
    node_health: str
    node_reason: str | None
    warnings: list[str]
    drain: Drain | None
    reset: Reset | None
    hostname: str
    agent_id: str
    task_id: str | None
    job_id: str | None
    job_name: str | None


class GpuWithHistory(Gpu):
    """The same with its history, oldest first."""

    history: list[Transition]


class Node(TypedDict):
    """An agent."""

    agent_id: str
    hostname: str
    state: str
    attributes: dict[str, str]
    region: str | None
    zone: str | None
    gpus_total: int
    gpus_used: int
    gpus_sick: int
    gpus_drained: int
    driver_version: str | None
    cuda_version: str | None
    volume: str | None
    volume_problem: str | None
    isolation: str | None
    drain: Drain | None
    source: str | None
    reported_at: float | None
    tasks: int


class Status(TypedDict):
    """The scheduler and a summary of the cluster."""

    framework_id: str | None
    master_url: str | None
    connected: bool
    webui_url: str | None
    started_at: float
    version: str
    jobs: dict[str, int]
    gpus_total: int
    gpus_used: int
    gpus_sick: int
    gpus_drained: int
    nodes: int
    drains: list[Drain]
    isolation_off: list[str]


class NodeReasons(TypedDict):
    """What keeps a job off a node."""

    hostname: str
    agent_id: str
    reasons: list[str]


class Nearest(TypedDict):
    """The node that lacks least."""

    hostname: str
    missing: str


class Estimate(TypedDict):
    """When a pending job may start; null, and why nobody knows."""

    at: float | None
    basis: str


class Removed(TypedDict):
    """The agents that one stage removed, and how many were left after it."""

    reason: str
    removed: int
    left: int
    example: str


class Why(TypedDict):
    """Why a job waits."""

    job_id: str
    state: str
    summary: str
    queue_position: int | None
    can_ever_run: bool
    tasks_fit: int | None
    agents: int
    funnel: list[Removed]
    nodes: list[NodeReasons]
    nearest: Nearest | None
    estimate: Estimate | None


class Reservation(TypedDict):
    """What is kept for a blocked job; without a host only a share of its queue's limit."""

    hostname: str | None
    gpu_ids: list[str]
    at: float | None


class Waiting(TypedDict):
    """A pending job at its place."""

    position: int
    id: str
    name: str
    queue: str
    priority: int
    effective_priority: int
    gpus: int
    cpus: float
    mem_mib: int
    submitted_at: float
    reservation: Reservation | None
    estimate: Estimate


class QueueUse(TypedDict):
    """A queue, its limit and what it holds."""

    name: str
    limit_gpus: int | None
    used_gpus: int
    waiting: int


class Queue(TypedDict):
    """Answer of /v1/queue."""

    jobs: list[Waiting]
    queues: list[QueueUse]


class Target(TypedDict):
    """Where a task of a request has room."""

    hostname: str
    gpu_ids: list[str]


# `from` is no name in Python.
Move = TypedDict(
    "Move",
    {"job_id": str, "name": str, "from": str, "to": str, "gpu_ids": list[str], "lost_gpu_s": float},
)


class Plan(TypedDict):
    """Answer of /v1/plan/defrag; the target is a list for a request of several tasks."""

    fits: bool
    feasible: bool
    proven_fewest: bool
    target: Target | list[Target] | None
    moves: list[Move]
    lost_gpu_s: float
    reason: str


class Chunk(TypedDict):
    """A piece of what a task has written. Offsets are bytes."""

    data: str
    offset: int
    next_offset: int
    task_id: str


class Jobs(TypedDict):
    """Answer of /v1/jobs."""

    jobs: list[Job]


class Tasks(TypedDict):
    """Answer of /v1/jobs/{id}/tasks."""

    tasks: list[Task]


class Gpus(TypedDict):
    """Answer of /v1/gpus."""

    gpus: list[Gpu]


class Nodes(TypedDict):
    """Answer of /v1/nodes."""

    nodes: list[Node]


class Problem(TypedDict):
    """What is wrong at one place of a request."""

    path: str
    reason: str


def ended(job: Job) -> bool:
    """Whether nothing will change any more."""
    return JobState(job["state"]).ended
