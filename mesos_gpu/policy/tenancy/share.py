"""What each queue of a tree is due of one pool now: guarantees first, then what is left over, by band and weight. Pure.

All amounts are whole thousandths of cost (`mesos_gpu.model.tenancy`). Nothing here is a float, so a share is the same
number after a restart and in a replay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import Final

from mesos_gpu.policy.tenancy.filling import MAX_WEIGHT, pour, shrink

_FULL: Final = (
    1 << 20
)  # the weight, over what is guaranteed, of one who has used nothing and has all the weight


@dataclass(frozen=True, slots=True)
class Branch:
    """A queue as a division sees it.

    Attributes:
        path: Of the queue; "": the root.
        guarantee: What it is owed before anybody borrows.
        limit: The most that it may hold; None: no limit.
        borrow_limit: The most beyond its guarantee; None: no limit.
        lend_limit: The most of its guarantee that others may have while it is idle; None: all.
        weight: Its part of what is left over, beside that of its siblings; 0: what nobody else wants.
        band: Of siblings, those of the highest band divide what is left over first.
        demand: Of a leaf, what it holds and what it waits for and may have; of others nothing is looked at.
        use: What it has used in the past, decayed, in any unit that its siblings have, too.
        children: Those below it; none: it is a leaf.
    """

    path: str
    guarantee: int = 0
    limit: int | None = None
    borrow_limit: int | None = None
    lend_limit: int | None = None
    weight: int = 1
    band: int = 0
    demand: int = 0
    use: int = 0
    children: tuple["Branch", ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """What a queue is due, and the numbers that it follows from.

    Attributes:
        path: The queue.
        given: What its parent divides among its children.
        floor: What it gets of its guarantee: as much as it wants, and less where all guarantees together are more than
            `given`.
        kept: What is kept idle for it beyond that, by its lend limit.
        rest: What was left over when the turn of its band came.
        weight: Its weight in that division, after its past use.
        borrowed: What it gets of `rest`.
    """

    path: str
    given: int
    floor: int
    kept: int
    rest: int
    weight: int
    borrowed: int

    @property
    def due(self) -> int:
        """What the queue is due in all."""
        return self.floor + self.borrowed


def shares(root: Branch, amount: int, history_percent: int = 0) -> dict[str, Share]:
    """Divide what a pool has, from the root to the leaves.

    Args:
        root: The tree; its own figures are not looked at.
        amount: What the pool has.
        history_percent: How much past use lowers the weight over the guarantee; 0: not at all. With 100, one whose part
            of the siblings' past use is twice his part of their weights has none.

    Returns:
        The share of each queue but the root, by path.
    """
    layout = Layout(root)
    return layout.explained(amount, layout.demands_of(root), layout.uses_of(root), history_percent)


class Layout:
    """A tree laid out for divisions, of which there are many: queues lie level by level, the children of one beside
    each other, so that a division is a few sums over slices of lists. Where all get what they want, nothing is divided
    at all."""

    def __init__(self, root: Branch) -> None:
        """Lay out a tree whose figures do not change; demands and past use come with each division."""
        #: Of each queue with children: its place, and where its children begin and end. Those above come first.
        self._families: list[tuple[int, int, int]] = []
        line = [root]
        for place, each in enumerate(line):
            if each.children:
                self._families.append((place, len(line), len(line) + len(each.children)))
                line += sorted(each.children, key=_path)
        self.paths = [each.path for each in line]
        self.places = {path: place for place, path in enumerate(self.paths)}
        self.guarantees = [each.guarantee for each in line]
        self._limits = [_ENDLESS if each.limit is None else each.limit for each in line]
        self._most = [
            _ENDLESS if each.borrow_limit is None else each.guarantee + each.borrow_limit for each in line
        ]
        self._kept = [
            0 if each.lend_limit is None else max(0, each.guarantee - each.lend_limit) for each in line
        ]
        self._weights = [min(each.weight, MAX_WEIGHT) for each in line]
        self._bands = [each.band for each in line]
        self._keeps = [any(self._kept[begin:end]) for _, begin, end in self._families]
        self._banded = [len(set(self._bands[begin:end])) > 1 for _, begin, end in self._families]

    def demands_of(self, root: Branch) -> dict[str, int]:
        """The demands of a tree's leaves."""
        return {each.path: each.demand for each in _below(root) if not each.children}

    def uses_of(self, root: Branch) -> dict[str, int]:
        """The past use of each queue of a tree."""
        return {each.path: each.use for each in _below(root)}

    def dues(
        self, amount: int, demands: Mapping[str, int], uses: Mapping[str, int], history_percent: int = 0
    ) -> list[int]:
        """What each queue is due, by its place; the root, of whose children that is a part, is the first.

        Args:
            amount: What there is.
            demands: Of leaves: what they hold and what they wait for and may have; 0 where nothing is said.
            uses: Past use of queues, with all that is below them, in one unit; 0 where nothing is said.
            history_percent: As of `shares`.
        """
        wants, used = self._wants(demands), self._uses(uses)
        dues = [0] * len(wants)
        dues[0] = amount
        for family, (place, begin, end) in enumerate(self._families):
            given = dues[place]
            if not given:
                continue
            most = list(map(min, wants[begin:end], self._most[begin:end]))
            if not self._keeps[family] and sum(most) <= given:
                dues[begin:end] = most
            else:
                steps = self._divided(family, given, wants, most, used, history_percent)
                dues[begin:end] = map(add, steps.floors, steps.borrowed)
        return dues

    def explained(
        self, amount: int, demands: Mapping[str, int], uses: Mapping[str, int], history_percent: int = 0
    ) -> dict[str, Share]:
        """Divide as `dues` does, and keep the numbers that it follows from, by path."""
        wants, used = self._wants(demands), self._uses(uses)
        dues, explained = [0] * len(wants), dict[str, Share]()
        dues[0] = amount
        for family, (place, begin, end) in enumerate(self._families):
            most = list(map(min, wants[begin:end], self._most[begin:end]))
            steps = self._divided(family, dues[place], wants, most, used, history_percent)
            dues[begin:end] = map(add, steps.floors, steps.borrowed)
            for i, path in enumerate(islice(self.paths, begin, end)):
                explained[path] = Share(
                    path, dues[place], steps.floors[i], steps.kept[i], steps.rests[i], steps.weights[i],
                    steps.borrowed[i],
                )  # fmt: skip
        return explained

    def _wants(self, demands: Mapping[str, int]) -> list[int]:
        """What each could hold, if it were given it."""
        get, limits = demands.get, self._limits
        wants = [get(path, 0) for path in self.paths]
        for place, begin, end in reversed(self._families):
            wants[begin:end] = map(min, wants[begin:end], limits[begin:end])
            wants[place] = sum(wants[begin:end])
        return wants

    def _uses(self, uses: Mapping[str, int]) -> list[int]:
        return [uses.get(path, 0) for path in self.paths] if uses else []

    def _divided(
        self,
        family: int,
        given: int,
        wants: list[int],
        most: list[int],
        used: list[int],
        history_percent: int,
    ) -> "_Steps":
        """How one queue divides what it has among its children."""
        _, begin, end = self._families[family]
        use = used[begin:end]
        floors = shrink(given, list(map(min, wants[begin:end], self.guarantees[begin:end])), use)
        rest, kept = given - sum(floors), [0] * len(floors)
        if self._keeps[family]:
            idle = [max(0, kept - floor) for kept, floor in zip(self._kept[begin:end], floors, strict=True)]
            kept = shrink(rest, idle, use)
            rest -= sum(kept)
        weights = self._weights[begin:end]
        if history_percent and any(use):
            # Who neither wants nor has used anything is no party to it.
            there = [
                weight if want or used else 0
                for weight, want, used in zip(weights, wants[begin:end], use, strict=True)
            ]
            weights = weights_of(there, use, history_percent)
        caps = [max(0, most - floor) for most, floor in zip(most, floors, strict=True)]
        if self._banded[family]:
            steps = _Steps(floors, kept, [0] * len(caps), weights, [0] * len(caps))
            return _by_band(rest, caps, self._bands[begin:end], use, steps)
        return _Steps(floors, kept, [rest] * len(caps), weights, pour(rest, caps, weights, use))


