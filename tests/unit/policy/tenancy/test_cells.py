"""Cells of guarantees: how they are cut out of each other, scaled, and what they could hold."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.tenancy import Guarantee, QueueDocument, QueueSpec, Shape
from mesos_gpu.policy.tenancy.cells import cells_of, could_hold, shrunk, sizes_of, whole_cells, without
from mesos_gpu.policy.tenancy.tree import Tree

WITHOUT = {
    "nothing is taken": ([3, 1], [], [3, 1]),
    "the smallest that holds it": ([9, 5, 7], [5], [9, 0, 7]),
    "the first of equals": ([6, 6], [4], [2, 6]),
    "the largest first": ([4, 8], [4, 8], [0, 0]),
    "the largest first, into the rest": ([10, 6], [4, 6], [6, 0]),
    "several, the largest first": ([3, 7, 5], [11], [3, 0, 1]),
    "several, the first of equals": ([4, 4, 4], [6], [0, 2, 4]),
    "more than there is": ([2, 3], [9], [0, 0]),
}


@pytest.mark.parametrize(("cells", "taken", "left"), WITHOUT.values(), ids=WITHOUT)
def test_cells_are_cut_out_of_as_few_others_as_can_be(
    cells: list[int], taken: list[int], left: list[int]
) -> None:
    assert without(cells, taken) == left


@given(st.lists(st.integers(0, 9), max_size=5), st.lists(st.integers(0, 9), max_size=4))
def test_cells_that_are_cut_lose_as_much_as_is_taken(cells: list[int], taken: list[int]) -> None:
    left = without(cells, taken)
    assert sum(left) == max(sum(cells) - sum(taken), 0)
    assert all(0 <= rest <= size for rest, size in zip(left, cells, strict=True))


def test_cells_are_kept_from_the_first_on_as_far_as_there_is_room() -> None:
    assert [shrunk([4, 2, 3], most) for most in (0, 3, 4, 5, 9, 20)] == [
        [0, 0, 0], [3, 0, 0], [4, 0, 0], [4, 1, 0], [4, 2, 3], [4, 2, 3],
    ]  # fmt: skip


def test_sizes_of_a_guarantee_are_in_proportion_to_its_nodes() -> None:
    assert sizes_of(Guarantee(7)) == [7]
    assert sizes_of(Guarantee(0)) == []
    assert sizes_of(Guarantee(9000, (Shape(1, 2), Shape(2, 1)))) == [4500, 2250, 2250]


def document(*, overbook: bool = False, **owed: dict[str, Guarantee]) -> Tree:
    queues = {path.replace("__", "/"): QueueSpec(guarantee_gpus=each) for path, each in owed.items()}
    return Tree(QueueDocument(1, queues=queues, overbook=overbook))


def test_queue_that_says_nothing_is_owed_what_those_below_it_are() -> None:
    tree = document(
        a={}, a__x={"p": Guarantee(3), "q": Guarantee(2)}, a__y={"p": Guarantee(4)},
        b={"p": Guarantee(9)}, b__z={"p": Guarantee(5)},
    )  # fmt: skip
    whole = {("a/x", "p"): (3,), ("a/x", "q"): (2,), ("a/y", "p"): (4,), ("b", "p"): (4,), ("b/z", "p"): (5,)}
    assert cells_of(tree) == whole_cells(tree) == whole
    assert cells_of(tree, {}) == cells_of(tree, {"other": 1}) == whole, "nothing is known of these pools"
    assert cells_of(tree, {"p": 16}) == whole, "there is enough"
    assert cells_of(tree, {"p": 8}) == {
        ("a/x", "q"): (2,), ("a", "p"): (1,), ("a/x", "p"): (1,), ("a/y", "p"): (1,), ("b/z", "p"): (4,),
    }, "a has three of its seven, and b four of its nine"  # fmt: skip


@pytest.mark.parametrize(
    ("wants", "tasks", "could"),
    [
        ([("p", 2)], 3, True), ([("p", 2)], 4, False), ([("p", 3)], 2, True), ([("p", 5)], 1, False),
        ([("p", 0)], 7, True), ([("p", 0)], 8, False), ([("q", 9)], 1, True), ([("q", 9)], 2, False),
        ([("q", 10), ("p", 4)], 1, True), ([], 1, False), ([("r", 1)], 1, False), ([("r", 1)], 0, True),
    ],
)  # fmt: skip
def test_job_could_be_held_by_the_cells_of_its_queue_or_of_one_above_it(
    wants: list[tuple[str, int]], tasks: int, could: bool
) -> None:
    cells = {("a/b", "p"): (4, 3), ("a", "q"): (9,), ("a/c", "p"): (99,), ("a/c", "q"): (99,)}
    assert could_hold(cells, "a/b", wants, tasks) is could


def test_job_could_not_be_held_by_cells_of_two_queues_together() -> None:
    for tasks, size in product((1, 2, 3), (2, 3)):
        assert could_hold({("a", "p"): (2,), ("a/b", "p"): (3,)}, "a/b", [("p", size)], tasks) is (tasks == 1)
