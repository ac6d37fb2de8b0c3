"""The tree of a document: its order, inheritance, bounds, pools and fences."""

from dataclasses import replace

import pytest

from mesos_gpu.model.jobs.job import DEFAULT_QUEUE
from mesos_gpu.model.tenancy import (
    Budget,
    Guarantee,
    Hours,
    InheritedValues,
    MinRuntime,
    OnEmpty,
    Pool,
    QueueDocument,
    QueueSpec,
    Stop,
)
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.tenancy.tree import Bound, Queue, Tree, lineage, meeting, parent_of, with_above

RUNTIME = MinRuntime(5.0, 9.0)
ROOT_SPEC = QueueSpec(reclaim=Whose.LOWER, min_runtime_s=RUNTIME, stop=Stop.HOLD, notice_s=0.0)
OUTER = QueueSpec(fence=True, patience=2.0, stop=Stop.NONE)
INNER = QueueSpec(patience=3.0, stop=Stop.DRAIN)
SPECS = {"r": ROOT_SPEC, "r/b": OUTER, "r/b/c": INNER, "r/a": QueueSpec(stop=Stop.NONE), "s": QueueSpec()}


def tree(**specs: QueueSpec) -> Tree:
    return Tree(QueueDocument(1, queues={path.replace("__", "/"): spec for path, spec in specs.items()}))


def test_queues_inherit_what_they_leave_open_and_the_strictest_stop() -> None:
    resolved = InheritedValues(reclaim=Whose.LOWER, min_runtime_s=RUNTIME)
    outer = InheritedValues(reclaim=Whose.LOWER, min_runtime_s=RUNTIME, patience=2.0)
    inner = InheritedValues(reclaim=Whose.LOWER, min_runtime_s=RUNTIME, patience=3.0)
    assert Tree(QueueDocument(1, queues=SPECS)).queues == {
        "r": Queue("r", ROOT_SPEC, resolved, Stop.HOLD, "", ("r/a", "r/b")),
        "r/a": Queue("r/a", QueueSpec(stop=Stop.NONE), resolved, Stop.HOLD, "", ()),
        "r/b": Queue("r/b", OUTER, outer, Stop.HOLD, "r/b", ("r/b/c",)),
        "r/b/c": Queue("r/b/c", INNER, inner, Stop.DRAIN, "r/b", ()),
        "s": Queue("s", QueueSpec(), InheritedValues(), Stop.NONE, "", ()),
        DEFAULT_QUEUE: Queue(DEFAULT_QUEUE, QueueSpec(), InheritedValues(), Stop.NONE, "", ()),
    }


def test_queues_stand_in_the_tree_by_name_whatever_the_order_of_the_document() -> None:
    shuffled = Tree(QueueDocument(1, queues={path: SPECS[path] for path in reversed(SPECS)}))
    assert shuffled.children == {
        "": (DEFAULT_QUEUE, "r", "s"),
        "r": ("r/a", "r/b"),
        "r/b": ("r/b/c",),
    }
    assert shuffled.top == (DEFAULT_QUEUE, "r", "s")
    assert {queue.path for queue in shuffled.leaves()} == {DEFAULT_QUEUE, "r/a", "r/b/c", "s"}
    paths = list(shuffled.queues)
    assert all(parent_of(path) in ("", *paths[:at]) for at, path in enumerate(paths)), "those above first"


def test_queue_of_jobs_that_name_none_is_there_unless_the_document_says_it() -> None:
    said = QueueSpec(weight=7)
    assert Tree(QueueDocument(1, queues={DEFAULT_QUEUE: said})).queues[DEFAULT_QUEUE].spec is said
    assert Tree(QueueDocument(1)).top == (DEFAULT_QUEUE,)


@pytest.mark.parametrize(
    ("queue", "leaf"),
    [("r/a", "r/a"), ("r", DEFAULT_QUEUE), ("gone", DEFAULT_QUEUE), ("", DEFAULT_QUEUE), ("r/b/c", "r/b/c")],
)
def test_queue_that_takes_no_jobs_has_those_of_the_default_one(queue: str, leaf: str) -> None:
    assert Tree(QueueDocument(1, queues=SPECS)).leaf_of(queue) == leaf


def test_tree_whose_default_queue_has_others_below_has_no_leaf_for_unknown_queues() -> None:
    inner = Tree(QueueDocument(1, queues={DEFAULT_QUEUE: QueueSpec(), f"{DEFAULT_QUEUE}/x": QueueSpec()}))
    assert [inner.leaf_of(name) for name in ("gone", DEFAULT_QUEUE, f"{DEFAULT_QUEUE}/x")] == [
        "", "", f"{DEFAULT_QUEUE}/x",
    ]  # fmt: skip


def test_paths_are_known_by_their_names() -> None:
    assert [parent_of(path) for path in ("a/b/c", "a/b", "a")] == ["a/b", "a", ""]
    assert lineage("a/b/c") == ("a/b/c", "a/b", "a")
    assert with_above({"a/b": 3, "a/c": 4, "d": 5}) == {"a/b": 3, "a/c": 4, "a": 7, "d": 5}
    assert meeting("a/b/c", "a/d") == ("a/b", "a/d")
    assert meeting("a/b", "c") == ("a", "c")
    assert meeting("a/b/c", "a/b/d") == ("a/b/c", "a/b/d")


