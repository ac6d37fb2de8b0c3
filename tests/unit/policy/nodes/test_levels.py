"""Levels of a fabric: groups of nodes, nodes that name none, and attributes that contradict each other."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.constraint import Topology
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.nodes.levels import Fabric, fabric_of

LEVELS = ("block", "rack")
REQUIRED = Topology("rack", True)


def node(name: str, block: str = "", rack: str = "") -> Node:
    attributes = {key: value for key, value in (("block", block), ("rack", rack)) if value}
    return Node(AgentId(name), f"{name}.example", attributes=attributes)


def groups(fabric: Fabric, name: str) -> list[str]:
    return [group for _, group in fabric.named(AgentId(name))]


def test_nodes_are_in_the_groups_that_their_attributes_name() -> None:
    fabric = fabric_of(LEVELS, [node("a", "b1", "r1"), node("b", "b1", "r2"), node("c", "b2", "r3")])
    assert fabric.levels == ("block", "rack", "host")
    assert [groups(fabric, each) for each in "abc"] == [["b1", "r1"], ["b1", "r2"], ["b2", "r3"]]
    assert not fabric.outside
    assert not fabric.problem


def test_node_without_an_attribute_has_a_group_of_its_own() -> None:
    fabric = fabric_of(LEVELS, [node("a", "b1"), node("b", "b1"), node("c")])
    assert groups(fabric, "a") == ["b1"]
    assert len({fabric.group(AgentId(each), "rack") for each in "abc"}) == 3
    assert fabric.absence(AgentId("a"), REQUIRED) == "it has no rack"
    assert fabric.absence(AgentId("a"), replace(REQUIRED, level="block")) == ""
    assert fabric.absence(AgentId("a"), replace(REQUIRED, level="host")) == ""
    assert fabric.absence(AgentId("a"), replace(REQUIRED, is_required=False)) == ""
    assert fabric.absence(AgentId("a"), Topology("row", True)) == "the scheduler has no level row"


def test_node_without_a_block_is_in_the_block_of_its_rack() -> None:
    fabric = fabric_of(LEVELS, [node("a", rack="r1"), node("b", "b1", "r1")])
    assert groups(fabric, "a") == ["b1", "r1"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_most_nodes_of_a_rack_decide_in_which_block_it_is(order: tuple[int, ...]) -> None:
    nodes = [node("a", "b1", "r1"), node("b", "b1", "r1"), node("c", "b2", "r1")]
    fabric = fabric_of(LEVELS, [nodes[i] for i in order])
    host = "a" if order[0] != 1 and order != (2, 1, 0) else "b"
    words = f"rack r1 is in block b1 on {host}.example, and in block b2 on c.example"
    assert fabric.outside == {AgentId("c"): words}
    assert fabric.problem == f"1 node is outside of the levels of the fabric: {words}"
    assert groups(fabric, "c") == []
    assert groups(fabric, "a") == ["b1", "r1"]
    assert fabric.absence(AgentId("c"), REQUIRED) == words


def test_lost_node_contradicts_no_other() -> None:
    gone = [replace(node(each, "b2", "r1"), lost_at=1.0) for each in "xyz"]
    fabric = fabric_of(LEVELS, [*gone, node("a", "b1", "r1")])
    assert not fabric.outside
    assert groups(fabric, "a") == ["b1", "r1"]


def test_every_pair_of_levels_is_compared() -> None:
    levels = ("hall", "block", "rack")
    one = Node(AgentId("a"), "a", attributes={"hall": "h1", "rack": "r1"})
    other = Node(AgentId("b"), "b", attributes={"hall": "h2", "rack": "r1"})
    assert fabric_of(levels, [one, other]).outside == {
        AgentId("b"): "rack r1 is in hall h1 on a, and in hall h2 on b"
    }
