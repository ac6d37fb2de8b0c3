"""Dominant shares: worked examples with all their numbers, the sums of demands, and how soon a level is found."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.drf import (
    Amounts,
    Demand,
    Division,
    Party,
    added,
    capped,
    dominant_shares,
    gpus_of,
    kind_of,
    part_of,
    plus,
    raised,
    total,
    without,
)
from mesos_gpu.policy.tenancy.share import Branch, Layout, Share
from tests.unit.tenancy.test_drf import thousandfold
from tests.unit.tenancy.test_share import TREES

ONE: Demand = {1: (10, 0, 0), 7: (20, 300, 5000)}
OTHER: Demand = {7: (1, 20, 300), 6: (0, 7, 11)}


def test_demands_are_told_apart_by_what_they_need_together() -> None:
    assert [kind_of(amounts) for amounts in ((0, 0, 0), (5, 0, 0), (0, 5, 0), (0, 0, 5), (1, 2, 3))] == [
        0,
        1,
        2,
        4,
        7,
    ]


def test_demands_are_summed_resource_by_resource() -> None:
    assert plus((1, 20, 300), (4, 50, 600)) == (5, 70, 900)
    assert added([ONE, OTHER]) == {1: (10, 0, 0), 7: (21, 320, 5300), 6: (0, 7, 11)}
    assert total(ONE) == (30, 300, 5000)
    assert gpus_of(ONE) == 30
    assert without(ONE, OTHER) == {1: (10, 0, 0), 7: (19, 280, 4700)}
    assert (added([]), total({}), gpus_of({})) == ({}, (0, 0, 0), 0)


def test_demands_are_capped_by_their_gpus_alone() -> None:
    wants = added([ONE, OTHER])
    assert capped(wants, None) == capped(wants, 31) == wants
    assert capped(wants, 10) == {1: (3, 0, 0), 7: (6, 103, 1709), 6: (0, 7, 11)}
    assert capped(wants, 0) == {1: (0, 0, 0), 7: (0, 0, 0), 6: (0, 7, 11)}
    assert part_of(wants, 10) == {1: (3, 0, 0), 7: (6, 103, 1709)}
    assert part_of(wants, 0) == {}


def test_parties_get_all_that_they_want_where_there_is_enough() -> None:
    parties = [Party(1, {7: (4, 4, 4)}), Party(0, {1: (4, 0, 0)})]
    assert raised((8, 4, 4), (8, 8, 8), parties) == [{7: (4, 4, 4)}, {1: (4, 0, 0)}]
    assert raised((8, 4, 0), (8, 8, 0), parties) == [{7: (4, 4, 4)}, {1: (4, 0, 0)}], (
        "there is no memory to count"
    )


RAISED = {
    "one resource, evenly": ((9000, 0, 0), [(1, (9000, 0, 0)), (1, (9000, 0, 0))], [4500, 4500]),
    "by weight": ((9000, 0, 0), [(2, (9000, 0, 0)), (1, (9000, 0, 0))], [6000, 3000]),
    "without weight the rest": ((9000, 0, 0), [(0, (9000, 0, 0)), (1, (5000, 0, 0))], [4000, 5000]),
    "without weight nothing": ((9000, 0, 0), [(0, (9000, 0, 0)), (3, (9000, 0, 0))], [0, 9000]),
    "without weight evenly": (
        (9000, 0, 0), [(0, (9000, 0, 0)), (0, (9000, 0, 0)), (1, (1000, 0, 0))], [4000, 4000, 1000],
    ),
    "by what is dominant": ((9000, 9000, 0), [(1, (9000, 3000, 0)), (1, (3000, 9000, 0))], [6750, 2250]),
    "up to where one is used up": (
        (9000, 18_000, 0), [(1, (9000, 9000, 0)), (1, (3000, 18_000, 0))], [6000, 2000],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pool", "wishes", "gpus"), RAISED.values(), ids=RAISED)
def test_parties_are_raised_together_by_their_weights(
    pool: Amounts, wishes: list[tuple[int, Amounts]], gpus: list[int]
) -> None:
    parties = [Party(weight, {kind_of(amounts): amounts}) for weight, amounts in wishes]
    got = raised(pool, pool, parties)
    for mine, wanted in zip(got, gpus, strict=True):
        assert abs(gpus_of(mine) - wanted) <= 1, got


def test_dominant_shares_have_guarantees_what_is_kept_bands_and_limits() -> None:
    below = Branch("low/x", guarantee=1000), Branch("low/y", limit=500)
    root = Branch(
        "",
        children=(
            Branch("low", guarantee=2000, weight=3, children=below),
            Branch("high", guarantee=1000, borrow_limit=3000, band=1),
            Branch("lends", guarantee=4000, lend_limit=1000),
            Branch("other", weight=1),
        ),
    )
    demands: dict[str, Demand] = {
        "low/x": {1: (9000, 0, 0)},
        "low/y": {1: (9000, 0, 0)},
        "high": {3: (9000, 90_000, 0)},
        "lends": {1: (500, 0, 0)},
        "other": {1: (9000, 0, 0)},
    }
    shares = dominant_shares(root, (16_000, 400_000, 0), demands, {})
    rest = 16_000 - 2000 - 1000 - 500 - 2500
    assert shares["high"] == Share("high", 16_000, 1000, 0, rest, 1, 3000)
    assert shares["lends"] == Share("lends", 16_000, 500, 2500, rest - 3000, 1, 0)
    low, other = shares["low"], shares["other"]
    assert (low.given, low.floor, low.kept, low.rest, low.weight) == (16_000, 2000, 0, rest - 3000, 3)
    assert abs(low.borrowed - 5250) <= 2
    assert (other.floor, other.kept, other.rest, other.weight) == (0, 0, rest - 3000, 1)
    assert abs(other.borrowed - 1750) <= 2
    assert shares["low/x"].given == low.due
    assert (shares["low/x"].floor, shares["low/y"].floor, shares["low/y"].borrowed) == (1000, 0, 500)
    assert abs(shares["low/x"].due + 500 - low.due) <= 2


def test_dominant_shares_with_past_use_leave_out_who_takes_no_part() -> None:
    root = Branch("", children=tuple(Branch(name) for name in ("idle", "new", "used", "was")))
    demands = {"new": {1: (9000, 0, 0)}, "used": {1: (9000, 0, 0)}}
    shares = dominant_shares(root, (9000, 0, 0), demands, {"used": 10, "was": 10}, 50)
    full = 1 << 20
    assert {path: share.weight for path, share in shares.items()} == {
        "idle": 0, "new": full // 2, "used": full // 4, "was": full // 4,
    }  # fmt: skip
    assert abs(shares["new"].due - 6000) <= 1
    unused = dominant_shares(root, (9000, 0, 0), demands, {"used": 10, "was": 10})
    assert {path: share.weight for path, share in unused.items()} == dict.fromkeys(shares, 1)


@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.long)])
def test_dominant_shares_of_gpus_are_the_plain_ones_number_by_number(count: int) -> None:
    """But for thousandths that rounding leaves over, and their parts on the way down."""

    @settings(max_examples=count)
    @given(TREES, st.integers(0, 100), st.sampled_from([0, 100]))
    @example(Branch("", children=(Branch("0", demand=1),)), 0, 0)
    def check(root: Branch, amount: int, history: int) -> None:
        root = thousandfold(root)
        layout = Layout(root)
        demands, uses = layout.demands_of(root), layout.uses_of(root)
        plain = layout.explained(amount * 1000, demands, uses, history)
        wishes: dict[str, Demand] = {path: {1: (milli, 0, 0)} for path, milli in demands.items() if milli}
        shares = dominant_shares(root, (amount * 1000, 0, 0), wishes, uses, history)
        assert plain.keys() == shares.keys()
        for path, share in shares.items():
            other = plain[path]
            assert share.weight == other.weight
            for name in ("given", "floor", "kept", "rest", "borrowed"):
                assert abs(getattr(share, name) - getattr(other, name)) <= 40, (name, share, other)

    check()


class Counted(Division):
    """A division that counts how often it is looked at what is taken at a level."""

    looks = 0

    def taken(self, level: int) -> Amounts:
        type(self).looks += 1
        return super().taken(level)


UNIT = 1 << 40
LEVELS = {
    "even growth": ([(UNIT, 0, 40_000)] * 8, 263),
    "many ends": ([(UNIT, 0, 1000 * 3**i) for i in range(12)], 442),
    "far apart": ([(UNIT >> 2 * i, 0, 7000 + 11 * i) for i in range(12)], 2025),
    "begun": ([(UNIT, 500 * i * i, 90_000 >> i) for i in range(12)], 439),
}


@pytest.mark.parametrize(("terms", "most"), LEVELS.values(), ids=LEVELS)
def test_level_of_a_division_is_found_with_few_looks(terms: list[tuple[int, int, int]], most: int) -> None:
    """`most`: looks at what is taken, for 39 levels together."""
    rests = [(rest, 0, 0) for _, _, rest in terms]
    whole = sum(rest for _, _, rest in terms)
    division, looks = Counted((0,), 41, [[each] for each in terms], rests), 0
    for part in range(1, 40):
        Counted.looks = 0
        there = (whole * part // 40, 0, 0)
        level = division.highest(there)
        looks += Counted.looks
        assert division.taken(level)[0] <= there[0] < division.taken(level + 1)[0]
    assert looks <= most