BUDGET = Budget(1000)
BORROW = Budget(1000, on_empty=OnEmpty.BORROW)
BUDGETS = {
    "none": (QueueSpec(), False, False),
    "of the queue": (QueueSpec(budget=BUDGET), True, False),
    "of users": (QueueSpec(user_budgets={"*": BUDGET}), True, False),
    "of the queue, lets borrow": (QueueSpec(budget=BORROW), True, True),
    "of one user, lets borrow": (
        QueueSpec(budget=BUDGET, user_budgets={"x": BUDGET, "y": BORROW}),
        True,
        True,
    ),
}


@pytest.mark.parametrize(("spec", "has", "borrows"), BUDGETS.values(), ids=BUDGETS)
def test_tree_knows_whether_anybody_has_a_budget(spec: QueueSpec, has: bool, borrows: bool) -> None:
    made = tree(a=QueueSpec(), b=spec)
    assert (made.has_budgets, made.lets_borrow) == (has, borrows)


def test_tree_knows_whether_anything_is_guaranteed_or_kept_idle() -> None:
    nothing = QueueSpec(guarantee_gpus={"p": Guarantee(0)})
    assert not tree(a=nothing, b=QueueSpec()).is_guaranteed
    owed = tree(a=nothing, b=QueueSpec(guarantee_gpus={"p": Guarantee(1)}, lend_limit_gpus={"q": 0}))
    assert owed.is_guaranteed
    assert (tree(a=nothing).lenders, owed.lenders) == (frozenset(), frozenset({"q"}))


def test_bounds_of_a_queue_are_its_own_and_those_above_it_the_lowest_of_each_pool() -> None:
    made = tree(
        a=QueueSpec(limit_gpus={"q": 9, "p": 8}),
        a__b=QueueSpec(
            limit_gpus={"p": 7, "q": 3}, borrow_limit_gpus={"p": 2, "r": 1, "q": 1},
            guarantee_gpus={"p": Guarantee(4), "q": Guarantee(4)},
        ),
        c=QueueSpec(),
    )  # fmt: skip
    above = Bound("a", "p", 8), Bound("a", "q", 9)
    assert made.bounds == {
        "a": above,
        "a/b": (Bound("a/b", "p", 6), Bound("a/b", "q", 3), Bound("a/b", "r", 1), *above),
    }


def test_queue_has_hours_where_it_or_one_above_it_has_any() -> None:
    made = tree(a=QueueSpec(hours=(Hours("22:00", "06:00"),)), a__b=QueueSpec(), c=QueueSpec())
    assert [made.has_hours(path) for path in ("a", "a/b", "a/b/gone", "c", "gone")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_pools_of_a_queue_are_named_by_it_or_above_it_else_all_that_are_shared() -> None:
    pools = (Pool("zoo"), Pool("own", dedicated=True), Pool("any"))
    named = QueueSpec(pools=("own", "any"), overflow_after_s=5.0)
    made = Tree(QueueDocument(1, queues={"a": named, "a/b": QueueSpec(), "c": QueueSpec(overflow_after_s=9.0)},
                              pools=pools))  # fmt: skip
    shared = ("any", "default", "zoo")
    assert made.shared_pools == shared
    assert [made.pools_of(path) for path in ("a", "a/b", "c", "gone")] == [
        ("own", "any"), ("own", "any"), shared, shared,
    ]  # fmt: skip
    assert [made.overflow_after_s(path) for path in ("a", "a/b", "c", "gone")] == [5.0, 5.0, None, None]


def test_document_beside_others_keeps_its_own_queues() -> None:
    made = tree(a=QueueSpec(weight=2))
    beside = made.beside({"a": QueueSpec(weight=9), "b": QueueSpec(weight=3)})
    assert {path: spec.weight for path, spec in beside.specs.items()} == {"default": 1, "a": 2, "b": 3}
    assert [path for path in beside.specs if beside.is_written(path)] == ["a"]


def test_tree_of_an_empty_document_is_flat() -> None:
    empty = QueueDocument(7, 9.0, "ann", "back to one line", reclaim_at=5.0)
    assert (Tree(empty).is_flat, Tree(empty).beside({"b": QueueSpec()}).is_flat) == (True, True)
    assert not tree(a=QueueSpec()).is_flat
    assert not Tree(replace(empty, overbook=True)).is_flat


def test_cost_of_a_model_is_one_where_the_document_says_none() -> None:
    made = Tree(QueueDocument(1, gpu_cost={"A100": 3}))
    assert (made.cost_milli("A100", 500), made.cost_milli("T4", 500)) == (1500, 500)


def test_fence_is_between_who_is_inside_and_who_is_not() -> None:
    made = tree(
        f=QueueSpec(fence=True), f__x=QueueSpec(), f__y=QueueSpec(fence=True), ff=QueueSpec(), o=QueueSpec()
    )
    queues = made.queues
    fenced = {
        (one, other) for one in queues for other in queues if made.is_fenced(queues[one], queues[other])
    }
    inside, outside = ("f", "f/x", "f/y"), ("ff", "o", DEFAULT_QUEUE)
    across = {(one, other) for one in inside for other in outside}
    own = {("f/y", "f/x"), ("f/y", "f")}
    pairs = across | own
    assert fenced == pairs | {(other, one) for one, other in pairs}
    assert made.inside("anything", "")
    assert [made.inside(path, "f") for path in ("f", "f/x", "ff", "")] == [True, True, False, False]
