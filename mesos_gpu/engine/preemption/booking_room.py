"""Search for nodes for a booking: GPUs that are free when it begins, or that jobs leave with the least lost work."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from mesos_gpu.engine.calendar.booked import may_use
from mesos_gpu.engine.calendar.leads import has_ended_by
from mesos_gpu.engine.gpus.capacities import idle_gpus
from mesos_gpu.engine.gpus.role import is_asked, reserved_for_others
from mesos_gpu.engine.preemption.running import displace
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking, Place
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.room.knapsack import Victim, Worth, worth
from mesos_gpu.policy.room.preemption import plan


@dataclass(frozen=True, slots=True)
class _Room:
    """Cheapest room for a booking on one node.

    Attributes:
        place: Chosen GPUs of the node; None if it has too few.
        chosen: Jobs that leave these GPUs.
        jobs: Jobs there that may be displaced, on which the room depends.
    """

    place: Place | None
    chosen: tuple[Victim, ...]
    jobs: frozenset[JobId]


class BookingRoom:
    """Search for GPUs on several nodes for one booking. It does not change the state.

    Args:
        turn: Turn of the engine.
        backlog: Backlog of the match.
        booking: Booking without nodes, or with too few.
        taken: GPUs that other bookings have at that time.
        rank_of: Rank in which a job that may not use the booking is displaced, the lowest first; None if it stays.
    """

    def __init__(
        self,
        turn: Turn,
        backlog: Backlog,
        booking: Booking,
        taken: Collection[GpuId],
        rank_of: Callable[[Job], int | None],
    ) -> None:
        self._turn, self._backlog, self._booking = turn, backlog, booking
        self._taken, self._rank_of = taken, rank_of
        gpus, models = booking.spec.gpus, turn.state.cluster.models_of(booking.spec.models)
        self._request = Request(Resources(gpus=gpus), GpuRequest(gpus, models=models))
        self._role = turn.settings.mesos.role_for(booking.spec.queue)
        self._displaced = set[JobId]()
        self._rooms: dict[AgentId, _Room] = {}

    def find(self, nodes: Sequence[Node], count: int, serves: Callable[[Node], bool]) -> tuple[Place, ...]:
        """Return GPUs of the nodes that displace the least work, one node after the other.

        Args:
            nodes: Nodes of the cluster; the first of several equal ones is preferred.
            count: Number of nodes.
            serves: Function that returns whether a node may be used.

        Returns:
            Places of so many nodes, or of fewer if no other node has enough GPUs.
        """
        places: dict[AgentId, Place] = {}
        while len(places) < count:
            best: tuple[Worth, Place, tuple[Victim, ...]] | None = None
            for node in nodes:
                if node.id in places or not serves(node):
                    continue
                room = self._room(node)
                if room.place is None:
                    continue
                rank = worth(room.chosen)
                if best is None or rank < best[0]:
                    best = rank, room.place, room.chosen
                if not room.chosen:
                    break  # no node costs less
            if best is None:
                break
            places[best[1].agent_id] = best[1]
            self._displaced |= {victim.job_id for victim in best[2]}
        return tuple(places.values())

    def _room(self, node: Node) -> _Room:
        """Return the room on a node, computed again after a job there was displaced for another node."""
        room = self._rooms.get(node.id)
        if room is None or room.jobs & self._displaced:
            room = self._rooms[node.id] = self._on(node)
        return room

    def _on(self, node: Node) -> _Room:
        """Return the cheapest room for the booking on one node: its victims, and the GPUs once these have ended."""
        state, booking = self._turn.state, self._booking
        capacity = self._capacity(node)
        victims: dict[JobId, Victim] = {}
        free = []
        for held in capacity.allocations:
            job = None if held.job_id is None else state.work.jobs.get(held.job_id)
            is_gone = has_ended_by(state, self._turn.now, held, booking.begins)
            if job is None or is_gone or job.id in self._displaced or may_use(booking, job):
                free.append(held)
            elif (rank := self._rank_of(job)) is not None:
                victims[job.id] = displace(job, rank, self._turn.now)
        left = _without_gpus(capacity.without(free), self._taken)
        of_others = reserved_for_others(state, self._role, node.id)
        left = replace(left, free=left.free.with_gpus(max(len(left.gpus) - of_others, 0)))
        chosen = plan(self._request, 1, [left], victims)
        if chosen is None:
            return _Room(None, (), frozenset(victims))
        victim_ids = {victim.job_id for victim in chosen}
        ready = left.without([held for held in left.allocations if held.job_id in victim_ids])
        count = booking.spec.gpus
        groups = [group for group in ready.usable(self._request.gpu) if len(group) >= count]
        if not groups:
            return _Room(None, (), frozenset(victims))
        idle = {gpu.id for gpu in capacity.gpus}
        gpus = sorted(groups[0], key=lambda gpu: (gpu.id not in idle, gpu.minor, gpu.id))[:count]
        place = Place(node.id, node.hostname, tuple(gpu.id for gpu in gpus))
        return _Room(place, chosen, frozenset(victims))

    def _capacity(self, node: Node) -> NodeCapacity:
        """Return a node with its free GPUs, even if the master is asked to send no offers."""
        turn, capacity = self._turn, self._backlog.nodes.capacity(node)
        if is_asked(turn.state, self._role):
            return capacity
        free_ids = {gpu.id for gpu in capacity.gpus}
        idle = idle_gpus(turn.state, turn.settings, turn.now, node)
        return replace(capacity, gpus=(*capacity.gpus, *(gpu for gpu in idle if gpu.id not in free_ids)))


def _without_gpus(node: NodeCapacity, taken: Collection[GpuId]) -> NodeCapacity:
    """Return a node without GPUs of other bookings, whether they are free or held."""
    gpus = tuple([gpu for gpu in node.gpus if gpu.id not in taken])
    allocations = tuple(
        replace(held, gpus=tuple([gpu for gpu in held.gpus if gpu.id not in taken]))
        for held in node.allocations
    )
    return replace(node, gpus=gpus, allocations=allocations)