@dataclass(slots=True)
class _Steps:
    """A division, by child."""

    floors: list[int]
    kept: list[int]
    rests: list[int]
    weights: list[int]
    borrowed: list[int]


def _by_band(
    rest: int, caps: Sequence[int], bands: Sequence[int], use: Sequence[int], steps: _Steps
) -> _Steps:
    """Divide what is left over among those of the highest band, then of the next."""
    for band in sorted(set(bands), reverse=True):
        here = [i for i, each in enumerate(bands) if each == band]
        ranks = [use[i] for i in here] if use else []
        parts = pour(rest, [caps[i] for i in here], [steps.weights[i] for i in here], ranks)
        for i, part in zip(here, parts, strict=True):
            steps.rests[i], steps.borrowed[i] = rest, part
        rest -= sum(parts)
    return steps


def weights_of(weights: Sequence[int], use: Sequence[int], history_percent: int) -> list[int]:
    """The weight of each sibling over what is guaranteed: W + k (W - U), W and U being its parts of the siblings'
    weights and of their past use, and not below zero.

    Args:
        weights: Of the document.
        use: What each has used; none: nothing counts.
        history_percent: k.
    """
    used, weight = sum(use), sum(weights)
    if not used or not weight:
        return list(weights)
    whole = 100 * used * weight
    return [
        max(0, _FULL * (mine * used * (100 + history_percent) - history_percent * his_use * weight) // whole)
        for mine, his_use in zip(weights, use, strict=True)
    ]


def _below(root: Branch) -> list[Branch]:
    line = list(root.children)
    for each in line:
        line += each.children
    return line


def _path(branch: Branch) -> str:
    return branch.path


_ENDLESS: Final = 1 << 200
