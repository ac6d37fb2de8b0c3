"""Shares of a tree against a plain division, number by number, and the two ways to ask for them against each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.filling import Claim, fill, pour, scaled, shrink
from mesos_gpu.policy.tenancy.share import Branch, Layout, Share, shares, weights_of
from tests.unit.tenancy.test_share import TREES, most_of, want_of

FULL = 1 << 20


def claims(
    children: list[Branch], caps: list[int], weights: list[int], *, by_use: bool = True
) -> list[Claim]:
    return [
        Claim(child.path, cap, weight, child.use if by_use else 0)
        for child, cap, weight in zip(children, caps, weights, strict=True)
    ]


def plain(parent: Branch, given: int, history_percent: int) -> dict[str, Share]:
    """Divide what one queue has among its children, as the words of the documentation say it."""
    children = sorted(parent.children, key=lambda child: child.path)
    ones = [1] * len(children)
    floors = scaled(given, claims(children, [min(want_of(c), c.guarantee) for c in children], ones))
    rest = given - sum(floors.values())
    idle = [
        0 if c.lend_limit is None else max(0, c.guarantee - c.lend_limit - floors[c.path]) for c in children
    ]
    kept = scaled(rest, claims(children, idle, ones))
    rest -= sum(kept.values())
    weights = [c.weight for c in children]
    if history_percent and any(c.use for c in children):
        there = [c.weight if want_of(c) or c.use else 0 for c in children]
        weights = weights_of(there, [c.use for c in children], history_percent)
    made: dict[str, Share] = {}
    for band in sorted({c.band for c in children}, reverse=True):
        here = [(c, weight) for c, weight in zip(children, weights, strict=True) if c.band == band]
        caps = [max(0, most_of(c) - floors[c.path]) for c, _ in here]
        parts = fill(rest, claims([c for c, _ in here], caps, [weight for _, weight in here]))
        for c, weight in here:
            made[c.path] = Share(c.path, given, floors[c.path], kept[c.path], rest, weight, parts[c.path])
        rest -= sum(parts.values())
    return made


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
def test_tree_shares_are_those_of_the_plain_division(count: int) -> None:
    @settings(max_examples=count)
    @given(TREES, st.integers(0, 100), st.sampled_from([0, 50, 100, 300]))
    def check(root: Branch, amount: int, history: int) -> None:
        made, line = shares(root, amount, history), [(root, amount)]
        known = {"": amount}
        while line:
            parent, given = line.pop()
            mine = plain(parent, given, history)
            assert {path: made[path] for path in mine} == mine
            known |= {path: share.due for path, share in mine.items()}
            line += [(child, mine[child.path].due) for child in parent.children]
        assert known.keys() == {"", *made}
        layout = Layout(root)
        dues = layout.dues(amount, layout.demands_of(root), layout.uses_of(root), history)
        assert dict(zip(layout.paths, dues, strict=True)) == known

    check()


def test_layout_has_each_queue_once_with_its_place_and_its_guarantee() -> None:
    below = Branch("r/b", 3, demand=5, use=7), Branch("r/a", 2, demand=4, use=6)
    root = Branch("", children=(Branch("s", 1, demand=8), Branch("r", 9, demand=1, use=13, children=below)))
    layout = Layout(root)
    assert layout.paths == ["", "r", "s", "r/a", "r/b"]
    assert layout.places == {path: place for place, path in enumerate(layout.paths)}
    assert layout.guarantees == [0, 9, 1, 2, 3]
    assert layout.demands_of(root) == {"s": 8, "r/a": 4, "r/b": 5}
    assert layout.uses_of(root) == {"s": 0, "r": 13, "r/a": 6, "r/b": 7}
    assert layout.dues(10, {}, {}) == [10, 0, 0, 0, 0]


WEIGHTS = {
    "nothing was used": ([3, 1, 0], [0, 0, 0], 100, [3, 1, 0]),
    "none has a weight": ([0, 0], [5, 5], 100, [0, 0]),
    "each has used its part": ([3, 1], [30, 10], 100, [FULL * 3 // 4, FULL // 4]),
    "who has used nothing has more": ([1, 1], [10, 0], 50, [FULL // 4, FULL * 3 // 4]),
    "twice its part, at 100": ([1, 1], [10, 0], 100, [0, FULL]),
    "never less than nothing": ([1, 3], [10, 0], 300, [0, FULL * 3]),
    "rounded down": ([1, 2], [1, 2], 100, [FULL // 3, 2 * FULL // 3]),
}


@pytest.mark.parametrize(("weights", "use", "percent", "made"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_after_past_use(weights: list[int], use: list[int], percent: int, made: list[int]) -> None:
    assert weights_of(weights, use, percent) == made


POURED = {
    "enough for all": (10, [4, 6], [1, 0], [], [4, 6]),
    "by weight": (9, [9, 9], [1, 2], [], [3, 6]),
    "a cap that is reached": (9, [2, 9, 9], [1, 1, 1], [], [2, 4, 3]),
    "a cap that is reached exactly": (9, [3, 9, 9], [1, 1, 1], [], [3, 3, 3]),
    "by rank what is left over": (2, [9, 9, 9], [1, 1, 1], [2, 1, 0], [0, 1, 1]),
    "without weight what others leave": (9, [5, 9, 9], [1, 0, 0], [], [5, 2, 2]),
    "without weight by rank": (8, [5, 9, 9], [1, 0, 0], [0, 1, 0], [5, 1, 2]),
    "none has a weight": (5, [1, 9, 9], [0, 0, 0], [], [1, 2, 2]),
    "with weights nothing for others": (5, [5, 9], [1, 0], [], [5, 0]),
}


@pytest.mark.parametrize(("amount", "caps", "weights", "ranks", "parts"), POURED.values(), ids=POURED)
def test_parts_that_are_poured(
    amount: int, caps: list[int], weights: list[int], ranks: list[int], parts: list[int]
) -> None:
    assert pour(amount, caps, weights, ranks) == parts


def test_parts_that_are_shrunk_keep_their_proportions_and_go_by_rank() -> None:
    assert shrink(7, [4, 3]) == [4, 3]
    assert shrink(6, [8, 0, 4]) == [4, 0, 2]
    assert shrink(1, [5, 5]) == [1, 0]
    assert shrink(1, [5, 5], [1, 0]) == [0, 1]
    assert shrink(2, [0, 1, 1, 1], [0, 2, 1, 0]) == [0, 0, 1, 1]
