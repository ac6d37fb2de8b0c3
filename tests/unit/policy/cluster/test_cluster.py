"""Placement over arrays: which node, which GPU, and what free space is worth."""

import numpy as np
import pytest

from mesos_gpu.policy.cluster.fragmentation import Fragmentation, Kind, Mix, mix_of
from mesos_gpu.policy.cluster.policies import BestFit, Bundle, Random, Spread
from mesos_gpu.policy.cluster.prices import scarcity, worth
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import Policy, View

ONE = Shape(1000, 100, 1)
FULL, HALF = (1000,) * 4, (0, 0, 1000, 1000)


def node(*free: int, cpu: int = 32_000, mem: int = 100_000, model: str = "T4") -> Row:
    return Row(cpu, mem, free, model)


def chosen(policy: Policy, shape: Shape, *nodes: Row) -> int | None:
    view = View(nodes, policy)
    return view.best(view.shape(shape))


CASES = {
    "bundle fills a used node": (Bundle(), ONE, [node(*FULL), node(*HALF)], 1),
    "bundle leaves one that is too full": (Bundle(), Shape(1, 1, 3), [node(*FULL), node(*HALF)], 0),
    "bundle keeps CPU work off free GPUs": (Bundle(), Shape(1, 1), [node(*FULL), node(), node(*HALF)], 1),
    "spread takes the freest": (Spread(), ONE, [node(*HALF), node(*FULL)], 1),
    "best fit takes the tightest": (BestFit(), ONE, [node(1000, cpu=9000), node(1000, cpu=4000)], 1),
    "no processors": (Bundle(), Shape(64_000, 1, 1), [node(*FULL)], None),
    "no memory": (Bundle(), Shape(1, 200_000, 1), [node(*FULL)], None),
    "more GPUs than any node has": (Bundle(), Shape(1, 1, 5), [node(*FULL)], None),
    "a fraction on no whole GPU": (Bundle(), Shape(1, 1, 1, 300), [node(1000, 200), node(0, 300)], 1),
    "a fraction that fits nowhere": (Bundle(), Shape(1, 1, 1, 300), [node(200, 200)], None),
    "only that model": (
        Bundle(), Shape(1, 1, 1, models=("A100", "H100")), [node(1000), node(1000, model="H100")], 1,
    ),
    "that model is not there": (Bundle(), Shape(1, 1, 1, models=("A100",)), [node(1000)], None),
    "GPUs in parts are no whole ones": (Bundle(), Shape(1, 1, 2), [node(900, 1000, 900), node(1000, 1000)], 1),
}  # fmt: skip


@pytest.mark.parametrize(("policy", "shape", "nodes", "want"), CASES.values(), ids=CASES)
def test_placement_policy_chooses_this_node(
    policy: Policy, shape: Shape, nodes: list[Row], want: int | None
) -> None:
    assert chosen(policy, shape, *nodes) == want


def test_fraction_goes_to_the_gpu_with_the_least_left() -> None:
    view = View([node(1000, 300, 500)], Bundle())
    number = view.shape(Shape(1, 1, 1, 300))
    assert view.take(0, number) == (1,)
    assert view.take(0, number) == (2,)
    assert view.free[0] == [1000, 0, 200]


def test_gpus_given_back_can_be_taken_again() -> None:
    view = View([node(*FULL)], Bundle())
    pair = view.shape(Shape(1000, 100, 2))
    slots = view.take(0, pair)
    assert slots == (0, 1)
    assert view.take(0, pair) == (2, 3)
    assert view.best(pair) is None
    view.give(0, pair, slots)
    assert view.best(pair) == 0
    assert view.take(0, pair) == (0, 1)
    assert view.cpu[0] == 30_000


def test_node_that_took_nothing_new_is_not_looked_at_again() -> None:
    """A launch changes one column of keys, for shapes that are known, and nothing else."""
    view = View([node(*FULL) for _ in range(3)], Bundle())
    one, two = view.shape(ONE), view.shape(Shape(1, 1, 2))
    before = view._keys[:2].copy()
    view.take(1, one)
    changed = (view._keys[:2] != before).any(axis=0)
    assert changed.tolist() == [False, True, False]
    assert view.best(two) == 1


@pytest.mark.parametrize("bad", [(1, 1, -1, 1000), (1, 1, 1, 0), (1, 1, 1, 1001), (1, 1, 2, 500)])
def test_shapes_that_cannot_be(bad: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="Shape"):
        Shape(*bad)


def test_random_placement_of_a_seed_is_the_same() -> None:
    nodes = [node(*FULL) for _ in range(50)]
    pairs = [[chosen(Random(seed), ONE, *nodes) for _ in range(2)] for seed in range(8)]
    assert all(first == second for first, second in pairs)
    assert len({first for first, _ in pairs}) > 3


# --- fragmentation

MIX = Mix(
    {
        Kind(4000, 1, 500, ()): 0.5,
        Kind(8000, 2, 1000, ()): 0.25,
        Kind(1000, 0, 0, ()): 0.25,
    },
    {500: 1},
    {(): 1},
)


def f_of(*free: int, cpu: int = 32_000) -> float:
    policy = Fragmentation(MIX)
    View([node(*free, cpu=cpu)], policy)
    return policy.fragmented()


