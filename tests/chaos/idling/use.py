"""The simulated use of cards by launches, and the counts of monitors."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work

_MS: Final = 1000


class Doing(Enum):
    """The use of its cards by a launch, and whether the driver reports it."""

    UNTOLD = "untold"  # an older monitor, or a driver without samples
    BUSY = "busy"
    NOW_AND_THEN = "now and then"  # neither idle nor at work
    IDLE = "idle"


_BUSY_PERCENT: Final = {Doing.BUSY: 90, Doing.NOW_AND_THEN: 7, Doing.IDLE: 0}


@dataclass(slots=True)
class _Count:
    """The counts of one monitor for a launch, equal on all of its cards."""

    monitor: TaskId
    since: float
    seen_ms: int = 0
    busy_ms: int = 0


@dataclass(slots=True)
class Meters:
    """The use of cards by all launches; monitors report it for those whose use was chosen."""

    doing: dict[TaskId, Doing] = field(default_factory=dict)
    _looked_at: dict[TaskId, float] = field(default_factory=dict)
    _counts: dict[TaskId, _Count] = field(default_factory=dict)

    def change(self, task_id: TaskId, doing: Doing, now: float) -> None:
        """Change the use of cards by a launch from now on, after counting its use until now."""
        self._look(task_id, now)
        self.doing[task_id] = doing

    def told(
        self, monitor: TaskId, held: Iterable[tuple[TaskId, tuple[GpuId, ...]]], now: float
    ) -> tuple[TaskUse, ...]:
        """Return the report of a monitor about launches on its node; a new monitor starts new counts."""
        uses: list[TaskUse] = []
        for task_id, gpus in held:
            if task_id not in self.doing:
                continue
            count = self._counts.get(task_id)
            if count is None or count.monitor != monitor:
                self._counts[task_id], self._looked_at[task_id] = _Count(monitor, now), now
            self._look(task_id, now)
            count = self._counts[task_id]
            work = Work(count.since, count.seen_ms, count.busy_ms) if count.seen_ms else None
            uses += [TaskUse(task_id, gpu_id, now, work=work) for gpu_id in gpus]
        return tuple(uses)

    def _look(self, task_id: TaskId, now: float) -> None:
        before, self._looked_at[task_id] = self._looked_at.get(task_id, now), now
        count, percent = self._counts.get(task_id), _BUSY_PERCENT.get(self.doing.get(task_id, Doing.UNTOLD))
        if count is not None and percent is not None and now > before:
            passed_ms = int((now - before) * _MS)
            count.seen_ms += passed_ms
            count.busy_ms += passed_ms * percent // 100
