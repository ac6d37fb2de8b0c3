"""Fair share of each queue in one pool: guarantees first, then the remainder by band and weight. Pure.

All amounts are whole thousandths of cost (`mesos_gpu.model.tenancy`). Nothing here is a float, so a share is the same
number after a restart and in a replay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import Final

from mesos_gpu.policy.tenancy.filling import MAX_WEIGHT, pour, shrink

#: Weight in the division of the remainder of a queue that has all of its siblings' weight and no past use.
_FULL: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Branch:
    """Queue with the figures that the division of a pool needs; amounts in thousandths of cost.

    Attributes:
        path: Path of the queue; "" for the root.
        guarantee: Amount that the queue gets before any queue borrows.
        limit: Largest amount that it may hold; None without a limit.
        borrow_limit: Largest amount beyond its guarantee; None without a limit.
        lend_limit: Largest part of its guarantee that others may use while it is idle; None for all of it.
        weight: Weight against its siblings in the division of the remainder; with 0 it gets only what they leave.
        band: Order among siblings: those of the highest band divide the remainder first.
        demand: Amount that a leaf's jobs hold and that its startable jobs wait for; ignored for other
            queues.
        use: Past use, decayed, in any unit that all siblings share.
        children: Queues directly below; empty for a leaf.
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
    """Fair share of a queue, with the numbers that it is computed from, in thousandths of cost.

    Attributes:
        path: Path of the queue.
        given: Amount that its parent divides among its children.
        floor: Part of its guarantee that it gets: its demand at most, scaled down where all guarantees together exceed
            `given`.
        kept: Amount beyond the floor that stays idle for it because of its lend limit.
        rest: Amount that was left to divide when its band came.
        weight: Weight of the queue in that division, adjusted by past use.
        borrowed: Amount that it gets of `rest`.
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
        """Fair share of the queue: its floor and what it borrows."""
        return self.floor + self.borrowed


def shares(root: Branch, amount: int, history_percent: int = 0) -> dict[str, Share]:
    """Compute the fair share of each queue of a tree in one pool, from the root to the leaves.

    Args:
        root: Tree of queues; the root's own figures are ignored.
        amount: Capacity of the pool.
        history_percent: Influence of past use on the weights for the remainder; 0 for none. With 100, a queue whose
            part of its siblings' past use is twice its part of their weights has the weight 0.

    Returns:
        Share of each queue but the root, by path.
    """
    layout = Layout(root)
    return layout.explained(amount, layout.demands_of(root), layout.uses_of(root), history_percent)


class Layout:
    """Tree of queues as flat lists, level by level, for fast repeated computation of fair shares.

    The children of a queue are neighbours in the lists, so that a division is a few sums over slices. Where the pool
    has enough for every child of a queue, nothing is divided.

    Args:
        root: Tree of queues. Its guarantees, limits, weights and bands are read once; demands and past use are passed
            to each computation.
    """

    def __init__(self, root: Branch) -> None:
        #: For each queue with children: its index, and the first and end index of its children. Parents first.
        self._families: list[tuple[int, int, int]] = []
        branches = [root]
        for place, branch in enumerate(branches):
            if branch.children:
                self._families.append((place, len(branches), len(branches) + len(branch.children)))
                branches += sorted(branch.children, key=_path)
        self.paths = [branch.path for branch in branches]
        self.places = {path: place for place, path in enumerate(self.paths)}
        self.guarantees = [branch.guarantee for branch in branches]
        self._limits = [_ENDLESS if branch.limit is None else branch.limit for branch in branches]
        self._most = [
            _ENDLESS if branch.borrow_limit is None else branch.guarantee + branch.borrow_limit
            for branch in branches
        ]
        self._kept = [
            0 if branch.lend_limit is None else max(0, branch.guarantee - branch.lend_limit)
            for branch in branches
        ]
        self._weights = [min(branch.weight, MAX_WEIGHT) for branch in branches]
        self._bands = [branch.band for branch in branches]
        self._keeps = [any(self._kept[begin:end]) for _, begin, end in self._families]
        self._banded = [len(set(self._bands[begin:end])) > 1 for _, begin, end in self._families]

    def demands_of(self, root: Branch) -> dict[str, int]:
        """Return the demand of each leaf of a tree, by path."""
        return {branch.path: branch.demand for branch in _below(root) if not branch.children}

    def uses_of(self, root: Branch) -> dict[str, int]:
        """Return the past use of each queue of a tree, by path."""
        return {branch.path: branch.use for branch in _below(root)}

    def dues(
        self, amount: int, demands: Mapping[str, int], uses: Mapping[str, int], history_percent: int = 0
    ) -> list[int]:
        """Return the fair share of each queue by its index in `paths`; index 0 is the root with the whole amount.

        Args:
            amount: Capacity of the pool.
            demands: Amounts that leaves hold and that their startable jobs wait for; 0 for leaves not named.
            uses: Past use of queues, with everything below them, in one unit; 0 for queues not named.
            history_percent: Influence of past use on the weights, as in `shares`.
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
        """Compute the fair shares as `dues` does, with the numbers that they follow from.

        Args:
            amount: Capacity of the pool.
            demands: Amounts that leaves hold and that their startable jobs wait for; 0 for leaves not named.
            uses: Past use of queues; 0 for queues not named.
            history_percent: Influence of past use on the weights, as in `shares`.

        Returns:
            Share of each queue but the root, by path.
        """
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
        """Return the amount that each queue could use: its demand or the sum of its children's, within the limits."""
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
        """Divide the amount of one queue among its children."""
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
            # A child without demand and without past use does not take part in the division.
            active = [
                weight if want or used else 0
                for weight, want, used in zip(weights, wants[begin:end], use, strict=True)
            ]
            weights = weights_of(active, use, history_percent)
        caps = [max(0, most - floor) for most, floor in zip(most, floors, strict=True)]
        if self._banded[family]:
            steps = _Steps(floors, kept, [0] * len(caps), weights, [0] * len(caps))
            return _by_band(rest, caps, self._bands[begin:end], use, steps)
        return _Steps(floors, kept, [rest] * len(caps), weights, pour(rest, caps, weights, use))


