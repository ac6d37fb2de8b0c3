"""Whatever comes and goes: the arrays say what a plain account says, and no GPU is given twice."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.fragmentation import Fragmentation, mix_of
from mesos_gpu.policy.cluster.policies import BestFit, Bundle, Spread
from mesos_gpu.policy.cluster.prices import worth
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import NEVER, Policy, View
from tests.property.examples import examples

MODELS = ("T4", "A100")
shapes = st.builds(
    Shape,
    st.integers(0, 8).map(lambda n: n * 1000),
    st.integers(0, 8).map(lambda n: n * 1000),
    st.integers(0, 5),
    st.just(WHOLE),
    st.lists(st.sampled_from(MODELS), unique=True, max_size=2).map(tuple),
) | st.builds(Shape, st.just(1000), st.just(1000), st.just(1), st.sampled_from([50, 320, 470, 650, 810]))
parts = st.builds(
    Shape,
    st.just(1000),
    st.just(1000),
    st.integers(1, 3),
    st.sampled_from([100, 400, 650, WHOLE]),
    gpu_memory_milli=st.sampled_from([100, 320, 400, 999]),
)
nodes = st.builds(
    Row,
    st.sampled_from([4000, 16_000]),
    st.sampled_from([4000, 16_000]),
    st.integers(0, 4).map(lambda n: (WHOLE,) * n),
    st.sampled_from(MODELS),
)
policies: st.SearchStrategy[Callable[[list[Shape]], Policy]] = st.sampled_from(
    [
        lambda _: Bundle(),
        lambda _: Spread(),
        lambda _: BestFit(),
        lambda asked: Fragmentation(mix_of(asked)),
        lambda asked: Fragmentation(mix_of(asked), share_of_f=1.0, share_of_worth=0.0, share_of_scarcity=0.0),
    ]
)


def fits(view: View, row: int, shape: Shape, models: list[str]) -> bool:
    free = view.parts_of(row) if shape.is_part else ()
    every = free or [(milli, milli) for milli in view.free[row]]
    enough = sum(c >= shape.gpu_milli and m >= shape.memory_milli for c, m in every) >= shape.gpus
    right = not shape.models or models[row] in shape.models
    return bool(enough and right and view.cpu[row] >= shape.cpu_milli and view.mem[row] >= shape.mem_mib)


@examples(30, 120)
@given(
    st.lists(nodes, min_size=1, max_size=6),
    st.lists(shapes, min_size=1, max_size=12) | st.lists(shapes | parts, min_size=1, max_size=12),
    policies,
    st.data(),
)
def test_accounts_hold_after_every_placement(
    cluster: list[Row], asked: list[Shape], make: Callable[[list[Shape]], Policy], data: st.DataObject
) -> None:
    view = View(cluster, make(asked))
    models = [node.model for node in cluster]
    running: list[tuple[int, int, tuple[int, ...]]] = []
    for shape in asked:
        number = view.shape(shape)
        able = [row for row in range(len(cluster)) if fits(view, row, shape, models)]
        row = view.best(number)
        assert (row in able) if able else row is None
        if row is not None:
            slots = view.take(row, number)
            assert len(slots) == len(set(slots)) == shape.gpus
            running.append((row, number, slots))
        one_ends = data.draw(st.booleans())
        if running and one_ends:
            view.give(*running.pop(data.draw(st.integers(0, len(running) - 1))))
        _check(view, cluster, running)
        afresh = View(_states(view, models), make(asked))
        for known in view.shapes:
            old, new = view._keys[view.shape(known)], afresh._keys[afresh.shape(known)]
            assert ((old == NEVER) == (new == NEVER)).all()
            if isinstance(
                view._policy, Bundle | Spread
            ):  # others measure by the largest node of the beginning
                assert (old == new).all(), "what was rescored is what a new view says"


def _states(view: View, models: list[str]) -> list[Row]:
    return [
        Row(int(view.cpu[row]), int(view.mem[row]), tuple(free), models[row], view.parts_of(row))
        for row, free in enumerate(view.free)
    ]


def _check(view: View, cluster: list[Row], running: list[tuple[int, int, tuple[int, ...]]]) -> None:
    for row, node in enumerate(cluster):
        here = [(view.shapes[number], slots) for at, number, slots in running if at == row]
        assert view.cpu[row] == node.cpu_milli - sum(shape.cpu_milli for shape, _ in here) >= 0
        assert view.mem[row] == node.mem_mib - sum(shape.mem_mib for shape, _ in here) >= 0
        for slot, milli in enumerate(view.free[row][: len(node.gpu_free_milli)]):
            compute = sum(shape.gpu_milli for shape, slots in here if slot in slots)
            memory = sum(shape.memory_milli for shape, slots in here if slot in slots)
            assert milli == WHOLE - max(compute, memory) >= 0
            if view.parts is not None:
                assert view.parts_of(row)[slot] == (WHOLE - compute, WHOLE - memory)
        assert view.total[row] == sum(view.free[row])
        assert view.most_free[row].tolist() == sorted(view.free[row], reverse=True)


@examples(50, 100)
@given(
    st.lists(nodes, min_size=1, max_size=6), st.lists(shapes, min_size=1, max_size=20), policies, st.data()
)
def test_equal_memory_and_compute_give_the_decisions_of_one_dimension(
    cluster: list[Row], asked: list[Shape], make: Callable[[list[Shape]], Policy], data: st.DataObject
) -> None:
    apart = [replace(shape, gpu_memory_milli=shape.gpu_milli) if shape.is_part else shape for shape in asked]
    one, two = View(cluster, make(asked)), View(cluster, make(apart))
    running: list[tuple[int, int, int, tuple[int, ...]]] = []
    for shape, both in zip(asked, apart, strict=True):
        number, other = one.shape(shape), two.shape(both)
        row = one.best(number)
        assert two.best(other) == row
        if row is not None:
            slots = one.take(row, number)
            assert two.take(row, other) == slots
            running.append((row, number, other, slots))
        one_ends = data.draw(st.booleans())
        if running and one_ends:
            row, number, other, slots = running.pop(data.draw(st.integers(0, len(running) - 1)))
            one.give(row, number, slots)
            two.give(row, other, slots)
        assert (one.free, one.total.tolist()) == (two.free, two.total.tolist())


@examples(20, 60)
@given(st.dictionaries(st.integers(1, WHOLE - 1), st.integers(1, 100), max_size=12))
def test_worth_grows_with_space_and_with_room_for_two(demand: dict[int, int]) -> None:
    prices = worth(demand)
    assert prices[0] == 0
    assert prices[WHOLE] == 1
    assert (prices[1:] >= prices[:-1]).all(), "more space is not worth less"
    for milli in demand:
        for other in demand:
            if milli + other <= WHOLE:
                assert prices[milli + other] >= prices[milli] + prices[other] - 1e-6, (
                    "space for two is worth both"
                )
