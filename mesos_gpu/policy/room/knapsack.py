"""Cheapest victims on one node whose ends free enough: an exact 0/1 knapsack by dynamic programming. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import JobId

MAX_STATES: Final = 4096  # different sums of amounts for which the cheapest choice is kept
Amounts = tuple[int, ...]
Worth = tuple[int, int, int, list[str]]


@dataclass(frozen=True, slots=True)
class Victim:
    """Job that may be ended, and the cost of its end."""

    job_id: JobId
    priority: int
    cost: int  # lost work in thousandths of cost times seconds, weighed by earlier ends


@dataclass(frozen=True, slots=True)
class Item:
    """Amounts that the end of a job frees on a node."""

    victim: Victim
    gifts: Amounts


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bound for all choices of victims on a node: highest priority among them first, then cost."""

    priority: int
    cost: int


def worth(chosen: Iterable[Victim]) -> Worth:
    """Return the key by which choices of victims are compared: highest priority, cost, number, and names."""
    victims = list(chosen)
    highest = max((victim.priority for victim in victims), default=NO_PRIORITY)
    return highest, sum(v.cost for v in victims), len(victims), sorted(v.job_id for v in victims)


NO_PRIORITY: Final = -(1 << 30)  # highest priority of a choice without victims


def least_priority(lack: Sequence[int], items: Iterable[Item]) -> int | None:
    """Return the least highest priority of victims that give back enough; None if all of them give too little.

    Args:
        lack: Amounts that are lacking, at least one.
        items: Jobs of the node, with the same amounts that each of them gives back.
    """
    left = list(lack)
    if max(left) <= 0:
        return NO_PRIORITY
    for item in sorted(items, key=lambda item: item.victim.priority):
        left = [need - gift for need, gift in zip(left, item.gifts, strict=True)]
        if max(left) <= 0:
            return item.victim.priority
    return None


def bound_of(lack: Sequence[int], items: Sequence[Item]) -> Bound | None:
    """Return the least cost of amounts that are lacking, if parts of jobs could be ended; None if all give too little.

    Args:
        lack: Amounts that are lacking; the first one, which is that of GPUs, decides about the cost.
        items: Jobs of the node, with the same amounts that each of them gives back.
    """
    priority = least_priority(lack, items)
    if priority is None:
        return None
    able = [
        (item.victim.cost / item.gifts[0], item.victim.cost, item.gifts[0])
        for item in items
        if item.victim.priority <= priority and item.gifts[0] > 0
    ]
    least = fractional(lack[0], able)
    assert least is not None, "jobs that free enough of all amounts free enough of the first"
    return Bound(priority, least)


def fractional(need: int, gifts: list[tuple[float, int, int]]) -> int | None:
    """Return the least cost of an amount if parts could be taken, at least that of the cheapest entry.

    Args:
        need: Amount that is lacking.
        gifts: Cost for each unit, cost, and amount of each entry. The list is sorted in place.

    Returns:
        None if all entries together give too little.
    """
    if need <= 0:
        return 0
    gifts.sort()
    total, floor = 0, min((cost for _, cost, _ in gifts), default=0)
    for _, cost, gift in gifts:
        if gift >= need:
            total += cost * need // gift
            # Rounded down, as the order of the floats may be wrong.
            return max(total - (total >> 40) - 1, floor)
        need -= gift
        total += cost
    return None


def cheapest(lack: Sequence[int], items: Iterable[Item]) -> tuple[Victim, ...] | None:
    """Return the cheapest choice of jobs whose ends free what is lacking, in the order of names.

    Args:
        lack: Amounts that are lacking; 0 or less if enough is free.
        items: Jobs of the node, with the amounts that each of them frees, in the order of `lack`.

    Returns:
        None if all jobs together free too little, or if there are more than `MAX_STATES` different sums.
    """
    ordered = sorted(items, key=lambda item: item.victim.job_id)
    priority = least_priority(lack, ordered)
    if priority is None:
        return None
    kinds = [i for i, need in enumerate(lack) if need > 0]
    goal = tuple([lack[i] for i in kinds])
    # Cost, number and victims of the cheapest choice, by the lacking amounts that it gives back.
    best: dict[Amounts, tuple[int, int, tuple[Victim, ...]]] = {tuple([0] * len(kinds)): (0, 0, ())}
    for item in ordered:
        if item.victim.priority > priority:
            continue
        gifts = [item.gifts[i] for i in kinds]
        for freed, (cost, count, chosen) in list(best.items()):
            if freed == goal:
                continue  # the goal is reached: one more victim gains nothing
            given = tuple([min(n, h + g) for n, h, g in zip(goal, freed, gifts, strict=True)])
            now = cost + item.victim.cost, count + 1, (*chosen, item.victim)
            old = best.get(given)
            if old is None or _rank(now) < _rank(old):
                best[given] = now
        if len(best) > MAX_STATES:
            return None
    return best[goal][2]


def _rank(choice: tuple[int, int, tuple[Victim, ...]]) -> tuple[int, int, list[str]]:
    """Return the key by which choices with one sum are compared."""
    return choice[0], choice[1], [victim.job_id for victim in choice[2]]