@dataclass(slots=True)
class _Steps:
    """Result of dividing one queue's amount; each list has one entry per child, as in `Share`."""

    floors: list[int]
    kept: list[int]
    rests: list[int]
    weights: list[int]
    borrowed: list[int]


def _by_band(
    rest: int, caps: Sequence[int], bands: Sequence[int], use: Sequence[int], steps: _Steps
) -> _Steps:
    """Divide the remainder among the children of the highest band, and what they leave among the next."""
    for band in sorted(set(bands), reverse=True):
        here = [i for i, other in enumerate(bands) if other == band]
        ranks = [use[i] for i in here] if use else []
        parts = pour(rest, [caps[i] for i in here], [steps.weights[i] for i in here], ranks)
        for i, part in zip(here, parts, strict=True):
            steps.rests[i], steps.borrowed[i] = rest, part
        rest -= sum(parts)
    return steps


def weights_of(weights: Sequence[int], use: Sequence[int], history_percent: int) -> list[int]:
    """Return the siblings' weights for the remainder, adjusted by past use.

    The weight is W + k (W - U), not below 0, where W and U are a sibling's parts of all weights and of all past use.

    Args:
        weights: Weights of the siblings in the document.
        use: Past use of each sibling; if it is 0 for all, the weights are returned unchanged.
        history_percent: The factor k, in percent.
    """
    used, weight = sum(use), sum(weights)
    if not used or not weight:
        return list(weights)
    whole = 100 * used * weight
    return [
        max(
            0,
            _FULL
            * (own_weight * used * (100 + history_percent) - history_percent * own_use * weight)
            // whole,
        )
        for own_weight, own_use in zip(weights, use, strict=True)
    ]


def _below(root: Branch) -> list[Branch]:
    """Return all queues below a root, level by level."""
    branches = list(root.children)
    for branch in branches:
        branches += branch.children
    return branches


def _path(branch: Branch) -> str:
    return branch.path


_ENDLESS: Final = 1 << 200
