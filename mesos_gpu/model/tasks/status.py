"""Status updates from Mesos, in plain types."""

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
    uuid: str | None = None  # base64; None if no acknowledgement is expected (reconciliation)
    data: bytes = b""
    healthy: bool | None = None  # result of health checks; None without a result
    at: float | None = None  # time of its creation on the sender's clock, seconds since the epoch
    proof: int | None = None  # number under which its executor sealed it; None without a valid seal
