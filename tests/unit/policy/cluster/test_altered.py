"""Nodes of which a few are others than they are for most jobs."""

from collections.abc import Iterator, Mapping

import pytest

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.altered import PatchedNodes
from mesos_gpu.policy.capacity.node import NodeCapacity

A, B, C = map(AgentId, "abc")


def node(agent: AgentId, cpus: float = 8.0) -> NodeCapacity:
    return NodeCapacity(agent, f"{agent}.example", Resources(cpus=cpus, mem_mib=1.0, gpus=0), ())


BASE = {A: node(A), B: node(B)}


def test_altered_nodes_have_the_changes_in_their_places() -> None:
    less = {B: node(B, 2.0)}
    seen = PatchedNodes(BASE, less)
    assert dict(seen) == {**BASE, **less}
    assert list(seen.values()) == [BASE[A], less[B]]
    assert len(seen) == 2
    assert seen[A] is BASE[A]
    assert seen[B] is less[B]
    assert seen.get(C) is None
    assert C not in seen
    with pytest.raises(KeyError):
        seen[C]


def test_altered_nodes_are_read_one_by_one() -> None:
    class Watched(Mapping[AgentId, NodeCapacity]):
        asked: list[AgentId]

        def __init__(self) -> None:
            self.asked = []

        def __getitem__(self, agent_id: AgentId) -> NodeCapacity:
            self.asked.append(agent_id)
            return BASE[agent_id]

        def __iter__(self) -> Iterator[AgentId]:
            raise AssertionError("all are looked at")

        def __len__(self) -> int:
            return len(BASE)

    base = Watched()
    seen = PatchedNodes(base, {B: node(B, 2.0)})
    assert (seen[B].free.cpus, seen[A].free.cpus, len(seen)) == (2.0, 8.0, 2)
    assert base.asked == [A]
