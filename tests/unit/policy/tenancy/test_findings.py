"""Findings of a document as a whole: faults with their places, and warnings in words."""

from dataclasses import replace

import pytest

from mesos_gpu.model.tenancy import (
    Guarantee,
    Idle,
    IdlePolicy,
    JobClass,
    Pool,
    QueueDocument,
    QueueSpec,
    Shape,
)
from mesos_gpu.policy.tenancy.checks import Findings, NodeFacts, findings, owed_of, too_short
from mesos_gpu.policy.tenancy.packing import surely_apart
from mesos_gpu.policy.tenancy.pools import pool_of, pools_of_unreported
from mesos_gpu.policy.tenancy.tree import Tree

EIGHT = NodeFacts(("A100",) * 8, {})


def owed(gpus: float, *shapes: Shape) -> QueueSpec:
    return QueueSpec(guarantee_gpus={"default": Guarantee(round(gpus * 1000), shapes)})


def found(document: QueueDocument, *nodes: NodeFacts) -> Findings:
    return findings(Tree(document), nodes)


def test_guarantees_that_are_more_than_there_is_are_a_fault_or_a_warning() -> None:
    document = QueueDocument(1, queues={"a": owed(6), "b": owed(10), "b/c": owed(4)})
    assert found(document, EIGHT, EIGHT) == Findings()
    assert owed_of(Tree(document), "default") == 16_000
    much = replace(document, queues={**document.queues, "d": owed(0.5)})
    assert found(much, EIGHT, EIGHT).faults == (
        (
            "/queues",
            "guarantee 16.5 of pool default together, which has 16: lower them, or let them be scaled "
            "(overbook: true; mesos-gpu queue apply --overbook)",
        ),
    )
    assert found(replace(much, overbook=True), EIGHT, EIGHT) == Findings(
        (),
        (
            "of pool default 16.5 are guaranteed and 16 are there: while all of it is asked for, 96 % of each "
            "guarantee is kept",
        ),
    )


def test_shapes_that_do_not_lie_on_the_nodes_are_a_fault_that_names_them() -> None:
    shapes = {"a": owed(4, Shape(2, 2)), "b": owed(6, Shape(1, 6)), "c": owed(2), "c/d": owed(1, Shape(1, 1))}
    document = QueueDocument(1, queues=shapes)
    small = NodeFacts(("A100",) * 5, {})
    why = "the shapes in pool default do not fit on its nodes together: cells of 6, 2, 2, 1"
    assert found(document, small, small, small) == Findings((("/queues", why),))
    assert found(document, EIGHT, small) == Findings()


def test_shapes_of_children_are_held_against_shapes_above_them_alone() -> None:
    why = "the shapes of the queues below it do not fit into its own in pool default"
    inner = {"a/b": owed(8), "a/b/c": owed(6, Shape(1, 6))}
    document = QueueDocument(1, queues={"a": owed(8, Shape(2, 4)), **inner})
    assert found(document, EIGHT) == found(document) == Findings((("/queues/a/guarantee_gpus", why),))
    assert found(QueueDocument(1, queues={"a": owed(8), **inner}), EIGHT) == Findings()
    deep = QueueDocument(1, queues={"x": owed(0), "x/y": owed(8, Shape(2, 4)), "x/y/z": owed(6, Shape(1, 6))})
    assert found(deep).faults == (("/queues/x~1y/guarantee_gpus", why),)
    more = QueueDocument(1, queues={"a": owed(4, Shape(1, 4)), "a/b": owed(5, Shape(1, 5))})
    assert found(more) == Findings(), "that they are more is a fault of its own"


def test_models_that_no_node_has_are_named_with_those_that_are_near() -> None:
    document = QueueDocument(
        1,
        gpu_cost={"A100": 2, "A10": 3, "Z": 4},
        pools=(Pool("a/b~c", ("H100", "A100")), Pool("ok", ("A100",))),
    )
    nodes = EIGHT, NodeFacts(("B200",), {})
    made = found(document, *nodes)
    assert made.faults == (
        ("/gpu_cost/A10", "no node has a GPU of model A10; did you mean A100?"),
        ("/gpu_cost/Z", "no node has a GPU of model Z; there are A100, B200"),
        ("/pools/a~1b~0c/models/0", "no node has a GPU of model H100; there are A100, B200"),
    )
    assert found(document) == Findings()


def test_pools_that_are_named_or_dedicated_are_warned_of_where_they_are_of_no_use() -> None:
    pools = (
        Pool("there", attributes={"rack": "r1"}, dedicated=True), Pool("gone", attributes={"rack": "r2"}),
        Pool("alone", attributes={"rack": "r3"}, dedicated=True), Pool("open", attributes={"rack": "r4"}),
    )  # fmt: skip
    queues = {"b": QueueSpec(pools=("gone", "there")), "a": QueueSpec(pools=("gone",)), "c": QueueSpec()}
    node = NodeFacts(("A100",), {"rack": "r1"})
    made = found(QueueDocument(1, queues=queues, pools=pools), node, NodeFacts((), {"rack": "r2"}))
    assert (made.faults, [warning.partition(":")[0] for warning in made.warnings]) == (
        (),
        [
            "queue a uses pool gone, and no node with GPUs is in it",
            "pool alone is dedicated, and no queue names it",
        ],
    )


def test_idle_warnings_that_are_too_short_are_found_of_queues_and_classes() -> None:
    short, long = Idle(warn_after_s=20, policy=IdlePolicy.ALWAYS), Idle(warn_after_s=30)
    document = QueueDocument(
        1, queues={"a/b": QueueSpec(idle=short), "c": QueueSpec(idle=long), "d": QueueSpec()},
        classes=(JobClass("x", idle=short), JobClass("y", idle=long), JobClass("z")),
    )  # fmt: skip
    made = list(too_short(document, 10.0))
    assert [place for place, _ in made] == ["/queues/a~1b/idle/warn_after_s", "/classes/x/idle/warn_after_s"]
    assert {why.partition(":")[0] for _, why in made} == {"20 is too short"}
    assert list(too_short(document, 5.0)) == []


def test_cells_lie_together_where_they_fill_the_nodes_exactly() -> None:
    assert not surely_apart([], [])
    assert not surely_apart([4, 4], [8])
    assert not surely_apart([3, 3, 2, 2, 2], [6, 6]), "by search alone"
    assert surely_apart([5, 5, 2], [8, 4])
    assert surely_apart([1], [])


POOLS = (
    Pool("fast", ("A100", "H100")), Pool("both", ("A100",), attributes={"rack": "r1"}),
    Pool("rack", attributes={"rack": "r2"}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("models", "rack", "pool"),
    [
        (["A100"], "r0", "fast"), (["A100", "H100"], "r1", "fast"), (["A100"], "r1", "both"),
        (["A100", "T4"], "r1", "default"), (["A100"], "r2", "fast"), (["T4"], "r2", "rack"), ([], "r2", "rack"),
        ([], "r1", "default"), ([], "", "default"),
    ],
)  # fmt: skip
def test_node_is_in_the_first_pool_by_name_all_of_whose_conditions_hold(
    models: list[str], rack: str, pool: str
) -> None:
    assert pool_of(POOLS, models, NodeFacts((), {"rack": rack} if rack else {})) == pool


def test_node_that_has_not_reported_may_be_in_all_pools_up_to_one_without_models() -> None:
    def may(rack: str) -> frozenset[str]:
        return pools_of_unreported(POOLS, NodeFacts((), {"rack": rack}))

    assert may("r0") == {"fast", "default"}
    assert may("r1") == {"both", "fast", "default"}
    assert may("r2") == {"fast", "rack"}
