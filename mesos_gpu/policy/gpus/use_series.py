"""Recent utilization of cards, tasks and the cluster, in bounded memory. Pure.

The last 15 minutes are kept in fine steps, a day in coarse ones. Unknown values are None, and a mean is taken over
known values only.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import GpuUse, TaskUse, Work, busy_pct
from mesos_gpu.model.nodes.node import Node

FINE_S: Final = 10.0
FINE_SLOTS: Final = 90
COARSE_S: Final = 300.0
COARSE_SLOTS: Final = 288
RECENT_S: Final = 60.0  # age up to which a value counts as current
SAMPLE_S: Final = 30.0  # least interval of samples of the whole cluster
MAX_SERIES: Final = 20_000  # series of cards, and as many of tasks; further ones are not kept
KEPT_S: Final = COARSE_S * COARSE_SLOTS
_UNSEEN: Final = (0.0, 0.0)  # times of the latest report, before the first
K = TypeVar("K", GpuId, TaskId)
N = TypeVar("N", int, float)
Values = tuple[float | None, float | None, float | None]  # busy percent, MiB used, watts


class _Kind(NamedTuple):
    """Encoding of a column: whole numbers of `1 / parts`; the largest number of the type stands for unknown."""

    type: str  # type code of `array`
    parts: int
    unknown: int


_KINDS: Final = (  # columns of `Values`; a day of all three takes 3 KB
    _Kind("H", 100, 0xFFFF),  # percent
    _Kind("I", 1, 0xFFFFFFFF),
    _Kind("H", 10, 0xFFFF),
)
_CLUSTER: Final = (  # GPUs in all, allocated GPUs, their mean utilization in percent, watts
    _Kind("I", 100, 0xFFFFFFFF),
    _Kind("I", 100, 0xFFFFFFFF),
    _Kind("H", 100, 0xFFFF),
    _Kind("I", 1, 0xFFFFFFFF),
)


@dataclass(slots=True)
class Ring:
    """Means of the latest `slots` time steps of `step_s` seconds each.

    A column is only as long as the time since the first report, and is not allocated while all of its values are
    unknown: most tasks are short, and have no power value of their own.
    """

    step_s: float
    slots: int
    kinds: tuple[_Kind, ...] = _KINDS
    last: int = -1  # number of the latest slot, counted from the epoch
    kept: int = 0  # number of kept slots, with the latest one
    means: "array[float]" = field(init=False)  # number of values and mean of the latest slot, by column
    columns: "list[array[int] | None]" = field(init=False)

    def __post_init__(self) -> None:
        self.means = array("d", [0.0] * (2 * len(self.kinds)))
        self.columns = [None] * len(self.kinds)

    def note(self, now: float, values: Sequence[float | None]) -> None:
        """Add values of a time in seconds since the epoch; a time before the latest slot is ignored."""
        slot = int(now // self.step_s)
        if slot < self.last:
            return
        if slot > self.last:
            self._go_on(slot)
        for n, value in enumerate(values):
            if value is not None:
                count, old = self.means[2 * n] + 1, self.means[2 * n + 1]
                mean = old + (value - old) / count
                self.means[2 * n], self.means[2 * n + 1] = count, mean
                kind = self.kinds[n]
                self._column(n)[-1] = min(round(mean * kind.parts), kind.unknown - 1)

    def _column(self, n: int) -> "array[int]":
        """Return the array of a column; allocate it at first use."""
        kind, column = self.kinds[n], self.columns[n]
        if column is None:
            column = self.columns[n] = array(kind.type, [kind.unknown]) * self.kept
        return column

    def _go_on(self, slot: int) -> None:
        """Start a slot; the slots skipped since the latest one are unknown."""
        more = 1 if self.last < 0 else min(slot - self.last, self.slots)
        over = max(self.kept + more - self.slots, 0)
        for kind, column in zip(self.kinds, self.columns, strict=True):
            if column is not None:
                column.extend([kind.unknown] * more)
                del column[:over]
        self.kept += more - over
        self.last = slot
        self.means[:] = array("d", [0.0] * len(self.means))

    def read(self, now: float) -> tuple[list[float | None], ...]:
        """Return for each column the means of all slots up to a time, oldest first."""
        slot = int(now // self.step_s)
        numbers = range(slot - self.slots + 1, slot + 1)
        return tuple([self._mean(column, number) for number in numbers] for column in range(len(self.kinds)))

    def _mean(self, n: int, slot: int) -> float | None:
        """Return the mean of a column in a slot; None if unknown."""
        kind, column, at = self.kinds[n], self.columns[n], slot - self.last + self.kept - 1
        if column is None or not 0 <= at < self.kept or column[at] == kind.unknown:
            return None
        return column[at] / kind.parts

    def recent(self, now: float, span_s: float) -> float | None:
        """Return the mean of the first column over the latest seconds; None if nothing is known of them."""
        slot = int(now // self.step_s)
        means = [self._mean(0, slot - n) for n in range(int(span_s // self.step_s) + 1)]
        known_means = [mean for mean in means if mean is not None]
        return sum(known_means) / len(known_means) if known_means else None

    def latest(self, n: int, now: float, span_s: float) -> float | None:
        """Return the latest known mean of column `n` in the last `span_s` seconds, or None without one."""
        slot = int(now // self.step_s)
        for number in range(slot, slot - int(span_s // self.step_s) - 1, -1):
            if (mean := self._mean(n, number)) is not None:
                return mean
        return None


@dataclass(slots=True)
class Series:
    """Recent utilization of one card or one task."""

    fine: Ring = field(default_factory=lambda: Ring(FINE_S, FINE_SLOTS))
    coarse: Ring = field(default_factory=lambda: Ring(COARSE_S, COARSE_SLOTS))
    noted_at: float = 0.0

    def note(self, now: float, values: Values) -> None:
        """Add values of a time in seconds since the epoch."""
        self.noted_at = now
        self.fine.note(now, values)
        self.coarse.note(now, values)


class UseHistory:
    """Recent utilization of cards and tasks, from their hosts' reports, and of the cluster, from samples of all
    cards."""

    def __init__(self) -> None:
        self.cards: dict[GpuId, Series] = {}
        self.tasks: dict[TaskId, Series] = {}
        self.cluster = Ring(COARSE_S, COARSE_SLOTS, _CLUSTER)
        #: Last reported work by task and card; task "" for the card itself.
        self._works: dict[tuple[str, GpuId], Work] = {}
        #: Time of each agent's latest report, by the host's clock and by this one.
        self._seen: dict[str, tuple[float, float]] = {}
        self._dropped_at = 0.0
        self._sampled_at = -SAMPLE_S

    def note(self, node: Node, now: float, is_there: Callable[[Node, TaskUse], bool]) -> None:
        """Add a host's report; a repeated report changes nothing.

        Args:
            node: Node with its report.
            now: Seconds since the epoch.
            is_there: Function that returns whether a task runs on that node and holds that card; other tasks are
                ignored.
        """
        inventory = node.inventory
        if inventory is None:
            return
        at = max((use.at for use in inventory.gpu_uses), default=0.0)
        if not at or self._seen.get(node.id, _UNSEEN)[0] == at:
            return
        self._seen[node.id] = at, now
        own = {gpu.id for gpu in inventory.gpus}
        for use in inventory.gpu_uses:
            if use.gpu_id in own:
                _noted(self.cards, use.gpu_id, now, self._of_card(use))
        by_task: dict[TaskId, list[TaskUse]] = {}
        for task_use in inventory.task_uses:
            if is_there(node, task_use):
                by_task.setdefault(task_use.task_id, []).append(task_use)
        for task, uses in by_task.items():
            _noted(self.tasks, task, now, self._of_task(uses))
        if now - self._dropped_at >= COARSE_S:
            self._drop(now)

    def sample(
        self, now: float, gpus: Callable[[], Collection[GpuId]], is_allocated: Callable[[GpuId], bool]
    ) -> None:
        """Add a sample of the whole cluster, unless the latest one is younger than `SAMPLE_S`.

        Args:
            now: Seconds since the epoch.
            gpus: Function that returns the GPUs of the cluster.
            is_allocated: Function that returns whether a GPU is allocated.
        """
        if 0 <= now - self._sampled_at < SAMPLE_S:
            return
        ids = gpus()
        if not ids:
            return
        self._sampled_at = now
        rings = [series.fine for id in ids if (series := self.cards.get(id)) is not None]
        busy = [pct for ring in rings if (pct := ring.latest(0, now, RECENT_S)) is not None]
        power = [watts for ring in rings if (watts := ring.latest(2, now, RECENT_S)) is not None]
        allocated = sum(is_allocated(id) for id in ids)
        self.cluster.note(now, (len(ids), allocated, mean(busy), sum(power) if power else None))

    def _of_card(self, use: GpuUse) -> Values:
        """Return the values of a card: busy percent, memory and power."""
        meters = use.meters
        power_w = None if meters.power_mw is None else meters.power_mw / 1000
        used_mib = None if meters.memory_used_mib is None else float(meters.memory_used_mib)
        return self._busy_pct("", use.gpu_id, use.work), used_mib, power_w

    def _of_task(self, uses: Iterable[TaskUse]) -> Values:
        """Return the mean over a task's cards, and the sum of their memory; unknown if it is unknown for one card."""
        busy = [self._busy_pct(use.task_id, use.gpu_id, use.work) for use in uses]
        memory = _all_known(use.memory_mib for use in uses)
        return mean(busy), float(sum(memory)) if memory else None, None

    def _busy_pct(self, task: str, gpu: GpuId, work: Work | None) -> float | None:
        """Return the busy percent since the report before; None if unknown."""
        before = self._works.pop((task, gpu), None)
        if work is not None:
            self._works[task, gpu] = work
        return busy_pct(before, work)

    def _drop(self, now: float) -> None:
        """Drop cards, tasks and agents without reports for `KEPT_S`."""
        self._dropped_at = now
        _forget(self.cards, now)
        _forget(self.tasks, now)
        self._seen = {agent: seen for agent, seen in self._seen.items() if now - seen[1] <= KEPT_S}
        self._works = {
            key: work
            for key, work in self._works.items()
            if key[0] in self.tasks or (not key[0] and key[1] in self.cards)
        }


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of values that are all known; None if one is unknown, or without values."""
    numbers = _all_known(values)
    return sum(numbers) / len(numbers) if numbers else None


def _all_known(values: Iterable[N | None]) -> list[N]:
    """Return the values; an empty list if one is unknown."""
    all_values = list(values)
    present = [value for value in all_values if value is not None]
    return present if len(present) == len(all_values) else []


def _noted(kept: dict[K, Series], key: K, now: float, values: Values) -> None:
    """Add values to a series; a new series is added only within `MAX_SERIES`."""
    if key in kept or len(kept) < MAX_SERIES:
        kept.setdefault(key, Series()).note(now, values)


def _forget(kept: dict[K, Series], now: float) -> None:
    """Drop series without reports for `KEPT_S`."""
    for key in [key for key, series in kept.items() if now - series.noted_at > KEPT_S]:
        del kept[key]
