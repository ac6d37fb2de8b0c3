"""GPU work of tasks, as counted from monitor reports. It is not saved: work during a restart is unknown."""

from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work, between


@dataclass(frozen=True, slots=True)
class Count:
    """Work of one task on one GPU within a window.

    Attributes:
        at: Time of the host's latest sample, in seconds since the epoch by the host's clock.
        work: Counters at that time; None if the host could not read them.
        elapsed_ms: Length of the window so far.
        seen_ms: Part of the window for which the use is known.
        busy_ms: Part of the window in which the GPU ran kernels of the task.
    """

    at: float
    work: Work | None
    elapsed_ms: int = 0
    seen_ms: int = 0
    busy_ms: int = 0


@dataclass(slots=True)
class GpuWork:
    """Work of all tasks on their GPUs.

    Attributes:
        reported: Agents that have reported since the last look.
        counts: Counts by task and GPU.
    """

    reported: set[AgentId] = field(default_factory=set)
    counts: dict[TaskId, dict[GpuId, Count]] = field(default_factory=dict)


def counted(before: Count | None, use: TaskUse) -> Count:
    """Return a count updated by another report. The time between counters that do not follow each other is unknown."""
    if before is None or use.at < before.at:  # the host's clock was set back
        return Count(use.at, use.work)
    elapsed_ms = before.elapsed_ms + round((use.at - before.at) * 1000)
    span = between(before.work, use.work)
    if span is None:
        return Count(use.at, use.work, elapsed_ms, before.seen_ms, before.busy_ms)
    return Count(use.at, use.work, elapsed_ms, before.seen_ms + span.seen_ms, before.busy_ms + span.busy_ms)


def begun(count: Count) -> Count:
    """Return a count at the begin of a window."""
    return Count(count.at, count.work)
