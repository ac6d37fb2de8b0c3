"""What monitors have counted of each task's work on its cards. Not saved: what a restart misses is not known."""

from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work, between


@dataclass(frozen=True, slots=True)
class Count:
    """What is counted of one task on one card.

    Attributes:
        at: When its host looked last, seconds since the epoch by the host's clock.
        work: What it had counted then; None: it could not say.
        elapsed_ms: How long the job's window is so far.
        seen_ms: How much of that is known.
        busy_ms: In how much of that it was at work.
    """

    at: float
    work: Work | None
    elapsed_ms: int = 0
    seen_ms: int = 0
    busy_ms: int = 0


@dataclass(slots=True)
class GpuWork:
    """What is counted of all tasks.

    Attributes:
        reported: Agents that have reported since it was looked at last.
        counts: By task and card.
    """

    reported: set[AgentId] = field(default_factory=set)
    counts: dict[TaskId, dict[GpuId, Count]] = field(default_factory=dict)


def counted(before: Count | None, use: TaskUse) -> Count:
    """The count with another report. What lies between counts that do not follow from each other is not known."""
    if before is None or use.at < before.at:  # the host's clock was set back
        return Count(use.at, use.work)
    elapsed_ms = before.elapsed_ms + round((use.at - before.at) * 1000)
    span = between(before.work, use.work)
    if span is None:
        return Count(use.at, use.work, elapsed_ms, before.seen_ms, before.busy_ms)
    return Count(use.at, use.work, elapsed_ms, before.seen_ms + span.seen_ms, before.busy_ms + span.busy_ms)


def begun(count: Count) -> Count:
    """The count at the begin of a window."""
    return Count(count.at, count.work)
