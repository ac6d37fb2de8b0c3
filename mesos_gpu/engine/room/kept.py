"""Reservations of one match, in their order and by node."""

from collections.abc import Sequence

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation


class Kept:
    """Reservations of a match.

    Attributes:
        every: Reservations in the order in which they were made; another list if some have changed.
        left: Capacity by node, without its reservations; of nodes that were asked for.
        jobs: Jobs that have reservations.
    """

    def __init__(self) -> None:
        """Begin without reservations."""
        self.every: list[Reservation] = []
        self.left: dict[AgentId, NodeCapacity] = {}
        self.jobs = set[JobId]()
        self._on: dict[AgentId | None, list[Reservation]] = {}
        self._of: list[Reservation] = self.every  # the list that `_on` is of

    def add(self, reservations: Sequence[Reservation]) -> None:
        """Add reservations after the others."""
        on = self._by_node()
        self.jobs.update(kept.job_id for kept in reservations)
        self._of = self.every = [*self.every, *reservations]
        for kept in reservations:
            on.setdefault(kept.agent_id, []).append(kept)
            if kept.agent_id is not None:
                self.left.pop(kept.agent_id, None)

    def on(self, agent_id: AgentId) -> Sequence[Reservation]:
        """Return the reservations of a node."""
        return self._by_node().get(agent_id, ())

    def _by_node(self) -> dict[AgentId | None, list[Reservation]]:
        if self._of is not self.every:
            self._on = {}
            for kept in self.every:
                self._on.setdefault(kept.agent_id, []).append(kept)
            self._of = self.every
            self.left.clear()
        return self._on
