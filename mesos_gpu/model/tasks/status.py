"""A status update as Mesos sends it, in plain types."""

from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, TaskId


@dataclass(frozen=True, slots=True)
class Status:
    """A TaskStatus. `state` and `reason` are names of Mesos (TASK_RUNNING, REASON_EXECUTOR_TERMINATED)."""

    task_id: TaskId
    state: str
    agent_id: AgentId | None = None
    reason: str = ""
    source: str = ""
    message: str = ""
    uuid: str | None = None  # base64; None: nothing to acknowledge (reconciliation)
    data: bytes = b""
    healthy: bool | None = None  # what health checks say of the task; None: nothing, or not yet
    at: float | None = None  # when its sender made it, by his clock, in seconds since the epoch
    proof: int | None = None  # the number that its executor sealed it with; None: it has no seal that holds
