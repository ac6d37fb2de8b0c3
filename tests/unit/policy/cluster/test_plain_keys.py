"""Keys of the simple policies, ties, and loads of a view, against the plain definition."""

from random import Random

import numpy as np
import pytest

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.policies import BestFit, Bundle, Spread
from mesos_gpu.policy.cluster.policies import Random as Chance
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import Policy, View

ROWS = [
    Row(0, 500, (0, 0, 0), "T4"),
    Row(4000, 500, (WHOLE, 300), "T4"),
    Row(17, 500, (WHOLE, WHOLE, WHOLE), "T4"),
    Row(300_000, 500, (250,), "A10"),
    Row(262_128, 500, (), ""),
]
SHAPES = [Shape(0, 1), Shape(16, 1, 2), Shape(1000, 1, 1, 250), Shape(0, 1, 1, 600)]

NAMES = ["bundle", "spread", "bestfit"]


def bundle(cpu: int, free: list[int], shape: Shape) -> int:
    return sum(free) * 2**14 + (0 if shape.gpus else min(cpu // 16, 2**14 - 1))


def spread(cpu: int, free: list[int], shape: Shape) -> int:
    return (3 * WHOLE - sum(free)) * 2**14 + 2**14 - 1 - min(cpu // 16, 2**14 - 1)


def best_fit(cpu: int, free: list[int], shape: Shape) -> int:
    left = (cpu - shape.cpu_milli) / 300_000 + (sum(free) - shape.milli) / (3 * WHOLE)
    return max(int(left * 2**20), 0)


@pytest.mark.parametrize(
    ("policy", "key"), [(Bundle(), bundle), (Spread(), spread), (BestFit(), best_fit)], ids=NAMES
)
def test_keys_of_simple_policies_are_those_of_the_plain_definition(policy: Policy, key: object) -> None:
    assert callable(key)
    view = View(ROWS, policy)
    for shape in SHAPES:
        number = view.shape(shape)
        want = [key(row.cpu_milli, list(row.gpu_free_milli), shape) for row in ROWS]
        assert policy.keys(slice(None), number).tolist() == want
        of_rows = [policy.keys(row, slice(0, number + 1)) for row in range(len(ROWS))]
        assert [int(np.broadcast_to(keys, number + 1)[number]) for keys in of_rows] == want


def test_best_fit_measures_by_one_where_no_node_has_anything() -> None:
    policy = BestFit()
    view = View([Row(0, 9, (0,), "T4"), Row(0, 8, (), "")], policy)
    assert policy.keys(slice(None), view.shape(Shape(0, 1))).tolist() == [0, 0]


def test_random_keys_are_of_the_shape_that_is_asked_for() -> None:
    policy = Chance(7)
    view = View(ROWS, policy)
    numbers = [view.shape(shape) for shape in SHAPES]
    assert policy.keys(slice(None), numbers[0]).shape == (len(ROWS),)
    assert policy.keys(1, slice(0, 3)).shape == (3,)
    drawn = policy.keys(np.arange(5000) % len(ROWS), 0)
    assert 0 <= drawn.min() < 2**27
    assert 2**30 - 2**27 < drawn.max() < 2**30


@pytest.mark.parametrize("policy", [Bundle(), Spread(), BestFit()], ids=NAMES)
def test_part_goes_to_the_gpu_with_the_least_that_has_room_for_both(policy: Policy) -> None:
    part = Shape(0, 0, 1, 300, (), 200)
    free = ((WHOLE, WHOLE), (300, 199), (299, 900), (300, 900), (900, 300), (300, 200))
    view = View([Row(0, 0, tuple(map(min, free)), "T4", free)], policy)
    assert [view.take(0, view.shape(part)) for _ in range(4)] == [(5,), (3,), (4,), (0,)]
    assert view.parts_of(0) == ((700, 800), (300, 199), (299, 900), (0, 700), (600, 100), (0, 0))
    plain = View([Row(0, 0, (WHOLE, 299, 300, 500), "T4")], policy)
    assert [plain.device(0, plain.shape(Shape(0, 0, 1, 300))) for _ in range(2)] == [2, 2]


def test_several_parts_go_to_the_gpus_of_which_least_is_free() -> None:
    free = ((900, 900), (400, 800), (WHOLE, WHOLE), (500, 300), (300, 300))
    view = View([Row(0, 0, tuple(map(min, free)), "T4", free)], Bundle())
    assert view.take(0, view.shape(Shape(0, 0, 2, 300, (), 300))) == (3, 4)
    assert view.free[0] == [900, 400, WHOLE, 0, 0]
    assert view.most_free[0].tolist() == [WHOLE, 900, 400, 0, 0]
    assert view.total[0] == 2300


def lots(view: View, shape: int, draws: range) -> list[int | None]:
    return [view.best(shape, draw=draw) for draw in draws]


def test_ties_are_drawn_from_nodes_in_the_order_of_what_is_free_there() -> None:
    """The lot is Knuth's multiplicative hash of the draw."""
    rows = [Row(9000, mem, (WHOLE,), "T4") for mem in (400, 100, 300, 200)] + [Row(9000, 50, (0,), "T4")]
    view = View(rows, Bundle())
    number = view.shape(Shape(1000, 10, 1))
    by_memory = [1, 3, 2, 0]
    want = [by_memory[(draw * 0x9E3779B97F4A7C >> 40) % 4] for draw in range(40)]
    assert lots(view, number, range(40)) == want
    assert set(want) == {0, 1, 2, 3}
    assert view.best(number) == want[0]
    view.set_row(4, Row(1, 1, (0,), "T4"))
    view.set_row(4, Row(2, 1, (0,), "T4"))
    assert view.best(number) == want[2], "each change draws again"
    assert [view.best(number, np.array([False, False, True, True, True]), draw) for draw in range(40)] == [
        [3, 2][(draw * 0x9E3779B97F4A7C >> 40) % 2] for draw in range(40)
    ]


def test_lots_order_nodes_by_processors_before_memory_before_gpus() -> None:
    rows = [Row(cpu, mem, (gpu,), "T4") for cpu, mem, gpu in ((2, 1, 9), (1, 2, 9), (1, 1, 10), (1, 1, 9))]

    class Alike(Bundle):
        """All nodes are as good."""

        def keys(self, rows: object, shapes: object) -> np.ndarray:
            return np.asarray(super().keys(rows, shapes) * 0)

    view = View(rows, Alike())
    want = [[3, 2, 1, 0][(draw * 0x9E3779B97F4A7C >> 40) % 4] for draw in range(20)]
    assert lots(view, view.shape(Shape(0, 1)), range(20)) == want


def test_least_load_decides_among_nodes_that_are_alike_but_for_the_grain() -> None:
    """Bundle ignores processors then; a node with more free GPU is not alike, whatever its load."""
    rows = [
        Row(cpu, 100, (gpu,), "T4") for cpu, gpu in ((1600, 0), (3200, 0), (4800, 0), (800, WHOLE), (1, 0))
    ]
    view = View(rows, Bundle())
    number = view.shape(Shape(16, 1))
    assert view.best(number) == 0
    assert view.best(number, load=np.array([2, 1, 1, 0, 0])) == 1
    assert view.best(number, load=np.array([0, 0, 0, 0, 0])) == 0
    assert view.best(number, np.array([True, False, True, True, True]), load=np.array([2, 0, 1, 0, 0])) == 2
    assert view.best(number, np.array([False, False, False, True, True]), load=np.array([0, 0, 0, 9, 0])) == 3
    assert (
        view.best(number, np.array([False, False, False, False, True]), load=np.zeros(5, dtype=int)) is None
    )


def test_row_says_all_that_another_account_of_its_node_says() -> None:
    chance = Random(3)
    for apart in (False, True):
        rows = [Row(8000, 800, (WHOLE,) * 3, "T4"), Row(8000, 800, (WHOLE,), "A10")]
        asked = [
            Shape(1000 * chance.randint(0, 9), 100 * chance.randint(0, 9), chance.randint(0, 3), WHOLE,
                  chance.choice(((), ("T4",), ("A10", "T4"))))
            for _ in range(20)
        ] + [Shape(0, 0, 1, 300), Shape(0, 0, 4)]  # fmt: skip
        if apart:
            asked += [Shape(0, 0, gpus, 300, (), memory) for gpus in (1, 2) for memory in (200, 500)]
        view = View(rows, Bundle())
        for shape in asked:
            view.shape(shape)
        for _ in range(12):
            row, count = chance.choice(((0, 3), (0, 2), (1, 1), (1, 0)))
            free = tuple(chance.choice((0, 300, 299, WHOLE)) for _ in range(count))
            parts = tuple((each, chance.choice((each, 500, WHOLE))) for each in free) if apart else ()
            if chance.random() < 0.3:
                parts = ()
            rows[row] = Row(
                1000 * chance.randint(0, 9), 100 * chance.randint(0, 9), free, rows[row].model, parts
            )
            view.set_row(row, rows[row])
            afresh = View([Row(9999, 9999, (0,) * 3, "T4"), *rows], Bundle())
            for number, shape in enumerate(asked):
                mine = [view.best(number, np.arange(2) == each, 0) for each in range(2)]
                other = afresh.shape(shape)
                want = [afresh.best(other, np.arange(3) == each + 1, 0) for each in range(2)]
                assert mine == [None if each is None else each - 1 for each in want], (shape, rows)
                assert [view.best(number) is None] == [want == [None, None]]


@pytest.mark.parametrize(
    ("shape", "memory", "each", "whole", "part"),
    [
        (Shape(1, 1), WHOLE, WHOLE, 0, False),
        (Shape(1, 1, 2), WHOLE, WHOLE, 2 * WHOLE, False),
        (Shape(1, 1, 1, 999), 999, 999, 999, True),
        (Shape(1, 1, 3, 100, (), 300), 300, 300, 900, True),
        (Shape(1, 1, 3, 300, (), 100), 100, 300, 900, True),
        (Shape(1, 1, 2, WHOLE, (), 1), 1, WHOLE, 2 * WHOLE, True),
        (Shape(1, 1, 2, WHOLE, (), WHOLE), WHOLE, WHOLE, 2 * WHOLE, False),
        (Shape(1, 1, 0, 300), 300, 300, 0, False),
    ],
)
def test_shape_counts_the_larger_of_compute_and_memory(
    shape: Shape, memory: int, each: int, whole: int, part: bool
) -> None:
    assert (shape.memory_milli, shape.each_milli, shape.milli, shape.is_part) == (memory, each, whole, part)


@pytest.mark.parametrize(
    "bad", [(-1, 1, None), (1, 0, 5), (1, 1001, 5), (1, 5, 0), (1, 5, 1001), (2, 999, None)]
)
def test_shape_of_impossible_parts_is_refused(bad: tuple[int, int, int | None]) -> None:
    gpus, milli, memory = bad
    with pytest.raises(ValueError, match="Shape"):
        Shape(1, 1, gpus, milli, (), memory)
