"""Nodes of which a few are others than they are for most jobs."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from mesos_gpu.model.ids import AgentId
from mesos_gpu.policy.capacity.node import NodeCapacity


class Altered(Mapping[AgentId, NodeCapacity]):
    """Some nodes with changes. Who looks one up does not pay for all the others."""

    def __init__(self, base: Mapping[AgentId, NodeCapacity], changes: Mapping[AgentId, NodeCapacity]) -> None:
        """`changes`: nodes of `base` as they are to be. Neither may change as long as this is used."""
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
