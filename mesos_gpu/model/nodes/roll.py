"""Replacement of node monitors by those of the scheduler's release. Times are seconds since the epoch."""

from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, TaskId


@dataclass(slots=True)
class MonitorReplacement:
    """Replacement of one monitor.

    Attributes:
        old: Task of the old monitor.
        since: Time of the first request to end.
        asked_at: Time of the latest request to end.
        launches: Number of monitors that the node had had by then.
        well: GPUs that were ok in its last report.
        failed: Reason why the latest new monitor ended; "" if none has ended.
    """

    old: TaskId
    since: float
    asked_at: float
    launches: int
    well: tuple[GpuId, ...] = ()
    failed: str = ""


@dataclass(slots=True)
class MonitorReplacements:
    """All replacements since the scheduler started; `looked_at`: time of the last search for outdated monitors."""

    under_way: dict[AgentId, MonitorReplacement] = field(default_factory=dict)
    done: int = 0
    looked_at: float = 0.0
