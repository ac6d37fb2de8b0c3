"""Compute windows: the times in each period at which a task may start work on its card. Pure.

A period is treated as a circle. Each task has a stretch of it in proportion to its compute; busy tasks also get the
unused stretches and those of idle tasks beside them. An idle task keeps its own stretch: it can begin work at any time,
and the next plan shortens its neighbours' windows again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.shares.units import WHOLE

PERIOD_US: Final = 40_000  # long compared with a kernel of 1 ms, short for a waiting user


@dataclass(frozen=True, slots=True)
class Window:
    """Window that opens at `start_us` of each period for `length_us`, possibly beyond the period's end. Times in µs."""

    start_us: int
    length_us: int
    period_us: int = PERIOD_US

    @property
    def is_open(self) -> bool:
        """Whether the window never closes, so that it holds nothing back."""
        return self.length_us >= self.period_us

    def covers(self, at_us: int) -> bool:
        """Return whether the window is open at a time of the period, in µs."""
        return (at_us - self.start_us) % self.period_us < self.length_us


@dataclass(frozen=True, slots=True)
class Tenant:
    """Task on a card.

    Attributes:
        task: Identifier of the task.
        compute_milli: Thousandths of the card's compute that it was granted, 1 to 1000.
        busy: Whether it has used the card lately.
    """

    task: TaskId
    compute_milli: int
    busy: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """Windows of a card's tasks.

    Attributes:
        own: Stretch that each task has for itself; passed to the next plan so that the task keeps it.
        granted: Current window of each task: its own stretch and what idle neighbours leave.
    """

    own: Mapping[TaskId, Window]
    granted: Mapping[TaskId, Window]


def plan(
    tenants: Sequence[Tenant],
    before: Mapping[TaskId, Window] | None = None,
    *,
    widen: bool = True,
    period_us: int = PERIOD_US,
) -> Plan:
    """Divide a card's time among its tasks.

    Args:
        tenants: Tasks of the card; new ones are placed in this order.
        before: Stretches (`own`) of the previous plan: a task whose length is unchanged keeps its stretch.
        widen: Whether busy tasks also get unused time and that of idle tasks.
        period_us: Length of the period in µs.

    Returns:
        Windows of which at most `most_at_once(tenants)` are open together, not counting those of idle tasks.
    """
    own = _placed(tenants, before or {}, period_us)
    busy = [tenant for tenant in tenants if tenant.busy]
    if not widen or most_at_once(tenants) > 1:
        return Plan(own, own)
    return Plan(own, {**own, **_widened(busy, own, period_us)})


def most_at_once(tenants: Iterable[Tenant]) -> int:
    """Return how many windows may be open together: 1, unless more compute was granted than the card has."""
    return max(1, -(-sum(tenant.compute_milli for tenant in tenants) // WHOLE))


def _placed(
    tenants: Sequence[Tenant], before: Mapping[TaskId, Window], period_us: int
) -> dict[TaskId, Window]:
    """Return each task's own stretch; unchanged ones stay unless the tasks fit only after placing all again."""
    lengths = {tenant.task: _length_us(tenant.compute_milli, period_us) for tenant in tenants}
    unchanged = {
        task: before[task]
        for task, length_us in lengths.items()
        if task in before and (before[task].length_us, before[task].period_us) == (length_us, period_us)
    }
    if most_at_once(tenants) == 1:
        placed = _beside(unchanged, lengths, period_us)
        if placed is not None:
            return placed
    elif len(unchanged) == len(lengths):
        return unchanged
    return _end_to_end(lengths, period_us)


def _length_us(compute_milli: int, period_us: int) -> int:
    return max(1, period_us * compute_milli // WHOLE)


def _beside(
    kept: Mapping[TaskId, Window], lengths: Mapping[TaskId, int], period_us: int
) -> dict[TaskId, Window] | None:
    """Put each new task into the first gap that is long enough; return None if one of them has no gap."""
    placed = dict(kept)
    for task, length_us in lengths.items():
        if task in placed:
            continue
        starts = (start for start, room in _gaps(placed.values(), period_us) if room >= length_us)
        start_us = next(starts, None)
        if start_us is None:
            return None
        placed[task] = Window(start_us, length_us, period_us)
    return {task: placed[task] for task in lengths}


def _gaps(windows: Iterable[Window], period_us: int) -> list[tuple[int, int]]:
    """Return the uncovered stretches as (start, length), from the start of the period; windows do not overlap."""
    ordered = sorted(windows, key=lambda window: window.start_us)
    if not ordered:
        return [(0, period_us)]
    following = [*ordered[1:], ordered[0]]
    gaps = []
    for window, after in zip(ordered, following, strict=True):
        ahead_us = (after.start_us - window.start_us) % period_us or period_us
        if ahead_us > window.length_us:
            gaps.append(((window.start_us + window.length_us) % period_us, ahead_us - window.length_us))
    return sorted(gaps)


def _end_to_end(lengths: Mapping[TaskId, int], period_us: int) -> dict[TaskId, Window]:
    """Place all stretches one after the other."""
    placed, at_us = {}, 0
    for task, length_us in lengths.items():
        placed[task] = Window(at_us % period_us, length_us, period_us)
        at_us += length_us
    return placed


def _widened(busy: Sequence[Tenant], own: Mapping[TaskId, Window], period_us: int) -> dict[TaskId, Window]:
    """Widen the windows of busy tasks into the time between them, divided in proportion to their compute.

    The task before such a gap lasts longer, and the one after it starts sooner.
    """
    ordered = sorted(busy, key=lambda tenant: own[tenant.task].start_us)
    start_us = {tenant.task: own[tenant.task].start_us for tenant in ordered}
    length_us = {tenant.task: own[tenant.task].length_us for tenant in ordered}
    for tenant, following in zip(ordered, [*ordered[1:], *ordered[:1]], strict=True):
        window = own[tenant.task]
        ahead_us = (own[following.task].start_us - window.start_us) % period_us or period_us
        between_us = ahead_us - window.length_us
        if tenant is following:
            length_us[tenant.task] = period_us
            continue
        longer_us = between_us * tenant.compute_milli // (tenant.compute_milli + following.compute_milli)
        length_us[tenant.task] += longer_us
        start_us[following.task] -= between_us - longer_us
        length_us[following.task] += between_us - longer_us
    return {task: Window(start_us[task] % period_us, length_us[task], period_us) for task in start_us}
