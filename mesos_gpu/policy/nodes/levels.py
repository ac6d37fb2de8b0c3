"""Levels of a fabric: nested groups of nodes, such as hosts in racks and racks in blocks. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.constraint import HOST, Topology
from mesos_gpu.model.nodes.node import Node

_OWN: Final = "\0"  # first character of the group that one node has to itself
_Link = tuple[int, str, int]  # a level, a group there, and a level outside of it


@dataclass(frozen=True, slots=True)
class Fabric:
    """Groups of nodes at the levels of a fabric.

    Attributes:
        levels: Names of the levels, the outermost first; the last one is the node itself.
        groups: Groups of each node, in the order of the levels; a node has a group of its own where it names none.
        outside: Contradiction for each node that is not lost and whose attributes are not nested like those of other
            nodes. Such a node has no group but its own.
        hosts: Host name of each node.
    """

    levels: tuple[str, ...] = (HOST,)
    groups: Mapping[AgentId, tuple[str, ...]] = field(default_factory=dict)
    outside: Mapping[AgentId, str] = field(default_factory=dict)
    hosts: Mapping[AgentId, str] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """First contradiction, with the number of nodes outside of the levels; "" if all are within them."""
        if not self.outside:
            return ""
        nodes = "1 node is" if len(self.outside) == 1 else f"{len(self.outside)} nodes are"
        return f"{nodes} outside of the levels of the fabric: {next(iter(self.outside.values()))}"

    def name(self, agent_id: AgentId, level: str) -> str:
        """Return the display name of a node's group at a level; for the node itself the host name."""
        return self.hosts[agent_id] if level == HOST else self.group(agent_id, level)

    def group(self, agent_id: AgentId, level: str) -> str:
        """Return the group of a node at a level."""
        return self.groups[agent_id][self.levels.index(level)]

    def named(self, agent_id: AgentId) -> Iterator[tuple[str, str]]:
        """Yield level and group of a node for each group that its attributes name."""
        for level, group in zip(self.levels, self.groups[agent_id], strict=True):
            if not group.startswith(_OWN):
                yield level, group

    def absence(self, agent_id: AgentId, topology: Topology) -> str:
        """Return why a node is in no group of the level that a job requires; "" if it is in one."""
        level = topology.level
        if not topology.is_required or level == HOST:
            return ""
        if level not in self.levels:
            return f"the scheduler has no level {level}"
        if not self.group(agent_id, level).startswith(_OWN):
            return ""
        return self.outside.get(agent_id) or f"it has no {level}"


def fabric_of(levels: Sequence[str], nodes: Iterable[Node]) -> Fabric:
    """Return the groups of nodes.

    Where nodes of one group name different outer groups, the majority decides, and the others are outside of the
    levels. A node that names no outer group gets that of the other nodes in its group.

    Args:
        levels: Names of attributes, the outermost level first.
        nodes: Nodes of the cluster.
    """
    all_nodes = list(nodes)
    links = _links(levels, [node for node in all_nodes if node.lost_at is None])
    groups, outside = dict[AgentId, tuple[str, ...]](), dict[AgentId, str]()
    for node in all_nodes:
        own = _OWN + node.id
        wrong = "" if node.lost_at is not None else _contradiction(levels, links, node)
        if wrong:
            outside[node.id] = wrong
            groups[node.id] = (own,) * (len(levels) + 1)
            continue
        at = [node.attributes.get(level, "") for level in levels]
        for outer in reversed(range(len(levels))):
            inner = (links.get((i, at[i], outer)) for i in range(outer + 1, len(levels)) if at[i])
            at[outer] = at[outer] or next((_most(link)[0] for link in inner if link), "")
        groups[node.id] = (*(group or own for group in at), own)
    return Fabric((*levels, HOST), groups, outside, {node.id: node.hostname for node in all_nodes})


def _links(levels: Sequence[str], nodes: Iterable[Node]) -> dict[_Link, dict[str, tuple[int, str]]]:
    """Return the outer groups of each group, with the number of their nodes and the first host."""
    counts, first = dict[_Link, Counter[str]](), dict[tuple[_Link, str], str]()
    for node in nodes:
        at = [node.attributes.get(level, "") for level in levels]
        for outer, inner in combinations(range(len(levels)), 2):
            if at[outer] and at[inner]:
                link = inner, at[inner], outer
                counts.setdefault(link, Counter())[at[outer]] += 1
                first.setdefault((link, at[outer]), node.hostname)
    return {
        link: {group: (count, first[link, group]) for group, count in those.items()}
        for link, those in counts.items()
    }


def _most(link: Mapping[str, tuple[int, str]]) -> tuple[str, str]:
    """Return the group with most nodes, and its first host; of several the first by name."""
    group = min(link, key=lambda name: (-link[name][0], name))
    return group, link[group][1]


def _contradiction(
    levels: Sequence[str], links: Mapping[_Link, Mapping[str, tuple[int, str]]], node: Node
) -> str:
    """Return how a node's attributes contradict the majority of its group; "" if they do not."""
    at = [node.attributes.get(level, "") for level in levels]
    for outer, inner in combinations(range(len(levels)), 2):
        link = links.get((inner, at[inner], outer)) if at[outer] and at[inner] else None
        if link is None:
            continue
        group, host = _most(link)
        if group != at[outer]:
            here = f"{levels[outer]} {at[outer]} on {node.hostname}"
            return f"{levels[inner]} {at[inner]} is in {levels[outer]} {group} on {host}, and in {here}"
    return ""
