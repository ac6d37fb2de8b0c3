"""Ports that command the cluster, updated as nodes come, go and move."""

import random
from dataclasses import replace

import pytest

from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import ForgetNode, SaveNode
from mesos_gpu.scheduler.control import ClusterPorts, of_cluster


def test_control_ports_without_a_cluster_are_empty() -> None:
    assert ClusterPorts(State(0.0)).now() == ()


def test_control_port_counts_until_its_last_agent_leaves() -> None:
    first, second = Node(AgentId("a"), "a", "http://a:5051"), Node(AgentId("b"), "b", "http://b:5051")
    state = State(0.0)
    state.cluster.set_node(first)
    ports = ClusterPorts(state)
    ports.follow([SaveNode(second)])
    ports.follow([SaveNode(replace(first, agent_url="http://a:6000"))])
    assert ports.now() == (ControlPort("agent", 5051), ControlPort("agent", 6000))
    ports.follow([SaveNode(second), ForgetNode(second.id)])
    assert ports.now() == (ControlPort("agent", 6000),)
    ports.follow([SaveNode(replace(first, agent_url=""))])
    assert ports.now() == ()


def test_control_ports_have_the_current_master() -> None:
    state = State(0.0)
    ports = ClusterPorts(state)
    for url, port in (("http://m:5050", 5050), ("http://n:5151", 5151), ("http://m", 5050)):
        state.mesos.master_url = url
        assert ports.now() == (ControlPort("master", port),)


@pytest.mark.parametrize("seed", range(4))
def test_control_ports_equal_a_scan_of_all_agents(seed: int) -> None:
    chance, state = random.Random(seed), State(0.0, mesos=MesosPart(master_url="http://m:5050"))
    ports = ClusterPorts(state)
    for _ in range(300):
        agent = AgentId(chance.choice("abcde"))
        if agent in state.cluster.nodes and chance.random() < 0.3:
            state.cluster.drop_node(agent)
            ports.follow([ForgetNode(agent)])
        else:
            url = chance.choice(["", "http://h", "http://h:5051", "http://h:6001", "http://h:6002"])
            state.cluster.set_node(Node(agent, "h", url))
            ports.follow([SaveNode(state.cluster.nodes[agent])])
        assert ports.now() == of_cluster(
            state.mesos.master_url, (n.agent_url for n in state.cluster.nodes.values())
        )
        assert ports.now() == ClusterPorts(state).now()
