"""Node monitors that are being replaced by those of this scheduler's release. Times are seconds since the epoch."""

from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, TaskId


@dataclass(slots=True)
class Roll:
    """A monitor that is being replaced.

    Attributes:
        old: Its task.
        since: When that was first asked to end.
        asked_at: When it was last.
        launches: How many monitors its node had had by then.
        well: The cards that were ok by its last report.
        failed: Why the latest new one ended; "": none has.
    """

    old: TaskId
    since: float
    asked_at: float
    launches: int
    well: tuple[GpuId, ...] = ()
    failed: str = ""


@dataclass(slots=True)
class Rolls:
    """All of them, since the scheduler started; `looked_at`: when the next were last looked for."""

    under_way: dict[AgentId, Roll] = field(default_factory=dict)
    done: int = 0
    looked_at: float = 0.0
