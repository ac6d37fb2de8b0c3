"""Reservations of one match, in their order and by node."""

from collections.abc import Sequence

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation


class Kept:
    """Reservations of a match.

    Attributes:
        every: Reservations in the order in which they were made; a new list after each change.
        left: Capacity of nodes looked at so far, without their reservations.
        jobs: Jobs that have reservations.
    """

    def __init__(self) -> None:
        self.every: list[Reservation] = []
        self.left: dict[AgentId, NodeCapacity] = {}
        self.jobs = set[JobId]()
        self._on: dict[AgentId | None, list[Reservation]] = {}
        self._of: list[Reservation] = self.every  # list from which `_on` was made

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
        """Return the reservations by node, indexed again after a change."""
        if self._of is not self.every:
            self._on = {}
            for kept in self.every:
                self._on.setdefault(kept.agent_id, []).append(kept)
            self._of = self.every
            self.left.clear()
        return self._on
