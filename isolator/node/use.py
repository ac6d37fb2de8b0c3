"""Use of this host's cards, in total and by task, counted from look to look by the node monitor."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from isolator.devices.members import members_of
from isolator.gpus.ledger import Holding, Ledger
from isolator.node.whose import TICKS_PER_S, Processes, Whose, ticks_now
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import MAX_GPU_USES, MAX_TASK_USES, GpuUse, Span, TaskUse, Work
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.policy.gpus import use as policy

Uses = tuple[tuple[GpuUse, ...], tuple[TaskUse, ...]]


@dataclass(frozen=True, slots=True)
class _Count:
    """Use of one card by one task so far."""

    work: Work | None = None
    idle_since: float | None = None


class Counts:
    """Counts of GPU use by card and by task, kept from one sample to the next.

    They start from zero with each monitor; their field `since` says when.

    Args:
        ledger: The ledger of this host.
        clock: Clock in seconds since the epoch.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger, self._clock = ledger, clock
        self._cards: dict[GpuId, Work | None] = {}
        #: None for a task that claimed the card during sampling; its first sample is discarded.
        self._tasks: dict[tuple[str, GpuId], _Count | None] = {}
        self._processes = Processes()
        self._xids: dict[GpuId, int] = {}

    def look(self, readings: Iterable[Reading], began_ticks: int | None = None) -> Uses:
        """Count one sample of all cards; cards and tasks that are gone are forgotten.

        Args:
            readings: Readings of all cards.
            began_ticks: Time when reading began, in clock ticks since boot; now by default.

        Raises:
            MesosGpuError: The ledger cannot be used.
        """
        began_ticks = ticks_now() if began_ticks is None else began_ticks
        now = self._clock()
        cards = {reading.gpu.id: reading for reading in readings if not (reading.lost or reading.unreadable)}
        self._cards = {
            gpu: policy.counted(self._cards.get(gpu), reading.span, now) for gpu, reading in cards.items()
        }
        self._xids |= {gpu: reading.xids[-1] for gpu, reading in cards.items() if reading.xids}
        gpu_uses = tuple(self._card_use(reading, now) for reading in cards.values())
        return gpu_uses[:MAX_GPU_USES], self._task_uses(cards, now, began_ticks)

    def _card_use(self, reading: Reading, now: float) -> GpuUse:
        gpu = reading.gpu.id
        return GpuUse(
            gpu_id=gpu,
            at=now,
            meters=reading.meters,
            work=self._cards[gpu],
            processes=None if reading.pids is None else len(reading.pids),
            xid=self._xids.get(gpu),
        )

    def _task_uses(self, cards: dict[GpuId, Reading], now: float, began_ticks: int) -> tuple[TaskUse, ...]:
        """Return the use of each card by each living task."""
        # one tick more, as ticks are rounded down
        began_at = now - (ticks_now() - began_ticks + 1) / TICKS_PER_S
        holdings = [
            holding for holding in self._ledger.holdings() if holding.gpus and self._ledger.alive(holding)
        ]
        members = zip(holdings, members_of(holdings), strict=True)
        tasks = {pid: holding.task for holding, pids in members for pid in pids}
        whose = self._processes.look(_named(cards.values()), tasks, began_ticks)
        before, self._tasks = self._tasks, {}
        uses = []
        for holding in holdings:
            for gpu in holding.gpus:
                if gpu in cards:
                    key = holding.task, gpu
                    uses.append(self._of_task(holding, whose, cards[gpu], before.get(key), now))
                    # A task of the previous sample held the card when this one began, whatever the clock
                    # says.
                    if key not in before and holding.since >= began_at:
                        self._tasks[key] = None
        return tuple(uses[:MAX_TASK_USES])

    def _of_task(
        self, holding: Holding, whose: dict[int, Whose], reading: Reading, before: _Count | None, now: float
    ) -> TaskUse:
        """Count one sample of a task on a card, and return its use.

        Args:
            before: Counters of the previous sample; None if the task did not hold the card when that began,
                so that the card's work cannot be attributed to it.
        """
        present = reading.pids
        pids = None if present is None else [pid for pid in present if whose[pid].present == holding.task]
        span = None if before is None else _span(holding, reading, whose)
        before = before or _Count()
        now_counted = _Count(
            policy.counted(before.work, span, now), policy.idle_since(before.idle_since, span, now)
        )
        self._tasks[holding.task, reading.gpu.id] = now_counted
        return TaskUse(
            task_id=TaskId(holding.task),
            gpu_id=reading.gpu.id,
            at=now,
            processes=None if pids is None else len(pids),
            memory_mib=_memory_mib(reading, pids),
            work=now_counted.work,
            idle_since=now_counted.idle_since,
        )


def _named(readings: Iterable[Reading]) -> set[int]:
    """Return all process ids in the readings."""
    named: set[int] = set()
    for reading in readings:
        named.update(reading.pids or (), (pid for pid, _ in reading.process_busy_ms or ()))
    return named


def _span(holding: Holding, reading: Reading, whose: dict[int, Whose]) -> Span | None:
    """Return a task's part of what its card did.

    It is all of it if the task holds the whole card and no other is known to be, or to have worked, there;
    else the part of its processes.
    """
    busy = dict(reading.process_busy_ms or ())
    task = holding.task
    others = any(whose[pid].present not in (task, None) for pid in reading.pids or ()) or any(
        ms and whose[pid].worked not in (task, None) for pid, ms in busy.items()
    )
    if holding.share is None and not others:
        return reading.span
    own = [pid for pid in busy if whose[pid].worked == task]
    unknown = [pid for pid in busy if whose[pid].worked is None]
    return policy.busy_of(reading.span, busy, own, unknown)


def _memory_mib(reading: Reading, pids: list[int] | None) -> int | None:
    """Return the MiB that these processes hold on a card; None if the driver does not report each of them."""
    if pids is None:
        return None
    memory_of = dict(reading.process_mib or ())
    return sum(memory_of[pid] for pid in pids) if memory_of.keys() >= {*pids} else None
