"""What launches truly do with their cards, and what their nodes' monitors count of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work

_MS: Final = 1000


class Doing(Enum):
    """What a launch does with its cards, and whether the driver tells it."""

    UNTOLD = "untold"  # its monitor is older, or its driver keeps no samples
    BUSY = "busy"
    NOW_AND_THEN = "now and then"  # more than idle, and less than work
    IDLE = "idle"


_BUSY_PERCENT: Final = {Doing.BUSY: 90, Doing.NOW_AND_THEN: 7, Doing.IDLE: 0}


@dataclass(slots=True)
class _Count:
    """What one monitor has counted of a launch, on each card the same."""

    monitor: TaskId
    since: float
    seen_ms: int = 0
    busy_ms: int = 0


@dataclass(slots=True)
class Meters:
    """All launches; what nobody has decided of one its monitor does not tell."""

    doing: dict[TaskId, Doing] = field(default_factory=dict)
    _looked_at: dict[TaskId, float] = field(default_factory=dict)
    _counts: dict[TaskId, _Count] = field(default_factory=dict)

    def change(self, task_id: TaskId, doing: Doing, now: float) -> None:
        """Let a launch do something else from now on; what it did since the last look is told as what it was."""
        self._look(task_id, now)
        self.doing[task_id] = doing

    def told(
        self, monitor: TaskId, held: Iterable[tuple[TaskId, tuple[GpuId, ...]]], now: float
    ) -> tuple[TaskUse, ...]:
        """What a monitor reports of launches on its node. One that has begun since the last look counts anew."""
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
