"""Dominant shares: published examples, what must hold of every division, and small steps."""

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.drf import (
    Amounts,
    Party,
    added,
    capped,
    division_of,
    dominant_shares,
    kind_of,
    part_of,
    raised,
    total,
)
from mesos_gpu.policy.tenancy.share import Branch

PLENTY = 10**9


def party(*demands: Amounts, weight: int = 1) -> Party:
    return Party(weight, added([{kind_of(demand): demand} for demand in demands]))


def gets(there: Amounts, *parties: Party) -> list[Amounts]:
    return [total(got) for got in raised(there, there, parties)]


def test_drf_gives_the_example_of_its_paper() -> None:
    """9 CPUs and 18 GB; tasks of A take 1 CPU and 4 GB, those of B 3 CPUs and 1 GB: A runs three, and B two."""
    a, b = party((0, 1000 * 1000, 4000 * 1000)), party((0, 3000 * 1000, 1000 * 1000))
    first, second = gets((0, 9000, 18000), a, b)
    assert [round(first[1] / 1000), round(first[2] / 4000)] == [3, 3]
    assert [round(second[1] / 3000), round(second[2] / 1000)] == [2, 2]


def test_drf_does_not_hold_back_a_queue_without_gpus() -> None:
    """A queue with two leaves, one of GPUs and one of processors only, beside one that wants GPUs."""
    both = party((8000, 8000, 0), (0, 90_000, 0))
    gpus = party((PLENTY, PLENTY, 0))
    first, second = gets((8000, 100_000, 0), both, gpus)
    assert second[0] + first[0] >= 7998
    assert first[1] > 85_000  # all processors that its other leaf wants, but for what GPUs took


def test_drf_leaves_out_a_resource_that_the_pool_lacks() -> None:
    assert gets((8000, 0, 0), party((6000, 1, 1)), party((6000, 5, 5))) == [(4000, 0, 0), (4000, 3, 3)]


def test_weights_raise_dominant_shares() -> None:
    first, second = gets((9000, 9000, 0), party((PLENTY, 0, 0), weight=2), party((0, PLENTY, 0)))
    assert (first, second) == ((9000, 0, 0), (0, 9000, 0)), "nobody else wants what each of them wants"
    first, second = gets((9000, 9000, 9000), party((PLENTY, 10, 10), weight=2), party((PLENTY, 10, 10)))
    assert abs(first[0] - 6000) <= 2
    assert abs(second[0] - 3000) <= 2


def test_drf_queue_without_weight_gets_what_is_left() -> None:
    assert gets((9000, 0, 0), party((5000, 0, 0), weight=0), party((6000, 0, 0))) == [
        (3000, 0, 0),
        (6000, 0, 0),
    ]


def test_limits_and_guarantees_scale_what_needs_gpus_only() -> None:
    wants = {kind_of((8, 4, 0)): (8000, 4000, 0), kind_of((0, 4, 0)): (0, 6000, 0)}
    assert total(capped(wants, 4000)) == (4000, 8000, 0)
    assert total(part_of(wants, 2000)) == (2000, 1000, 0)


AMOUNT = st.integers(0, 40).map(lambda n: n * 1000)
WISH = st.tuples(AMOUNT, AMOUNT, AMOUNT).filter(any)
PARTIES = st.lists(
    st.builds(
        lambda weight, wishes: party(*wishes, weight=weight),
        st.integers(1, 3),
        st.lists(WISH, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)
POOL = st.tuples(*[st.integers(1, 60).map(lambda n: n * 1000)] * 3)


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_drf_division_is_within_demands_and_the_pool(count: int) -> None:
    @settings(max_examples=count)
    @given(POOL, PARTIES)
    @example(
        (2000, 1000, 1000), [party((0, 0, 1000), (1000, 0, 0), (22000, 0, 1000))]
    )  # each kind is rounded
    def check(pool: Amounts, parties: list[Party]) -> None:
        got = raised(pool, pool, parties)
        for r in range(3):
            assert sum(total(each)[r] for each in got) <= pool[r]
        for each, mine in zip(parties, got, strict=True):
            for kind, amounts in mine.items():
                assert all(0 <= a <= b for a, b in zip(amounts, each.wants[kind], strict=True))
        _nothing_is_left_that_somebody_may_have(pool, parties, got)

    check()


def _nothing_is_left_that_somebody_may_have(
    pool: Amounts, parties: list[Party], got: list[dict[int, Amounts]]
) -> None:
    """Demand for more of a kind lacks one of its resources, but for what rounding leaves over."""
    left = [pool[r] - sum(total(each)[r] for each in got) for r in range(3)]
    for each, mine in zip(parties, got, strict=True):
        for kind, wanted in each.wants.items():
            has = mine.get(kind, (0, 0, 0))
            if any(b - a > 40 for a, b in zip(has, wanted, strict=True)):
                assert any(left[r] <= 40 for r in range(3) if kind >> r & 1), (left, kind, has, wanted)


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.long)])
def test_drf_level_is_the_highest_for_which_there_is_enough(count: int) -> None:
    @settings(max_examples=count)
    @given(
        POOL, POOL, PARTIES, st.lists(WISH, min_size=4, max_size=4), st.sets(st.integers(0, 2), min_size=1)
    )
    def check(
        pool: Amounts, there: Amounts, parties: list[Party], have: list[Amounts], counted: set[int]
    ) -> None:
        rests = [total(party.wants) for party in parties]
        division = division_of(pool, sorted(counted), parties, have[: len(parties)], rests)
        level, (gpus, cpus, memory) = division.highest(there), zip(*rests, strict=True)
        taken, more = division.taken(level), division.taken(level + 1)
        assert all(taken[r] <= there[r] for r in counted)
        if taken == (sum(gpus), sum(cpus), sum(memory)):
            assert not division.short(there, level)
        else:
            assert division.short(there, level) == {r for r in counted if more[r] > there[r]} != set()

    check()


