"""Nodes by what room for a task costs there at least, whoever it is for: the cheapest are looked at first."""

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

#: The highest priority that is hurt at least, the cost at least, free GPUs, and the place of a node among all.
_Key = tuple[int, int, int, int]


class Order:
    """The order for each number of GPUs, kept up to date as plans are made."""

    def __init__(
        self, state: State, rule: Reclaim, backlog: Backlog, capacity: Callable[[Node], NodeCapacity]
    ) -> None:
        """Nothing is put in order before it is asked for.

        Args:
            state: The engine's.
            rule: Who may be stopped for anybody.
            backlog: What is kept of nodes.
            capacity: What is free of a node, and who holds the rest, when all have ended that are told to.
        """
        self._state, self._rule, self._backlog, self._capacity = state, rule, backlog, capacity
        self._kept: Sequence[Reservation] = ()
        self._kept_for: dict[JobId, list[AgentId]] = {}
        self._made: dict[AgentId | None, set[GpuId]] = {}  # those that are kept for whom room was made
        self._ids = list(state.cluster.nodes)
        self._places = {agent_id: place for place, agent_id in enumerate(self._ids)}
        self._lines: dict[int, list[_Key]] = {}
        self._keys: dict[int, dict[AgentId, _Key]] = {}
        self._free: dict[AgentId, int] = {}
        self._by_free: list[tuple[int, int]] = []  # with the place of each node

    def of(self, gpus: int) -> Iterator[tuple[Bound, AgentId]]:
        """The nodes on which so many GPUs are free, or may be made free."""
        for priority, cost, _, place in self._line(gpus):
            yield Bound(priority, cost), self._ids[place]

    def with_room(self, gpus: int) -> Iterator[AgentId]:
        """Nodes on which so many may be free when all have ended that are told to, the fullest first."""
        if not self._by_free:
            self._free = {agent_id: self._free_of(agent_id) for agent_id in self._ids}
            self._by_free = sorted((free, self._places[agent_id]) for agent_id, free in self._free.items())
        for i in range(bisect_left(self._by_free, (gpus, 0)), len(self._by_free)):
            yield self._ids[self._by_free[i][1]]

    def sorted(self, agents: Iterable[AgentId]) -> list[AgentId]:
        """Some nodes as they stand among all."""
        return sorted(agents & self._places.keys(), key=self._places.__getitem__)

    def changed(self, agent_id: AgentId) -> None:
        """What is free of a node, or who holds it, has changed."""
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
        """The nodes of which anything is kept for a job."""
        self._look_at_kept()
        return self._kept_for.get(job_id, ())

    def _look_at_kept(self) -> None:
        kept = self._backlog.reservations.every
        if kept is self._kept:
            return
        self._kept, self._kept_for, self._made = kept, {}, {}
        for each in kept:
            if each.booking:
                continue  # it is for no job
            if each.agent_id is not None:
                self._kept_for.setdefault(each.job_id, []).append(each.agent_id)
            if self._state.work.jobs[each.job_id].room_made_at is not None:
                self._made.setdefault(each.agent_id, set()).update(each.gpus)

    def _line(self, gpus: int) -> list[_Key]:
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
        """None: it has not so many GPUs, whoever ends."""
        capacity, free = self._capacity(self._state.cluster.nodes[agent_id]), self._free_of(agent_id)
        least = least_of(gpus, free, capacity, self._rule.every())
        return None if least is None else (least.priority, least.cost, free, place)

    def _free_of(self, agent_id: AgentId) -> int:
        """How many GPUs are free that are not kept for whom room was made."""
        self._look_at_kept()
        capacity, made = self._capacity(self._state.cluster.nodes[agent_id]), self._made.get(agent_id)
        return sum(gpu.id not in made for gpu in capacity.gpus) if made else len(capacity.gpus)
