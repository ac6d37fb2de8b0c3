"""Names of GPU models in a document of queues: the cost of a card, the pool of a node, the pools that a job may use."""

import pytest

from mesos_gpu.model.tenancy import Pool, QueueDocument, QueueSpec
from mesos_gpu.policy.admission.limits import pools_for
from mesos_gpu.policy.tenancy.checks import NodeFacts, findings
from mesos_gpu.policy.tenancy.pools import pool_of
from mesos_gpu.policy.tenancy.tree import Tree

A100, A100_40, T4 = "NVIDIA A100-SXM4-80GB", "A100-SXM4-40GB", "Tesla T4"
COSTS = QueueDocument(gpu_cost={"a100": 4, "A100-80GB": 6, "NVIDIA H200": 9})
POOLS = (
    Pool("any", ("A100",)),
    Pool("big", ("A100-80GB",)),
    Pool("old", ("T4", "V100")),
    Pool("r1", attributes={"rack": "r1"}),
)
TREE = Tree(QueueDocument(queues={"q": QueueSpec(pools=("any", "big", "old", "r1"))}, pools=POOLS))


@pytest.mark.parametrize(("model", "cost"), [(A100, 6), (A100_40, 4), (T4, 1), ("NVIDIA H200", 9)])
def test_most_specific_name_gives_the_cost_of_a_card(model: str, cost: int) -> None:
    assert COSTS.cost_of(model) == cost
    assert QueueDocument().cost_of(model) == 1


@pytest.mark.parametrize(
    ("names", "cost"), [(("A100",), 6), (("H200", "A100"), 9), (("A100-40GB",), 4), (("T4",), 1), ((), 9)]
)
def test_cost_of_unknown_cards_is_the_most_that_their_names_may_mean(
    names: tuple[str, ...], cost: int
) -> None:
    assert COSTS.most_cost_of(names) == cost
    assert QueueDocument().most_cost_of(names) == 1


@pytest.mark.parametrize(
    ("models", "rack", "pool"),
    [
        ({A100}, "", "big"),
        ({A100_40}, "", "any"),
        ({A100, A100_40}, "", "any"),
        ({T4}, "", "old"),
        ({T4, A100}, "", "default"),
        ({T4}, "r1", "old"),
        (set(), "r1", "r1"),
        ({"NVIDIA L4"}, "", "default"),
    ],
)
def test_node_is_in_the_pool_that_names_its_cards_most_specifically(
    models: set[str], rack: str, pool: str
) -> None:
    assert pool_of(POOLS, models, NodeFacts((), {"rack": rack})) == pool


@pytest.mark.parametrize(
    ("names", "pools"),
    [
        ((), ("any", "big", "old", "r1")),
        (("A100",), ("any", "big", "r1")),
        ((A100,), ("any", "big", "r1")),
        (("t4",), ("old", "r1")),
        (("H100",), ("r1",)),
    ],
)
def test_pools_without_a_card_that_a_job_names_are_left_out(
    names: tuple[str, ...], pools: tuple[str, ...]
) -> None:
    assert pools_for(TREE, "q", None, names) == pools


def test_costs_that_name_a_card_equally_well_are_a_fault() -> None:
    document = QueueDocument(1, gpu_cost={"A100-80GB": 6, "a100 sxm4": 4, "A100": 2})
    why = f"A100-80GB and a100 sxm4 both mean {A100}: leave one out, or name the card in full"
    assert findings(Tree(document), [NodeFacts((A100,), {})]).faults == (("/gpu_cost/A100-80GB", why),)
    named = QueueDocument(1, gpu_cost={**document.gpu_cost, A100: 5})
    assert findings(Tree(named), [NodeFacts((A100,), {})]).faults == ()
    assert findings(Tree(document), [NodeFacts((T4, "NVIDIA A100 80GB PCIe"), {})]).faults == (
        (
            "/gpu_cost/a100 sxm4",
            f"no node has a GPU of model a100 sxm4; there are NVIDIA A100 80GB PCIe, {T4}",
        ),
    )
