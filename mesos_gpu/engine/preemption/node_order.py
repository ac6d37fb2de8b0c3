"""Nodes in the order of the least cost of room for a task, for any job: plans look at the cheapest nodes first."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.room.knapsack import Bound
from mesos_gpu.policy.room.preemption import least_of

#: Least priority and cost as of `Bound`, number of free GPUs, and index of a node.
_Key = tuple[int, int, int, int]


class Order:
    """Orders of nodes by the least cost of room, one for each number of GPUs, kept up to date as plans are made.

    Args:
        state: State of the engine.
        rule: Rule with the jobs that may be ended.
        backlog: Backlog with the reservations of nodes.
        capacity: Function that returns a node as it will be once all jobs with notices have ended.
    """

    def __init__(
        self, state: State, rule: Reclaim, backlog: Backlog, capacity: Callable[[Node], NodeCapacity]
    ) -> None:
        self._state, self._rule, self._backlog, self._capacity = state, rule, backlog, capacity
        self._kept: Sequence[Reservation] = ()
        self._kept_for: dict[JobId, list[AgentId]] = {}
        self._made: dict[AgentId | None, set[GpuId]] = {}  # GPUs kept for jobs for which room was made
        self._ids = list(state.cluster.nodes)
        self._places = {agent_id: place for place, agent_id in enumerate(self._ids)}
        self._lines: dict[int, list[_Key]] = {}
        self._keys: dict[int, dict[AgentId, _Key]] = {}
        self._free: dict[AgentId, int] = {}
        self._by_free: list[tuple[int, int]] = []  # number of free GPUs, and index of each node

    def of(self, gpus: int) -> Iterator[tuple[Bound, AgentId]]:
        """Yield the nodes on which a number of GPUs is free or may be made free, by the least cost of that."""
        for priority, cost, _, place in self._line(gpus):
            yield Bound(priority, cost), self._ids[place]

    def with_room(self, gpus: int) -> Iterator[AgentId]:
        """Yield the nodes with a number of free GPUs once all jobs with notices have ended, the fullest node first."""
        if not self._by_free:
            self._free = {agent_id: self._free_of(agent_id) for agent_id in self._ids}
            self._by_free = sorted((free, self._places[agent_id]) for agent_id, free in self._free.items())
        for i in range(bisect_left(self._by_free, (gpus, 0)), len(self._by_free)):
            yield self._ids[self._by_free[i][1]]

    def sorted(self, agents: Iterable[AgentId]) -> list[AgentId]:
        """Return some nodes in the order of the state."""
        return sorted(agents & self._places.keys(), key=self._places.__getitem__)

    def changed(self, agent_id: AgentId) -> None:
        """Update the order after a change of a node's free GPUs or allocations."""
        if agent_id in self._free:
            place, free = self._places[agent_id], self._free_of(agent_id)
            del self._by_free[bisect_left(self._by_free, (self._free[agent_id], place))]
            insort(self._by_free, (free, place))
            self._free[agent_id] = free
        for gpus, line in self._lines.items():
            keys = self._keys[gpus]
            old, new = keys.pop(agent_id, None), self._key(gpus, self._places[agent_id], agent_id)
            if old is not None:
                del line[bisect_left(line, old)]
            if new is not None:
                keys[agent_id] = new
                insort(line, new)

    def kept_for(self, job_id: JobId) -> Sequence[AgentId]:
        """Return the nodes with reservations for a job."""
        self._look_at_kept()
        return self._kept_for.get(job_id, ())

    def _look_at_kept(self) -> None:
        """Read the reservations again if they have changed."""
        kept = self._backlog.reservations.every
        if kept is self._kept:
            return
        self._kept, self._kept_for, self._made = kept, {}, {}
        for reservation in kept:
            if reservation.booking:
                continue  # a booking is for no single job
            if reservation.agent_id is not None:
                self._kept_for.setdefault(reservation.job_id, []).append(reservation.agent_id)
            if self._state.work.jobs[reservation.job_id].room_made_at is not None:
                self._made.setdefault(reservation.agent_id, set()).update(reservation.gpus)

    def _line(self, gpus: int) -> list[_Key]:
        """Return the order of nodes for a number of GPUs, computed on first use."""
        line = self._lines.get(gpus)
        if line is None:
            keys = {
                agent_id: key
                for agent_id, place in self._places.items()
                if (key := self._key(gpus, place, agent_id)) is not None
            }
            self._keys[gpus] = keys
            line = self._lines[gpus] = sorted(keys.values())
        return line

    def _key(self, gpus: int, place: int, agent_id: AgentId) -> _Key | None:
        """Return the key of a node; None if it has too few GPUs, even if all jobs there end."""
        capacity, free = self._capacity(self._state.cluster.nodes[agent_id]), self._free_of(agent_id)
        least = least_of(gpus, free, capacity, self._rule.running.every())
        return None if least is None else (least.priority, least.cost, free, place)

    def _free_of(self, agent_id: AgentId) -> int:
        """Return the number of free GPUs of a node, without those reserved for jobs for which room was made."""
        self._look_at_kept()
        capacity, reserved = self._capacity(self._state.cluster.nodes[agent_id]), self._made.get(agent_id)
        return sum(gpu.id not in reserved for gpu in capacity.gpus) if reserved else len(capacity.gpus)