BY_HAND = {
    # 2,000 idle; halves waste none of it, pairs none, CPU work all.
    "two whole GPUs": ((1000, 1000), 32_000, 0.25 * 2000),
    # 1,300 idle; halves cannot use 300; a pair cannot run; CPU work.
    "one and a rest": ((1000, 300), 32_000, 0.5 * 300 + 0.25 * 1300 + 0.25 * 1300),
    "no processors for the pair": ((1000, 1000), 5000, 0.25 * 2000 + 0.25 * 2000),
    "no processors at all": ((1000, 1000), 500, 2000),
    "nothing idle": ((0, 0), 32_000, 0),
}


@pytest.mark.parametrize(("free", "cpu", "want"), BY_HAND.values(), ids=BY_HAND)
def test_fragmentation_by_hand(free: tuple[int, ...], cpu: int, want: float) -> None:
    assert f_of(*free, cpu=cpu) == pytest.approx(want)


def test_mix_of_requests_has_the_frequent_kinds() -> None:
    shapes = [ONE] * 60 + [Shape(1000, 999, 1)] * 36 + [Shape(2000, 1, 1, 300)] * 3 + [Shape(5, 5)]
    mix = mix_of(shapes)
    assert mix.kinds == {Kind(1000, 1, 1000, ()): 1.0}, "memory is not of the kind; 96 % cover 95"
    assert mix.fractions == {300: 3}


def test_pair_of_gpus_is_kept_for_those_who_need_a_pair() -> None:
    policy = Fragmentation(MIX)
    assert chosen(policy, Shape(1000, 1, 1, 500), node(1000, 1000), node(1000, 0)) == 1


def test_rest_that_nothing_fits_is_not_made_if_it_can_be_helped() -> None:
    """470 and 530 fill a GPU; 320 leaves 210 beside 470, and 30 beside 650."""
    shapes = [Shape(1, 1, 1, milli) for milli in (470, 530, 320, 650) for _ in range(10)]
    policy = Fragmentation(mix_of(shapes))
    view = View([node(530, 350)], policy)
    assert view.take(0, view.shape(Shape(1, 1, 1, 320))) == (1,)


def test_fgd_alone_is_a_special_case() -> None:
    pure = Fragmentation(MIX, share_of_f=1.0, share_of_worth=0.0, share_of_scarcity=0.0)
    assert chosen(pure, Shape(1000, 1, 1, 500), node(1000, 1000), node(1000, 500)) == 1


def test_request_for_any_model_leaves_scarce_models_to_those_that_name_them() -> None:
    """Two models alike, but for what is asked for by name; the node that is nearly full would be the tighter fit."""
    policy = Fragmentation(mix_of([ONE] * 5 + [Shape(1000, 1, 1, models=("T4",))] * 5))
    full, empty = node(1000, 0, 0, 0, model="T4"), node(*FULL, model="A10")
    assert chosen(policy, ONE, full, empty) == 1
    assert chosen(policy, Shape(1000, 1, 1, models=("T4",)), full, empty) == 0


# --- what free space is worth


def test_worth_of_halves_is_half() -> None:
    prices = worth({500: 7})
    assert prices[[0, 499, 500, 999, 1000]] == pytest.approx([0, 0, 0.5, 0.5, 1])


def test_worth_of_a_rest_that_nothing_uses_is_nothing() -> None:
    """Each 810 leaves 190, and few ask for so little: a GPU with 810 on it is as good as full."""
    prices = worth({810: 1000, 160: 50})
    assert prices[190] == pytest.approx(0)
    assert prices[810] == pytest.approx(1)


def test_rest_is_worth_what_it_can_be_filled_with() -> None:
    """There are more 320s than 650s: the space beside a 650 is worth a third, as it is anywhere."""
    prices = worth({650: 10, 320: 300})
    assert prices[350] == pytest.approx(1 / 3)
    assert prices[650] == pytest.approx(2 / 3)


def test_worth_without_fractions_is_of_whole_gpus_only() -> None:
    prices = worth({})
    assert (prices[999], prices[1000]) == (0, 1)
    assert np.array_equal(prices, worth({1000: 5, 0: 3}))


# --- scarcity


def test_scarcity_by_hand() -> None:
    """Ten of the two models are free, and eight are asked for: each of them counts as 10 / 8."""
    scarce = scarcity({(): 4, ("T4",): 2, ("T4", "A10"): 2}, {"T4": 4, "A10": 6, "gone": 0})
    assert scarce == pytest.approx({"T4": (2 / 4 + 2 / 10) * 10 / 8, "A10": 2 / 10 * 10 / 8, "gone": 0})


def test_scarcity_is_zero_if_no_request_names_a_model() -> None:
    assert scarcity({(): 4}, {"T4": 4}) == {"T4": 0}
    assert scarcity({}, {"T4": 4}) == scarcity({("A10",): 4}, {"T4": 4}) == {"T4": 0}


def test_model_of_which_hardly_anything_is_free_is_not_infinitely_dear() -> None:
    assert scarcity({("T4",): 1}, {"T4": 1e-6, "A10": 1000})["T4"] == 4
