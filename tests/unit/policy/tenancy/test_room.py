"""Room in cells against a plain search of all places, and what seats become when jobs or cells change."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.policy.tenancy.seats import Ask, Held, Room, give, kept, seat_in

CELLS = {("a", "p"): (8, 5, 5), ("a", "q"): (4,), ("b", "p"): (3,)}


def ask(name: str, milli: int, tasks: int = 1, pool: str = "p", **more: object) -> Ask:
    return Ask(JobId(name), ((pool, milli),), tasks, **more)  # type: ignore[arg-type]


def frees(room: Room) -> dict[tuple[str, str], tuple[int, ...]]:
    return {key: room.free(*key) for key in CELLS}


def test_room_says_what_is_free_of_each_queue() -> None:
    room = Room(CELLS)
    assert (room.pools("a"), room.pools("b"), room.pools("c")) == (["p", "q"], ["p"], ())
    assert (room.left("a"), room.left("b"), room.left("c")) == (22, 3, 0)
    assert [room.is_full(path) for path in "abc"] == [False, False, True]
    assert room.take(GuaranteedAdmission("b", "p", (0,), 3, 1.0))
    assert (room.left("b"), room.is_full("b"), room.free("b", "p"), room.free("b", "q")) == (
        0,
        True,
        (0,),
        (),
    )
    assert room.take(GuaranteedAdmission("a", "p", (0, 1, 2), 5, 1.0))
    assert (room.is_full("a"), room.left("a")) == (False, 7)
    assert room.take(GuaranteedAdmission("a", "p", (0,), 3, 1.0))
    assert not room.is_full("a"), "of its other pool there is some"
    assert room.take(GuaranteedAdmission("a", "q", (0,), 4, 1.0))
    assert room.is_full("a")


@pytest.mark.parametrize(
    "seat",
    [
        GuaranteedAdmission("a", "p", (1, 1), 3, 1.0),
        GuaranteedAdmission("a", "p", (0, 1, 3), 1, 1.0),
        GuaranteedAdmission("a", "p", (0, 1), 6, 1.0),
        GuaranteedAdmission("c", "p", (0,), 0, 1.0),
        GuaranteedAdmission("a", "r", (0,), 1, 1.0),
        GuaranteedAdmission("b", "p", (0,), 4, 1.0),
    ],
)
def test_seat_without_room_takes_nothing(seat: GuaranteedAdmission) -> None:
    room = Room(CELLS)
    assert not room.take(seat)
    assert frees(room) == CELLS


def test_seat_that_is_given_back_is_free_again() -> None:
    room, seat = Room(CELLS), GuaranteedAdmission("a", "p", (0, 0, 2), 4, 1.0)
    assert room.take(seat)
    assert room.free("a", "p") == (0, 5, 1)
    room.give_back(seat)
    assert frees(room) == CELLS


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 4))
def test_places_of_a_gang_are_there_whenever_any_are(free: list[int], milli: int, tasks: int) -> None:
    places = Room({("a", "p"): tuple(free)}).find("a", ask("j", milli, tasks))

    def fits(cells: tuple[int, ...]) -> bool:
        return all(cells.count(i) * milli <= size for i, size in enumerate(free))

    ways = [cells for cells in product(range(len(free)), repeat=tasks) if fits(cells)]
    assert (places is not None) is bool(ways)
    if places is None:
        return
    pool, cells, taken = places
    assert (pool, taken, cells in ways) == ("p", milli, True)
    if tasks == 1:
        assert free[cells[0]] == min(size for size in free if size >= milli), "the fullest"
        assert cells[0] == free.index(free[cells[0]]), "and the first of them"
    else:
        assert len(set(cells)) == min(len(set(way)) for way in ways), "as few as can be are broken"


PLACES = {
    "most tasks together": ([4, 8, 2], 2, 4, (1, 1, 1, 1)),
    "the fullest of those": ([9, 8, 8], 4, 2, (1, 1)),
    "then the next": ([9, 8, 4], 4, 3, (1, 1, 0)),
    "none in too small a cell": ([3, 4, 3], 4, 2, None),
    "exactly as many": ([4, 4], 2, 4, (0, 0, 1, 1)),
    "one too many": ([4, 5], 2, 5, None),
}


@pytest.mark.parametrize(("free", "milli", "tasks", "cells"), PLACES.values(), ids=PLACES)
def test_places_of_a_gang_break_few_cells(
    free: list[int], milli: int, tasks: int, cells: tuple[int, ...] | None
) -> None:
    places = Room({("a", "p"): tuple(free)}).find("a", ask("j", milli, tasks))
    assert places == (None if cells is None else ("p", cells, milli))


def test_room_is_looked_for_in_the_first_pool_and_in_the_nearest_queue() -> None:
    cells = {("a", "q"): (4,), ("a/b", "q"): (2,), ("a/b", "p"): (3,)}
    room = Room(cells)
    both = Ask(JobId("j"), (("p", 3), ("q", 2)))
    seats = [seat_in(room, "a/b", both, 7.0) for _ in range(5)]
    assert seats == [
        GuaranteedAdmission("a/b", "p", (0,), 3, 7.0),
        GuaranteedAdmission("a/b", "q", (0,), 2, 7.0),
        GuaranteedAdmission("a", "q", (0,), 2, 7.0),
        GuaranteedAdmission("a", "q", (0,), 2, 7.0),
        None,
    ]
    assert room.left("a") + room.left("a/b") == 0


KEPT = {
    "where most is free": ((8, 8), (3, 5), ask("j", 6), (3, -1)),
    "the first of equals": ((8, 8), (5, 5), ask("j", 6), (-1, 5)),
    "not in a cell that is too small": ((5, 8), (5, 2), ask("j", 6), (5, -4)),
    "each task for itself": ((8, 8), (3, 4), ask("j", 6, 2), (-3, -2)),
    "two tasks in one cell": ((8,), (1,), ask("j", 4, 2), (-7,)),
    "not if the cells are too small": ((8,), (1,), ask("j", 4, 3), (1,)),
    "exactly as large as a cell": ((6,), (1,), ask("j", 6), (-5,)),
    "not in another pool": ((8,), (1,), ask("j", 1, pool="q"), (1,)),
}


@pytest.mark.parametrize(("sizes", "free", "asked", "left"), KEPT.values(), ids=KEPT)
def test_cells_that_are_kept_for_a_job_are_those_that_come_nearest(
    sizes: tuple[int, ...], free: tuple[int, ...], asked: Ask, left: tuple[int, ...]
) -> None:
    room = Room({("a", "p"): sizes})
    for cell, (size, rest) in enumerate(zip(sizes, free, strict=True)):
        assert room.take(GuaranteedAdmission("a", "p", (cell,), size - rest, 1.0))
    room.keep("a", asked)
    assert room.free("a", "p") == left


def test_cells_are_kept_in_the_first_pool_that_is_large_enough() -> None:
    room = Room({("a", "p"): (2,), ("a", "q"): (4,), ("a", "r"): (4,)})
    room.keep("a", Ask(JobId("j"), (("p", 3), ("q", 3), ("r", 3))))
    assert [room.free("a", pool)[0] for pool in "pqr"] == [2, 1, 4]


def held(leaf: str, seat: GuaranteedAdmission, asked: Ask) -> Held:
    return Held(leaf, seat, asked)


SEAT = GuaranteedAdmission("a", "p", (0,), 4, 1.0)
CHANGES = {
    "nothing": ({("a", "p"): (8,)}, [held("a/x", SEAT, ask("j", 4))], {}),
    "it takes less": ({("a", "p"): (8,)}, [held("a/x", SEAT, ask("j", 3))], {"j": replace(SEAT, milli=3)}),
    "it takes more": ({("a", "p"): (8,)}, [held("a/x", SEAT, ask("j", 8))], {"j": replace(SEAT, milli=8)}),
    "it takes more, elsewhere": (
        {("a", "p"): (4, 8)}, [held("a/x", SEAT, ask("j", 5))], {"j": replace(SEAT, cells=(1,), milli=5)},
    ),
    "it takes more, nearer": (
        {("a", "p"): (4,), ("a/x", "p"): (9,)}, [held("a/x", SEAT, ask("j", 5))],
        {"j": GuaranteedAdmission("a/x", "p", (0,), 5, 1.0)},
    ),
    "its cell is smaller": (
        {("a", "p"): (3, 4)}, [held("a/x", SEAT, ask("j", 4))], {"j": replace(SEAT, cells=(1,))},
    ),
    "its cell is gone": (
        {("a", "p"): (8,)}, [held("a/x", replace(SEAT, cells=(1,)), ask("j", 4))], {"j": SEAT},
    ),
    "it is of another queue": ({("a", "p"): (8,)}, [held("b", SEAT, ask("j", 4))], {"j": None}),
    "it is of another queue that has cells": (
        {("a", "p"): (8,), ("b", "p"): (5,)}, [held("b", SEAT, ask("j", 4))], {"j": replace(SEAT, queue="b")},
    ),
    "it runs in another pool": (
        {("a", "p"): (8,), ("a", "q"): (6,)}, [held("a/x", SEAT, ask("j", 4, pool="q"))],
        {"j": replace(SEAT, pool="q")},
    ),
    "it has more tasks": (
        {("a", "p"): (8,)}, [held("a/x", SEAT, ask("j", 4, 2))], {},
    ),
    "the newer one loses": (
        {("a", "p"): (7,)},
        [held("a/x", replace(SEAT, since=2.0), ask("new", 4)), held("a/x", SEAT, ask("old", 4))],
        {"new": None},
    ),
    "of one time the later in rank loses": (
        {("a", "p"): (7,)},
        [held("a/x", SEAT, ask("a", 4, rank=(2,))), held("a/x", SEAT, ask("b", 4, rank=(1,)))],
        {"a": None},
    ),
    "of one rank the later in name loses": (
        {("a", "p"): (7,)}, [held("a/x", SEAT, ask("z", 4)), held("a/x", SEAT, ask("y", 4))], {"z": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "holders", "changed"), CHANGES.values(), ids=CHANGES)
def test_seats_that_are_others_under_new_cells(
    cells: dict[tuple[str, str], tuple[int, ...]],
    holders: list[Held],
    changed: dict[str, GuaranteedAdmission | None],
) -> None:
    room, made = kept(cells, holders)
    assert made == {JobId(name): seat for name, seat in changed.items()}
    free = {key: list(sizes) for key, sizes in cells.items()}
    for each in holders:
        now = made.get(each.ask.job_id, each.seat)
        for cell in now.cells if now is not None else ():
            assert now is not None
            free[now.queue, now.pool][cell] -= now.milli
    assert {key: room.free(*key) for key in cells} == {key: tuple(left) for key, left in free.items()}


def test_surplus_is_shared_by_what_children_hold_of_it_for_their_weights() -> None:
    room = Room({("a", "p"): (9,)})
    old = GuaranteedAdmission("a", "p", (0, 0), 1, 1.0)
    assert room.take(old)
    lines = {f"a/{leaf}": [ask(f"{leaf}{i}", 1, rank=(i,)) for i in range(9)] for leaf in "xyz"}
    holders = [held("a/x", old, ask("old", 1, 2)), held("a/x", replace(old, queue="a/x"), ask("own", 1, 2))]
    seats = give(room, lines, {"a/x": 1, "a/y": 2, "a/z": 0}, 5.0, holders)
    assert sorted(seats) == ["x0", "y0", "y1", "y2", "y3", "y4", "y5"]
    assert set(seats.values()) == {GuaranteedAdmission("a", "p", (0,), 1, 5.0)}


def test_surplus_goes_to_those_without_weight_last() -> None:
    room = Room({("a", "p"): (3,)})
    lines = {"a/x": [ask("x", 1), ask("x1", 1)], "a/y": [ask("y", 1)]}
    assert list(give(room, lines, {"a/x": 0}, 5.0)) == ["y", "x", "x1"]


def test_surplus_of_the_deepest_queue_is_given_first_to_all_below_it_by_rank() -> None:
    room = Room({("a", "p"): (1,), ("a/b", "p"): (1,), ("a/b/x", "p"): (1,)})
    lines = {
        "a/b/x": [ask("x0", 1, rank=(0,)), ask("x5", 1, rank=(5,)), ask("x6", 1, rank=(6,))],
        "a/b/y": [ask("y1", 1, rank=(1,))],
        "a/c": [ask("c9", 1, rank=(9,))],
    }
    seats = give(room, lines, {}, 5.0)
    assert {str(job): seat.queue for job, seat in seats.items()} == {"x0": "a/b/x", "x5": "a/b", "y1": "a"}


def test_surplus_refuses_a_kind_once_and_keeps_cells_for_who_starves() -> None:
    lines = {"a/x": [ask("gang", 4, 2, starving=True), ask("late", 4, 2), ask("small", 1)]}
    room = Room({("a", "p"): (4, 4)})
    assert room.take(GuaranteedAdmission("a", "p", (0,), 1, 1.0))
    assert give(room, lines, {}, 5.0) == {}, "cells are kept"
    lines["a/x"][0] = replace(lines["a/x"][0], starving=False)
    room = Room({("a", "p"): (4, 4)})
    assert room.take(GuaranteedAdmission("a", "p", (0,), 1, 1.0))
    assert list(give(room, lines, {}, 5.0)) == ["small"]
