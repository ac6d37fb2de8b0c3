"""The use of this host's cards, and what of it is each task's: counted from look to look, for the node monitor."""

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
    """What was counted of one holding of one card."""

    work: Work | None = None
    idle_since: float | None = None


class Counts:
    """Counts begin anew with each monitor; that is said by their `since`."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        """Nothing is counted yet. `clock`: seconds since the epoch."""
        self._ledger, self._clock = ledger, clock
        self._cards: dict[GpuId, Work | None] = {}
        #: None: the task took the card while it was read, and what is read next is in part of the time before.
        self._tasks: dict[tuple[str, GpuId], _Count | None] = {}
        self._processes = Processes()
        self._xids: dict[GpuId, int] = {}

    def look(self, readings: Iterable[Reading], began_ticks: int | None = None) -> Uses:
        """Count what was read of all cards; of cards and tasks that are gone nothing is kept.

        Args:
            readings: Of all cards.
            began_ticks: When reading began, clock ticks since boot; None: now.

        Raises:
            MesosGpuError: The ledger cannot be used.
        """
        began_ticks = ticks_now() if began_ticks is None else began_ticks
        now = self._clock()
        cards = {each.gpu.id: each for each in readings if not (each.lost or each.unreadable)}
        self._cards = {
            gpu: policy.counted(self._cards.get(gpu), each.span, now) for gpu, each in cards.items()
        }
        self._xids |= {gpu: each.xids[-1] for gpu, each in cards.items() if each.xids}
        gpu_uses = tuple(self._of_card(each, now) for each in cards.values())
        return gpu_uses[:MAX_GPU_USES], self._of_tasks(cards, now, began_ticks)

    def _of_card(self, reading: Reading, now: float) -> GpuUse:
        gpu = reading.gpu.id
        return GpuUse(
            gpu_id=gpu,
            at=now,
            meters=reading.meters,
            work=self._cards[gpu],
            processes=None if reading.pids is None else len(reading.pids),
            xid=self._xids.get(gpu),
        )

    def _of_tasks(self, cards: dict[GpuId, Reading], now: float, began_ticks: int) -> tuple[TaskUse, ...]:
        began_at = now - (ticks_now() - began_ticks + 1) / TICKS_PER_S  # ticks are rounded down
        holdings = [each for each in self._ledger.holdings() if each.gpus and self._ledger.alive(each)]
        members = zip(holdings, members_of(holdings), strict=True)
        tasks = {pid: each.task for each, pids in members for pid in pids}
        whose = self._processes.look(_named(cards.values()), tasks, began_ticks)
        before, self._tasks = self._tasks, {}
        uses = []
        for holding in holdings:
            for gpu in holding.gpus:
                if gpu in cards:
                    key = holding.task, gpu
                    uses.append(self._of_task(holding, whose, cards[gpu], before.get(key), now))
                    # Who was there at the look before was there when this one began, whatever the clock says.
                    if key not in before and holding.since >= began_at:
                        self._tasks[key] = None
        return tuple(uses[:MAX_TASK_USES])

    def _of_task(
        self, holding: Holding, whose: dict[int, Whose], reading: Reading, before: _Count | None, now: float
    ) -> TaskUse:
        """`before`: what was counted at the look before; None: it was not there when that began, so what the card did
        is not its."""
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
    """Process ids that readings name."""
    named: set[int] = set()
    for each in readings:
        named.update(each.pids or (), (pid for pid, _ in each.process_busy_ms or ()))
    return named


def _span(holding: Holding, reading: Reading, whose: dict[int, Whose]) -> Span | None:
    """What a task did of what its card did: all of it, if it holds the card whole and nobody else is known to be, or
    to have worked, on it; else what its processes did."""
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
    """What these processes hold of a card; None: the driver does not say it of each of them."""
    if pids is None:
        return None
    known = dict(reading.process_mib or ())
    return sum(known[pid] for pid in pids) if known.keys() >= {*pids} else None
