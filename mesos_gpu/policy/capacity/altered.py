"""View of all nodes in which a few are replaced for one job."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from mesos_gpu.model.ids import AgentId
from mesos_gpu.policy.capacity.node import NodeCapacity


class PatchedNodes(Mapping[AgentId, NodeCapacity]):
    """Mapping of nodes in which some are replaced, without copying the others.

    Args:
        base: Nodes by agent; must not change while this mapping is used.
        changes: Replacements for nodes of `base`; must not change either.
    """

    def __init__(self, base: Mapping[AgentId, NodeCapacity], changes: Mapping[AgentId, NodeCapacity]) -> None:
        self.base, self.changes = base, changes

    def __getitem__(self, agent_id: AgentId) -> NodeCapacity:
        changed = self.changes.get(agent_id)
        return self.base[agent_id] if changed is None else changed

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self.base)

    @cached_property
    def _all(self) -> Mapping[AgentId, NodeCapacity]:
        return {**self.base, **self.changes}
