"""Index of ports of ended tasks, so that a port that was in use a short time ago is given out last.

It is not saved. It is built on first use, and each change of the state updates it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.tasks.task import Task


@dataclass(slots=True)
class FreedPorts:
    """Ports of ended tasks.

    Attributes:
        ends: Time of the end in seconds since the epoch, by agent and port.
    """

    ends: dict[AgentId, dict[int, float]] = field(default_factory=dict)

    def enter(self, task: Task) -> None:
        """Note the ports of a task that has ended."""
        if not task.ports:
            return
        freed = self.ends.setdefault(task.agent_id, {})
        for port in task.ports:
            freed[port] = max(task.ended_at or 0.0, freed.get(port, 0.0))

    def freed_since(self, agent_id: AgentId, moment: float) -> Mapping[int, float]:
        """Return the ports of an agent that were in use at or after a moment, with the ends of their tasks."""
        freed = self.ends.get(agent_id)
        if not freed:
            return {}
        for port in [port for port, ended_at in freed.items() if ended_at < moment]:
            del freed[port]
        return freed
