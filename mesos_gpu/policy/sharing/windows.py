"""Compute windows: when in each period the tasks of a card may start work on it. Pure.

A period is a circle. Each task has a stretch of it in proportion to its compute; tasks that are busy get the stretches
of idle ones beside them, too, and what nobody has. An idle task keeps its own stretch: it can begin at any time, and
the next plan takes the neighbours back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.shares.units import WHOLE

PERIOD_US: Final = 40_000  # long against a kernel of 1 ms, short against a person's patience


@dataclass(frozen=True, slots=True)
class Window:
    """Starts at `start_us` of each period and lasts `length_us`; it may go over the period's end. All in µs."""

    start_us: int
    length_us: int
    period_us: int = PERIOD_US

    @property
    def is_open(self) -> bool:
        """Whether it never closes: nothing is held back."""
        return self.length_us >= self.period_us

    def covers(self, at_us: int) -> bool:
        """Whether a time of the period is in it."""
        return (at_us - self.start_us) % self.period_us < self.length_us


@dataclass(frozen=True, slots=True)
class Tenant:
    """A task on a card.

    Attributes:
        task: Its id.
        compute_milli: Thousandths of the card's compute that it was granted, 1 to 1000.
        busy: Whether it wanted the card of late.
    """

    task: TaskId
    compute_milli: int
    busy: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The windows of a card's tasks.

    Attributes:
        own: The stretch that each has for itself; to be given to the next plan, so that it keeps it.
        granted: The window that each gets now: its own, and what idle neighbours leave.
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
    """Share out a card's time.

    Args:
        tenants: The tasks of the card; those that are new in their order.
        before: `own` of the plan before: who was there and has what it had keeps its place.
        widen: Whether busy tasks get the time of idle ones, and what nobody has.
        period_us: Of all windows.

    Returns:
        Windows of which no more than `most_at_once(tenants)` are ever open together, idle tasks' apart.
    """
    own = _placed(tenants, before or {}, period_us)
    busy = [tenant for tenant in tenants if tenant.busy]
    if not widen or most_at_once(tenants) > 1:
        return Plan(own, own)
    return Plan(own, {**own, **_widened(busy, own, period_us)})


def most_at_once(tenants: Iterable[Tenant]) -> int:
    """How many windows cover the same time: 1, unless more compute was granted than the card has."""
    return max(1, -(-sum(tenant.compute_milli for tenant in tenants) // WHOLE))


def _placed(
    tenants: Sequence[Tenant], before: Mapping[TaskId, Window], period_us: int
) -> dict[TaskId, Window]:
    """Each with its own stretch; all are put end to end anew only where there is no other way."""
    lengths = {tenant.task: _length_us(tenant.compute_milli, period_us) for tenant in tenants}
    kept = {
        task: before[task]
        for task, length_us in lengths.items()
        if task in before and (before[task].length_us, before[task].period_us) == (length_us, period_us)
    }
    if most_at_once(tenants) == 1:
        placed = _beside(kept, lengths, period_us)
        if placed is not None:
            return placed
    elif len(kept) == len(lengths):
        return kept
    return _end_to_end(lengths, period_us)


def _length_us(compute_milli: int, period_us: int) -> int:
    return max(1, period_us * compute_milli // WHOLE)


def _beside(
    kept: Mapping[TaskId, Window], lengths: Mapping[TaskId, int], period_us: int
) -> dict[TaskId, Window] | None:
    """Put the others into the first gap that has room for each; None: one finds none."""
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
    """What no window covers, as (start, length), from the start of the period on; windows do not overlap."""
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
    placed, at_us = {}, 0
    for task, length_us in lengths.items():
        placed[task] = Window(at_us % period_us, length_us, period_us)
        at_us += length_us
    return placed


def _widened(busy: Sequence[Tenant], own: Mapping[TaskId, Window], period_us: int) -> dict[TaskId, Window]:
    """Split what lies between two busy tasks by their compute: the one before it lasts longer, the one after it
    starts sooner."""
    ordered = sorted(busy, key=lambda tenant: own[tenant.task].start_us)
    start_us = {tenant.task: own[tenant.task].start_us for tenant in ordered}
    length_us = {tenant.task: own[tenant.task].length_us for tenant in ordered}
    for one, other in zip(ordered, [*ordered[1:], *ordered[:1]], strict=True):
        mine = own[one.task]
        ahead_us = (own[other.task].start_us - mine.start_us) % period_us or period_us
        between_us = ahead_us - mine.length_us
        if one is other:
            length_us[one.task] = period_us
            continue
        longer_us = between_us * one.compute_milli // (one.compute_milli + other.compute_milli)
        length_us[one.task] += longer_us
        start_us[other.task] -= between_us - longer_us
        length_us[other.task] += between_us - longer_us
    return {task: Window(start_us[task] % period_us, length_us[task], period_us) for task in start_us}