@pytest.mark.parametrize("count", [10, pytest.param(40, marks=pytest.mark.long)])
def test_drf_division_equals_that_by_small_steps(count: int) -> None:
    @settings(max_examples=count)
    @given(POOL, PARTIES)
    def check(pool: Amounts, parties: list[Party]) -> None:
        got = [total(each) for each in raised(pool, pool, parties)]
        steps = stepped(pool, parties)
        for mine, other in zip(got, steps, strict=True):
            for r in range(3):
                assert abs(mine[r] - other[r]) <= pool[r] / 20 + 100

    check()


STEPS = 400


def stepped(pool: Amounts, parties: list[Party]) -> list[list[Fraction]]:
    """Give the one with the least dominant share, of what is not used up, a small part more, until nobody may."""
    left = [Fraction(each) for each in pool]
    has = [[Fraction(0)] * 3 for _ in parties]
    rests = [{kind: Fraction(1) for kind in each.wants} for each in parties]
    gone: set[int] = set()
    while True:
        closed = sum(1 << r for r in gone)
        able = [i for i, rest in enumerate(rests) if any(v > 0 and not k & closed for k, v in rest.items())]
        if not able:
            return has
        i = min(able, key=lambda i: max([has[i][r] / pool[r] for r in range(3) if r not in gone], default=Fraction(0))
                / parties[i].weight)  # fmt: skip
        kinds = [kind for kind, rest in rests[i].items() if rest > 0 and not kind & closed]
        step = [sum(parties[i].wants[kind][r] for kind in kinds) for r in range(3)]
        small = min(
            [Fraction(pool[r], STEPS * step[r]) for r in range(3) if step[r]] + [rests[i][k] for k in kinds]
        )
        short = {r for r in range(3) if step[r] * small > left[r]}
        if short:
            gone |= short
            continue
        for kind in kinds:
            rests[i][kind] -= small
        for r in range(3):
            has[i][r] += step[r] * small
            left[r] -= step[r] * small


def thousandfold(branch: Branch) -> Branch:
    def more(number: int | None) -> int | None:
        return None if number is None else number * 1000

    return Branch(
        branch.path, branch.guarantee * 1000, more(branch.limit), more(branch.borrow_limit),
        more(branch.lend_limit), branch.weight, branch.band, branch.demand * 1000, branch.use,
        tuple(map(thousandfold, branch.children)),
    )  # fmt: skip


def test_drf_divides_a_tree_by_dominant_shares() -> None:
    """There are 8 GPUs and 64 processors; a takes 16 with each GPU, and b one."""
    root = Branch("", children=(Branch("a"), Branch("b"), Branch("c", children=(Branch("c/x"),))))
    wishes = {
        "a": {3: (8000, 128_000, 0)},  # sixteen processors a GPU
        "b": {3: (8000, 8000, 0)},
        "c/x": {2: (0, 9000, 0)},
    }
    shares = dominant_shares(root, (8000, 64_000, 0), wishes, {})
    # Both are raised to two thirds: a of the processors, b of the GPUs, which are used up then.
    assert abs(shares["a"].due - 2667) <= 2
    assert abs(shares["b"].due - 5333) <= 2
    assert (shares["c"].due, shares["c/x"].due) == (0, 0)
