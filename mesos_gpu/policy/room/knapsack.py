"""The cheapest jobs of one node whose end gives back enough: a 0/1 knapsack, exact, by dynamic programming. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import JobId

MOST_STATES: Final = 4096  # amounts given back that differ, of which the cheapest choice is known
Amounts = tuple[int, ...]
Worth = tuple[int, int, int, list[str]]


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that may be ended, and what that costs."""

    job_id: JobId
    priority: int
    cost: int  # the work that is done again, thousandths of GPUs times seconds; weighed, in a tree of queues


@dataclass(frozen=True, slots=True)
class Item:
    """What the end of a job gives back on a node."""

    victim: Victim
    gifts: Amounts


@dataclass(frozen=True, slots=True)
class Bound:
    """What any choice on a node costs at least: the highest priority that is hurt, then the work that is lost."""

    priority: int
    cost: int


def worth(chosen: Iterable[Victim]) -> Worth:
    """By what choices are compared: the highest priority that is hurt, the work lost, how many; then by name."""
    every = list(chosen)
    highest = max((victim.priority for victim in every), default=NOBODY)
    return highest, sum(v.cost for v in every), len(every), sorted(v.job_id for v in every)


NOBODY: Final = -(1 << 30)  # the highest priority that is hurt if nobody is ended


def enough(lack: Sequence[int], items: Iterable[Item]) -> int | None:
    """The least of the highest priorities that are hurt when enough is given back; None: all give too little."""
    left = list(lack)
    if max(left) <= 0:
        return NOBODY
    for item in sorted(items, key=lambda item: item.victim.priority):
        left = [need - gift for need, gift in zip(left, item.gifts, strict=True)]
        if max(left) <= 0:
            return item.victim.priority
    return None


def bound_of(lack: Sequence[int], items: Sequence[Item]) -> Bound | None:
    """The least that it can cost to give back what is lacking, if parts of jobs could be ended; None: it cannot be.

    Args:
        lack: Amounts; the first one decides, as the GPUs do.
        items: Jobs of the node.
    """
    priority = enough(lack, items)
    if priority is None:
        return None
    able = [
        (item.victim.cost / item.gifts[0], item.victim.cost, item.gifts[0])
        for item in items
        if item.victim.priority <= priority and item.gifts[0] > 0
    ]
    least = fractional(lack[0], able)
    assert least is not None, "what is enough of all amounts is enough of the first"
    return Bound(priority, least)


def fractional(need: int, gifts: list[tuple[float, int, int]]) -> int | None:
    """The least that so much can cost if parts could be taken, and no less than the cheapest; None: there is not so
    much.

    Args:
        need: How much.
        gifts: Of each, its cost by how much it gives, its cost, and how much it gives. They are sorted here.
    """
    if need <= 0:
        return 0
    gifts.sort()
    total, least = 0, min((cost for _, cost, _ in gifts), default=0)
    for _, cost, gift in gifts:
        if gift >= need:
            total += cost * need // gift
            return max(total - (total >> 40) - 1, least)  # as the order of floats may be wrong
        need -= gift
        total += cost
    return None


def cheapest(lack: Sequence[int], items: Iterable[Item]) -> tuple[Victim, ...] | None:
    """The cheapest choice that gives back what is lacking, of all choices.

    Args:
        lack: Amounts; what is not above 0 is not lacking.
        items: Jobs of the node, with what each of them gives back of the same amounts.

    Returns:
        In the order of their names. None: all together give too little, or the amounts are too many to be looked at.
    """
    line = sorted(items, key=lambda item: item.victim.job_id)
    priority = enough(lack, line)
    if priority is None:
        return None
    kinds = [i for i, need in enumerate(lack) if need > 0]
    goal = tuple([lack[i] for i in kinds])
    # By what is given back, as far as it is lacking: the cost, how many, and who.
    best: dict[Amounts, tuple[int, int, tuple[Victim, ...]]] = {tuple([0] * len(kinds)): (0, 0, ())}
    for item in line:
        if item.victim.priority > priority:
            continue
        gifts = [item.gifts[i] for i in kinds]
        for had, (cost, count, chosen) in list(best.items()):
            if had == goal:
                continue  # nothing is gained by one more
            given = tuple([min(n, h + g) for n, h, g in zip(goal, had, gifts, strict=True)])
            now = cost + item.victim.cost, count + 1, (*chosen, item.victim)
            old = best.get(given)
            if old is None or _rank(now) < _rank(old):
                best[given] = now
        if len(best) > MOST_STATES:
            return None
    return best[goal][2]


def _rank(choice: tuple[int, int, tuple[Victim, ...]]) -> tuple[int, int, list[str]]:
    return choice[0], choice[1], [victim.job_id for victim in choice[2]]
