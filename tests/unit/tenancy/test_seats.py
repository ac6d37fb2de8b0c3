"""Seats in what queues are guaranteed: no cell twice, in the queue's order, gangs all or nothing; a new document."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tenancy import Guarantee, QueueDocument, QueueSpec, Shape
from mesos_gpu.policy.tenancy.cells import Cells, cells_of, shrunk, sizes_of, without
from mesos_gpu.policy.tenancy.seats import Ask, Held, Room, give, kept
from mesos_gpu.policy.tenancy.tree import Tree, lineage

LEAVES = ("a/x", "a/y", "b")
POOLS = ("p", "q")


def tree(**guarantees: Guarantee | int) -> Tree:
    """Queues by path, `__` for a slash, guaranteed so many GPUs of the pool p."""
    queues = {}
    for name, amount in guarantees.items():
        own = Guarantee(amount * 1000) if isinstance(amount, int) else amount
        queues[name.replace("__", "/")] = QueueSpec(guarantee_gpus={"p": own})
    return Tree(QueueDocument(1, queues=queues))


def nodes(count: int, gpus: int) -> Guarantee:
    return Guarantee(count * gpus * 1000, (Shape(count, gpus),))


def ask(name: str, gpus: int, tasks: int = 1, **more: object) -> Ask:
    return Ask(JobId(name), (("p", gpus * 1000),), tasks, **more)  # type: ignore[arg-type]


def test_shapes_are_a_cell_for_each_node_and_a_number_is_one() -> None:
    assert sizes_of(nodes(2, 8)) == [8000, 8000]
    assert sizes_of(Guarantee(12_000)) == [12_000]
    assert sizes_of(Guarantee(36_000, (Shape(1, 8), Shape(2, 2)))) == [24_000, 6000, 6000], (
        "of a dearer model"
    )
    assert sizes_of(Guarantee()) == []


def test_seat_cells_beyond_those_of_children_are_the_queues_own() -> None:
    cells = cells_of(tree(a=20, a__x=8, a__y=nodes(1, 4), b=0))
    assert cells == {("a", "p"): (8000,), ("a/x", "p"): (8000,), ("a/y", "p"): (4000,)}
    assert cells_of(tree(a=nodes(3, 8), a__x=nodes(1, 8), a__y=4)) == {
        ("a", "p"): (4000, 8000),
        ("a/x", "p"): (8000,),
        ("a/y", "p"): (4000,),
    }


def test_seat_cells_of_a_number_are_cut_out_of_several_shapes() -> None:
    assert without([8000, 8000], [12_000]) == [0, 4000]


def test_guarantees_that_are_more_than_there_is_are_scaled() -> None:
    overbooked = tree(a=nodes(2, 8), b=16)
    assert cells_of(overbooked, {"p": 16_000}) == {("a", "p"): (8000,), ("b", "p"): (8000,)}
    assert cells_of(overbooked, {"p": 32_000}) == cells_of(overbooked)
    assert shrunk([8000, 8000], 12_000) == [8000, 4000]


def test_seat_goes_to_the_first_in_the_line_running_or_waiting() -> None:
    room = Room(cells_of(tree(b=nodes(2, 8))))
    seats = give(room, {"b": [ask("gang", 8, 2), ask("runs", 4), ask("waits", 1)]}, {}, 5.0)
    assert seats == {JobId("gang"): GuaranteedAdmission("b", "p", (0, 1), 8000, 5.0)}


def test_later_job_that_has_room_has_a_seat_though_a_gang_before_it_has_none() -> None:
    room = Room(cells_of(tree(b=nodes(2, 8))))
    assert room.take(GuaranteedAdmission("b", "p", (0,), 2000, 1.0))
    seats = give(room, {"b": [ask("gang", 8, 2), ask("small", 4)]}, {}, 5.0)
    assert seats == {JobId("small"): GuaranteedAdmission("b", "p", (0,), 4000, 5.0)}, (
        "where it leaves a whole cell"
    )


def test_seat_cells_are_kept_for_a_starving_job() -> None:
    room = Room(cells_of(tree(b=nodes(2, 8))))
    assert room.take(GuaranteedAdmission("b", "p", (0,), 2000, 1.0))
    assert give(room, {"b": [ask("gang", 8, 2, starving=True), ask("small", 4)]}, {}, 5.0) == {}


def test_seat_cells_are_not_kept_for_a_job_that_could_never_have_one() -> None:
    room = Room(cells_of(tree(b=8)))
    seats = give(room, {"b": [ask("gang", 8, 2, starving=True), ask("small", 4)]}, {}, 5.0)
    assert set(seats) == {"small"}


def test_seats_of_a_parent_are_given_in_turn_by_weight() -> None:
    room = Room(cells_of(tree(a=6, a__x=0, a__y=0)))
    lines = {path: [ask(f"{path}{i}", 1, rank=(i,)) for i in range(9)] for path in ("a/x", "a/y")}
    seats = give(room, lines, {"a/x": 2, "a/y": 1}, 5.0)
    assert Counter(job_id[:3] for job_id in seats) == {"a/x": 4, "a/y": 2}
    assert {seat.queue for seat in seats.values()} == {"a"}


def test_seats_of_a_parent_go_to_children_without_one_first() -> None:
    room = Room(cells_of(tree(a=4, a__x=0, a__y=0)))
    first = GuaranteedAdmission("a", "p", (0,), 2000, 1.0)
    assert room.take(first)
    lines = {path: [ask(f"{path}{i}", 1) for i in range(2)] for path in ("a/x", "a/y")}
    seats = give(room, lines, {}, 5.0, [Held("a/x", first, ask("old", 2))])
    assert set(seats) == {"a/y0", "a/y1"}


def test_seat_is_in_the_first_pool_that_has_room() -> None:
    room = Room({("b", "p"): (1000,), ("b", "q"): (4000,)})
    both = Ask(JobId("any"), (("p", 2000), ("q", 3000)))
    assert give(room, {"b": [both]}, {}, 5.0) == {
        JobId("any"): GuaranteedAdmission("b", "q", (0,), 3000, 5.0)
    }


def test_seats_are_given_up_from_the_newest_with_fewer_cells() -> None:
    held = [
        Held("b", GuaranteedAdmission("b", "p", (1,), 8000, 1.0), ask("old", 8)),
        Held("b", GuaranteedAdmission("b", "p", (0,), 8000, 2.0), ask("new", 8)),
    ]
    _, changed = kept(cells_of(tree(b=nodes(1, 8))), held)
    assert changed == {JobId("old"): GuaranteedAdmission("b", "p", (0,), 8000, 1.0), JobId("new"): None}


def test_job_that_grows_keeps_its_seat_where_there_is_room_and_nobody_else_loses_one() -> None:
    held = [
        Held("b", GuaranteedAdmission("b", "p", (0,), 2000, 1.0), ask("grows", 6)),
        Held("b", GuaranteedAdmission("b", "p", (0,), 4000, 2.0), ask("stays", 4)),
    ]
    assert kept({("b", "p"): (8000,)}, held)[1] == {JobId("grows"): None}
    assert kept({("b", "p"): (10_000,)}, held)[1] == {
        JobId("grows"): GuaranteedAdmission("b", "p", (0,), 6000, 1.0)
    }


CELLS = st.dictionaries(
    st.tuples(st.sampled_from((*LEAVES, "a")), st.sampled_from(POOLS)),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
)
WANTS = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 9), min_size=1).map(lambda d: tuple(d.items()))


@st.composite
def lines(draw: st.DrawFn) -> dict[str, list[Ask]]:
    made: dict[str, list[Ask]] = {}
    serial = 0
    for leaf in LEAVES:
        made[leaf] = []
        for _ in range(draw(st.integers(0, 6))):
            serial += 1
            made[leaf].append(
                Ask(JobId(f"j{serial}"), draw(WANTS), draw(st.integers(1, 3)), (serial,), draw(st.booleans()))
            )
    return made


def fits(cells: Cells, seats: list[GuaranteedAdmission]) -> bool:
    used = Counter[tuple[str, str, int]]()
    for seat in seats:
        for cell in seat.cells:
            used[seat.queue, seat.pool, cell] += seat.milli
    return all(milli <= cells[queue, pool][cell] for (queue, pool, cell), milli in used.items())


def held_of(asks: dict[str, list[Ask]], seats: dict[JobId, GuaranteedAdmission]) -> list[Held]:
    return [Held(leaf, seats[a.job_id], a) for leaf, line in asks.items() for a in line if a.job_id in seats]


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_seat_cells_are_given_once_and_each_task_has_its_place(count: int) -> None:
    @settings(max_examples=count)
    @given(CELLS, lines())
    def check(cells: Cells, asks: dict[str, list[Ask]]) -> None:
        seats = give(Room(cells), asks, {}, 1.0)
        assert fits(cells, list(seats.values()))
        for held in held_of(asks, seats):
            assert len(held.seat.cells) == held.ask.tasks
            assert (held.seat.pool, held.seat.milli) in held.ask.wants
            assert held.seat.queue in lineage(held.leaf)

    check()


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_seat_is_refused_only_where_there_is_no_room(count: int) -> None:
    @settings(max_examples=count)
    @given(CELLS, lines())
    def check(cells: Cells, asks: dict[str, list[Ask]]) -> None:
        free_of_starving = {
            leaf: [Ask(a.job_id, a.wants, a.tasks, a.rank) for a in line] for leaf, line in asks.items()
        }
        room = Room(cells)
        seats = give(room, free_of_starving, {}, 1.0)
        for leaf, line in free_of_starving.items():
            for each in line:
                if each.job_id not in seats:
                    assert not any(room.find(path, each) for path in lineage(leaf))

    check()


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_seats_do_not_change_while_the_queue_document_is_the_same(count: int) -> None:
    @settings(max_examples=count)
    @given(CELLS, lines())
    def check(cells: Cells, asks: dict[str, list[Ask]]) -> None:
        seats = give(Room(cells), asks, {}, 1.0)
        room, changed = kept(cells, held_of(asks, seats))
        assert changed == {}
        assert all(
            sum(room.free(*key))
            + sum(s.milli * len(s.cells) for s in seats.values() if (s.queue, s.pool) == key)
            == sum(sizes)
            for key, sizes in cells.items()
        )

    check()


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
def test_seats_of_older_jobs_outlast_newer_ones_under_another_document(count: int) -> None:
    @settings(max_examples=count)
    @given(CELLS, CELLS, lines())
    def check(cells: Cells, others: Cells, asks: dict[str, list[Ask]]) -> None:
        seats = give(Room(cells), asks, {}, 1.0)
        held = [
            Held(
                each.leaf,
                GuaranteedAdmission(each.seat.queue, each.seat.pool, each.seat.cells, each.seat.milli, since),
                each.ask,
            )
            for since, each in enumerate(held_of(asks, seats))
        ]
        _, changed = kept(others, held)
        now = {each.ask.job_id: changed.get(each.ask.job_id, each.seat) for each in held}
        assert fits(others, [seat for seat in now.values() if seat is not None])
        alike = [(a, b) for a in held for b in held if a.leaf == b.leaf and a.ask.kind == b.ask.kind]
        for older, newer in alike:
            if older.seat.since < newer.seat.since and now[older.ask.job_id] is None:
                assert now[newer.ask.job_id] is None

    check()


@pytest.mark.parametrize("full", [True, False])
def test_ten_thousand_jobs_of_five_hundred_queues_are_seated_fast(full: bool) -> None:
    cells = {(f"q{i}/l", "p"): (8000, 8000) for i in range(500)}
    room = Room(cells)
    for i in range(500 if full else 0):
        assert room.take(GuaranteedAdmission(f"q{i}/l", "p", (0, 1), 8000, 1.0))
    asks = {f"q{i}/l": [ask(f"{i}-{n}", 1 + n % 8, rank=(n,)) for n in range(20)] for i in range(500)}
    seats = give(room, asks, {}, 1.0)
    assert bool(seats) is not full
