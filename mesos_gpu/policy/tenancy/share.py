"""What each queue of a tree is due of one pool now: guarantees first, then what is left over, by band and weight. Pure.

All amounts are whole thousandths of cost (`mesos_gpu.model.tenancy`). Nothing here is a float, so a share is the same
number after a restart and in a replay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mesos_gpu.policy.tenancy.filling import MOST_WEIGHT, Claim, fill, scaled

_FULL: Final = (
    1 << 20
)  # the weight, over what is guaranteed, of one who has used nothing and has all the weight


@dataclass(frozen=True)
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

    @cached_property
    def want(self) -> int:
        """What it could hold, if it were given it."""
        want = sum(child.want for child in self.children) if self.children else self.demand
        return want if self.limit is None else min(want, self.limit)

    @property
    def most(self) -> int:
        """What it takes at most: what it wants, unless that is more than it may borrow."""
        if self.borrow_limit is None:
            return self.want
        return min(self.want, self.guarantee + self.borrow_limit)

    @property
    def kept(self) -> int:
        """What of its guarantee nobody else may have, though it be idle."""
        return 0 if self.lend_limit is None else max(0, self.guarantee - self.lend_limit)


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
    shares_by_path: dict[str, Share] = {}
    line = [(root, amount)]
    while line:
        parent, given = line.pop()
        for share, child in zip(
            _divide(parent.children, given, history_percent), parent.children, strict=True
        ):
            shares_by_path[child.path] = share
            if child.children:
                line.append((child, share.due))
    return shares_by_path


def _divide(children: Sequence[Branch], given: int, history_percent: int) -> list[Share]:
    claims = [Claim(child.path, min(child.want, child.guarantee), 1, child.use) for child in children]
    floors = scaled(given, claims)
    kept = scaled(
        given - sum(floors.values()),
        [Claim(child.path, max(0, child.kept - floors[child.path]), 1, child.use) for child in children],
    )
    rest = given - sum(floors.values()) - sum(kept.values())
    weights, rests, borrowed = weights_of(children, history_percent), dict[str, int](), dict[str, int]()
    for band in sorted({child.band for child in children}, reverse=True):
        now = [child for child in children if child.band == band]
        parts = fill(
            rest,
            [Claim(c.path, max(0, c.most - floors[c.path]), weights[c.path], c.use) for c in now],
        )
        rests.update(dict.fromkeys(parts, rest))
        borrowed |= parts
        rest -= sum(parts.values())
    return [
        Share(p, given, floors[p], kept[p], rests[p], weights[p], borrowed[p])
        for p in (c.path for c in children)
    ]


def weights_of(siblings: Sequence[Branch], history_percent: int) -> Mapping[str, int]:
    """The weight of each over what is guaranteed, by path: W + k (W - U), W and U being its parts of the siblings'
    weights and of their past use, and not below zero."""
    use, weight = sum(each.use for each in siblings), sum(each.weight for each in siblings)
    if not history_percent or not use or not weight:
        return {each.path: min(each.weight, MOST_WEIGHT) for each in siblings}
    whole = 100 * use * weight
    return {
        each.path: max(
            0,
            _FULL
            * (each.weight * use * (100 + history_percent) - history_percent * each.use * weight)
            // whole,
        )
        for each in siblings
    }
