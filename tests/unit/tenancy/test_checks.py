"""Checks of trees of queues against nodes: exactly what cannot be kept is reported."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.tenancy import Guarantee, Pool, QueueDocument, QueueSpec, Shape
from mesos_gpu.policy.tenancy.checks import NodeFacts, findings
from mesos_gpu.policy.tenancy.packing import surely_apart
from mesos_gpu.policy.tenancy.tree import Tree


@given(st.lists(st.integers(1, 8), max_size=6), st.lists(st.integers(1, 9), max_size=3))
def test_cells_are_apart_if_and_only_if_no_way_of_all_has_them_together(
    cells: list[int], bins: list[int]
) -> None:
    def fits(places: tuple[int, ...]) -> bool:
        used = [0] * len(bins)
        for size, place in zip(cells, places, strict=True):
            used[place] += size
        return all(taken <= room for taken, room in zip(used, bins, strict=True))

    ways = product(range(len(bins)), repeat=len(cells))
    assert surely_apart(cells, bins) != any(fits(places) for places in ways)


def test_check_of_cells_that_does_not_end_reports_nothing() -> None:
    cells = [701, 503, 499, 301, 293, 211, 199, 107, 103] * 3
    assert not surely_apart(cells, [sum(cells) // 3 + 1] * 2 + [sum(cells) // 3 - 1])


def guarantee(*shapes: tuple[int, int]) -> Guarantee:
    return Guarantee(
        sum(nodes * gpus for nodes, gpus in shapes) * 1000, tuple(Shape(*each) for each in shapes)
    )


def of_queues(**specs: QueueSpec) -> QueueDocument:
    return QueueDocument(version=1, queues={path.replace("_", "/"): spec for path, spec in specs.items()})


NODES = [NodeFacts(("A100",) * 8, {})] * 2


def test_check_of_a_tree_without_nodes_reports_nothing_of_them() -> None:
    tree = Tree(of_queues(a=QueueSpec(guarantee_gpus={"default": Guarantee(1_000_000)})))
    assert findings(tree, []).faults == ()
    assert [place for place, _ in findings(tree, NODES).faults] == ["/queues"]


def test_shapes_of_children_are_cut_out_of_their_parents() -> None:
    inner = {"default": guarantee((2, 4))}
    tree = Tree(of_queues(a=QueueSpec(guarantee_gpus=inner), a_b=QueueSpec(guarantee_gpus=inner)))
    assert findings(tree, NODES).faults == ()
    larger = QueueSpec(guarantee_gpus={"default": guarantee((1, 8))})
    tree = Tree(of_queues(a=QueueSpec(guarantee_gpus=inner), a_b=larger))
    assert findings(tree, NODES).faults == (
        (
            "/queues/a/guarantee_gpus",
            "the shapes of the queues below it do not fit into its own in pool default",
        ),
    )


def test_check_compares_each_pool_with_its_own_nodes_by_cost() -> None:
    owed = QueueSpec(guarantee_gpus={"big": Guarantee(64_000), "default": Guarantee(9_000)})
    document = QueueDocument(
        version=1, queues={"a": owed}, pools=(Pool("big", ("A100",)),), gpu_cost={"A100": 4, "A10": 2}
    )
    nodes = [*NODES, NodeFacts(("T4",) * 8, {})]
    assert findings(Tree(document), nodes).faults == (
        ("/gpu_cost/A10", "no node has a GPU of model A10; did you mean A100?"),
        (
            "/queues",
            "guarantee 9 of pool default together, which has 8: lower them, or let them be scaled "
            "(overbook: true; mesos-gpu queue apply --overbook)",
        ),
    )


def test_warnings_name_unused_pools_and_pools_without_nodes() -> None:
    pools = (Pool("big", ("A100",), dedicated=True), Pool("far", attributes={"rack": "r9"}))
    document = QueueDocument(version=1, queues={"a": QueueSpec(pools=("far", "default"))}, pools=pools)
    assert findings(Tree(document), NODES).warnings == (
        "queue a uses pool default, and no node with GPUs is in it",
        "queue a uses pool far, and no node with GPUs is in it",
        "pool big is dedicated, and no queue names it: it is unused",
    )
