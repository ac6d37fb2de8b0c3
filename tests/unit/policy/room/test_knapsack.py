"""The cheapest jobs whose end gives back enough, compared with all choices."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import JobId
from mesos_gpu.policy.room.knapsack import (
    NO_PRIORITY,
    Item,
    Victim,
    bound_of,
    cheapest,
    fractional,
    least_priority,
    worth,
)

AMOUNTS = st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 2))
LACKS = st.tuples(st.integers(-2, 12), st.integers(-2, 20), st.integers(-2, 6))


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    made = []
    for i in range(draw(st.integers(0, 11))):  # more than of which every choice was looked at before
        victim = Victim(JobId(f"j{i}"), draw(st.integers(0, 2)), draw(st.integers(0, 6)))
        made.append(Item(victim, draw(AMOUNTS)))
    return made


def gives(lack: tuple[int, ...], chosen: tuple[Item, ...]) -> bool:
    return all(sum(item.gifts[i] for item in chosen) >= need for i, need in enumerate(lack))


@given(LACKS, items())
def test_cheapest_victims_cost_no_more_than_any_choice(lack: tuple[int, ...], some: list[Item]) -> None:
    every = [
        tuple(item.victim for item in chosen)
        for count in range(len(some) + 1)
        for chosen in combinations(some, count)
        if gives(lack, chosen)
    ]
    chosen = cheapest(lack, reversed(some))
    assert (chosen is None) == (not every)
    if chosen is not None:
        assert worth(chosen) == min(map(worth, every))


@given(LACKS, items())
def test_bound_of_victims_is_below_every_choice(lack: tuple[int, ...], some: list[Item]) -> None:
    bound, chosen = bound_of(lack, some), cheapest(lack, some)
    assert (bound is None) == (chosen is None)
    if bound is not None and chosen is not None:
        assert (bound.priority, bound.cost) <= worth(chosen)[:2]
        assert bound.priority == worth(chosen)[0] == least_priority(lack, some)


def test_cheapest_victims_are_none_where_nothing_is_lacking() -> None:
    assert cheapest((0, -5), [Item(Victim(JobId("j"), 0, 1), (1, 1))]) == ()
    assert least_priority((0, -5), []) == NO_PRIORITY
    assert fractional(0, []) == 0
    assert fractional(3, [(1.0, 2, 2)]) is None


def test_cheapest_victims_leave_too_many_different_amounts_to_others() -> None:
    some = [Item(Victim(JobId(f"j{i}"), 0, 1), (1, 1 << i)) for i in range(14)]
    assert cheapest((14, 1 << 14), [*some, Item(Victim(JobId("k"), 0, 1), (1, 1))]) is None


@given(LACKS, items())
def test_bound_of_victims_is_at_least_one_where_anything_is_lacking(
    lack: tuple[int, ...], some: list[Item]
) -> None:
    bound = bound_of(lack, some)
    if bound is not None and lack[0] > 0:
        able = [item.victim for item in some if item.gifts[0] > 0 and item.victim.priority <= bound.priority]
        assert bound.cost >= min(victim.cost for victim in able)


def test_whole_node_costs_all_that_runs_there_though_little_is_lacking() -> None:
    assert fractional(1, [(1.0, 8, 8)]) == 8
