"""Agents with offers as the match uses them, kept from match to match."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from mesos_gpu.model.ids import AgentId
from mesos_gpu.policy.cluster.node_index import NodeIndex


@dataclass(slots=True)
class Table:
    """Agents with offers, and the arrays on which jobs are placed. Times are in seconds since the epoch.

    Attributes:
        index: Index of what the agents have.
        at: Time at which the table was last brought up to date.
        sequence: Number of the next job when the index last learnt what jobs ask for.
        fresh_until: Time at which the report of each agent is too old.
        ends: Heap of these times, and of some earlier ones.
    """

    index: NodeIndex
    at: float
    sequence: int
    fresh_until: dict[AgentId, float] = field(default_factory=dict)
    ends: list[tuple[float, AgentId]] = field(default_factory=list)

    def note(self, agent_id: AgentId, until: float) -> None:
        """Note the time until which the report of an agent counts."""
        if self.fresh_until.get(agent_id) != until:
            self.fresh_until[agent_id] = until
            if until < inf:
                heappush(self.ends, (until, agent_id))

    def late(self, now: float) -> list[AgentId]:
        """Return the agents whose reports have become too old."""
        late = []
        while self.ends and self.ends[0][0] < now:
            until, agent_id = heappop(self.ends)
            if self.fresh_until.get(agent_id) == until:
                late.append(agent_id)
        return late
