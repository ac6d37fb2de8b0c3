"""Shares of a tree: worked examples, and what must hold of every tree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.share import Branch, Share, shares, weights_of

UNLIMITED = 10**9


def due(children: list[Branch], amount: int, history_percent: int = 0) -> dict[str, int]:
    return {
        path: share.due
        for path, share in shares(Branch("", children=tuple(children)), amount, history_percent).items()
    }


def test_guarantees_come_first_and_what_is_left_goes_by_weight() -> None:
    tree = [
        Branch("a", guarantee=8, demand=99),
        Branch("b", guarantee=4, demand=99, weight=3),
        Branch("idle", guarantee=8, demand=0),
    ]
    assert due(tree, 32) == {"a": 8 + 5, "b": 4 + 15, "idle": 0}


def test_higher_band_is_served_before_any_lower_one() -> None:
    tree = [Branch("a", demand=20, band=1), Branch("b", demand=20, weight=100)]
    assert due(tree, 30) == {"a": 20, "b": 10}


def test_lend_limit_leaves_gpus_idle() -> None:
    tree = [Branch("a", guarantee=8, lend_limit=2, demand=1), Branch("b", demand=99)]
    assert due(tree, 16) == {"a": 1, "b": 16 - 1 - 5}


def test_borrow_limit_bounds_what_a_queue_is_due() -> None:
    tree = [Branch("a", guarantee=2, borrow_limit=1, demand=99), Branch("b", limit=4, demand=99)]
    assert due(tree, 100) == {"a": 3, "b": 4}


def test_guarantees_beyond_what_there_is_are_scaled_in_proportion() -> None:
    tree = [Branch("a", guarantee=30, demand=99), Branch("b", guarantee=10, demand=99)]
    assert due(tree, 20) == {"a": 15, "b": 5}


def test_inner_queue_hands_its_share_to_its_children() -> None:
    below = Branch("r/a", guarantee=6, demand=99), Branch("r/b", demand=2)
    tree = [Branch("r", guarantee=10, children=below), Branch("s", guarantee=10, demand=99)]
    assert due(tree, 20) == {"r": 10, "s": 10, "r/a": 8, "r/b": 2}


def test_past_use_lowers_the_weight_and_never_the_guarantee() -> None:
    tree = [Branch("a", guarantee=4, demand=99, use=900), Branch("b", guarantee=4, demand=99, use=100)]
    assert due(tree, 28) == {"a": 14, "b": 14}
    assert due(tree, 28, 100) == {"a": 4 + 2, "b": 4 + 18}
    assert due(tree, 28, 1000) == {"a": 4, "b": 24}
    assert due(tree, 8, 1000) == {"a": 4, "b": 4}


def test_weights_without_past_use_are_those_of_the_document() -> None:
    assert weights_of([3, 0], [0, 0], 100) == [3, 0]


def branches(depth: int) -> st.SearchStrategy[Branch]:
    limits = st.none() | st.integers(0, 40)
    figures = {
        "guarantee": st.integers(0, 20),
        "limit": limits,
        "borrow_limit": limits,
        "lend_limit": limits,
        "weight": st.integers(0, 5),
        "band": st.integers(0, 2),
        "demand": st.integers(0, 60),
        "use": st.integers(0, 100),
    }
    below = st.just(()) if depth == 1 else st.lists(branches(depth - 1), max_size=3).map(tuple)
    return st.builds(Branch, path=st.just(""), children=below, **figures)


def named(branch: Branch, path: str) -> Branch:
    below = tuple(named(child, f"{path}/{i}") for i, child in enumerate(branch.children))
    return Branch(path, branch.guarantee, branch.limit, branch.borrow_limit, branch.lend_limit, branch.weight,
                  branch.band, branch.demand, branch.use, below)  # fmt: skip


TREES = st.lists(branches(3), min_size=1, max_size=4).map(
    lambda trees: Branch("", children=tuple(named(each, str(i)) for i, each in enumerate(trees)))
)


def want_of(branch: Branch) -> int:
    want = sum(want_of(child) for child in branch.children) if branch.children else branch.demand
    return want if branch.limit is None else min(want, branch.limit)


def most_of(branch: Branch) -> int:
    want = want_of(branch)
    return want if branch.borrow_limit is None else min(want, branch.guarantee + branch.borrow_limit)


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_tree_shares_are_whole_and_within_all_limits(count: int) -> None:
    @settings(max_examples=count)
    @given(TREES, st.integers(0, 100), st.sampled_from([0, 50, 100, 300]))
    def check(root: Branch, amount: int, history: int) -> None:
        shares_by_path = shares(root, amount, history)
        line = [(root, amount)]
        while line:
            parent, given = line.pop()
            mine = [shares_by_path[child.path] for child in parent.children]
            handed = sum(share.due for share in mine)
            assert handed + sum(share.kept for share in mine) <= given
            for child, share in zip(parent.children, mine, strict=True):
                assert share.given == given
                assert (
                    0
                    <= share.due
                    <= max(want_of(child) if child.borrow_limit is None else most_of(child), share.floor)
                )
                assert share.floor <= min(want_of(child), child.guarantee)
                line.append((child, share.due))
            _nothing_is_left_that_somebody_may_have(parent, mine, given)
            _guarantees_hold(parent, mine, given)

    check()


def _nothing_is_left_that_somebody_may_have(parent: Branch, mine: list[Share], given: int) -> None:
    left = given - sum(share.due + share.kept for share in mine)
    if left:
        assert all(share.due >= most_of(child) for child, share in zip(parent.children, mine, strict=True))


def _guarantees_hold(parent: Branch, mine: list[Share], given: int) -> None:
    owed = sum(min(want_of(child), child.guarantee) for child in parent.children)
    if owed <= given:
        assert [share.floor for share in mine] == [min(want_of(c), c.guarantee) for c in parent.children]


@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.long)])
def test_tree_share_never_falls_with_more_demand(count: int) -> None:
    @settings(max_examples=count)
    @given(TREES, st.integers(0, 100))
    def check(root: Branch, amount: int) -> None:
        first = root.children[0]
        if first.children:
            return
        more = Branch(first.path, first.guarantee, first.limit, first.borrow_limit, first.lend_limit, first.weight,
                      first.band, first.demand + 7, first.use)  # fmt: skip
        before = shares(root, amount)[first.path].due
        assert shares(Branch("", children=(more, *root.children[1:])), amount)[first.path].due >= before

    check()
