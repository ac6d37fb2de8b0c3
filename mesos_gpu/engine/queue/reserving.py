"""Reservations during one match: room on nodes for waiting jobs, and the jobs that may use it meanwhile."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from mesos_gpu.engine.calendar.booked import Booked
from mesos_gpu.engine.indexes.charges import up
from mesos_gpu.engine.indexes.leaves import rank_in_leaf
from mesos_gpu.engine.queue.barriers import AdmissionLimits
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.nodes import Nodes
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.room.given_up import precedes
from mesos_gpu.engine.room.kept import Kept
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.capacity.altered import PatchedNodes
from mesos_gpu.policy.capacity.fit import Chosen
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.reservation import (
    Limit,
    QuotaRelease,
    after_launch,
    decisive,
    ends_by,
    leave_of_all,
    reserve,
    with_leaves,
)
from mesos_gpu.policy.room.together import reserve_together
from mesos_gpu.policy.tenancy.tree import Bound

_SOON_S: Final = 60.0  # time for victims of a job to end


class Reservations:
    """Reservations of one match, a book of its ledger: launches use what the reservations leave.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        kept: Reservations in their order, which the barriers read, too.
        held: Holdings of queues, kept up to date by the ledger.
        nodes: Nodes of the match.
        neighbours: Constraints between the tasks of a gang.
        barriers: Limits of queues.
        attained: Order of queues by attained service.
        booked: Bookings of the match.
        reading: Whether pools count that a job may use only later.

    Attributes:
        roomy: Jobs whose room is kept before any job is tried.
    """

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        kept: Kept,
        held: Held,
        nodes: Nodes,
        neighbours: Neighbours,
        barriers: AdmissionLimits,
        attained: AttainedServiceOrder,
        booked: Booked,
        *,
        reading: bool = False,
    ) -> None:
        self._state, self._settings, self._now, self._reading = state, settings, now, reading
        self._kept, self._held, self._nodes, self._neighbours = kept, held, nodes, neighbours
        self._barriers, self._attained, self._booked = barriers, attained, booked
        self.roomy = set[JobId]()
        self._firm = False  # whether there are reservations of what gangs gave up
        self._rank = partial(rank_in_leaf, now=now, step_s=settings.queue.aging_step_s)
        self._ends: dict[Hashable, tuple[int, ...]] = {}
        self._before: list[list[Reservation]] = []  # reservations before each assignment that was not undone
        # Allocations that count against a limit, by queue and pool.
        self._below: dict[tuple[str, str], list[Allocation]] = {}

    @property
    def every(self) -> list[Reservation]:
        """All reservations, in the order in which they were made."""
        return self._kept.every

    def begin(self, booked: Sequence[Reservation], given_up: Sequence[Reservation]) -> None:
        """Begin with reservations of bookings, and of what gangs gave up that start again, and no others."""
        self._kept.every, self._firm = [*booked, *given_up], bool(given_up)
        self._kept.jobs = {kept.job_id for kept in self._kept.every}

    def add(self, reservations: Sequence[Reservation]) -> None:
        """Add reservations after the others."""
        self._kept.add(reservations)
        self._ends.clear()

    # --- room for a job

    def find(self, job: Job, request: Request) -> list[Reservation]:
        """Return the reservations with which a job can start soonest beside all others; empty if it never can."""
        held = self._held
        if not held.tree.document.pools or not job.spec.gpus:
            return self._find_in(job, request, (DEFAULT_POOL,))
        pools = held.pools.every(job) if self._reading else held.pools_of(job)
        parts = held.parts(job, pools, self._barriers.open_pools(job) or ())
        each = [self._find_in(job, request, part) for part in parts]
        return min(filter(None, each), key=lambda each: max(r.at for r in each), default=[])

    def _find_in(self, job: Job, request: Request, pools: tuple[str, ...]) -> list[Reservation]:
        """Return the reservations with which a job can start soonest in some pools, within all their limits."""
        leaves: list[tuple[QuotaRelease, Sequence[Limit], int]] = []
        for pool in pools:
            limits = [
                Limit(bound.path, pool, bound.milli, self._held_below(bound))
                for bound in self._barriers.bounds_in(job, pool)
            ]
            if not limits:
                continue
            cost = self._held.cost_of(job, pool)
            granted = leave_of_all(limits, cost, self._now)
            if granted is None:
                return []
            leave, spares = granted
            if (
                leave.awaited and job.room_made_at is None
            ):  # no node idles while jobs of other nodes have to end
                needs = request.resources.with_gpus(request.resources.gpus * job.spec.tasks)
                awaited = leave.awaited
                return [Reservation(job.id, job.spec.queue, needs, leave.at, spares=spares, awaited=awaited)]
            leaves.append((leave, limits, cost))
        rooms = self.find_room(job, request, pools)
        opens = [self._held.pools.opens_at(job, pool) for pool in pools]
        if opens_at := max(opens, default=0.0):  # not before the job may use the pools
            rooms = [replace(reservation, at=max(reservation.at, opens_at)) for reservation in rooms]
        return [with_leaves(reservation, leaves) for reservation in rooms]

    def find_room(
        self, job: Job, request: Request, pools: tuple[str, ...] = (), *, beside: bool = True
    ) -> list[Reservation]:
        """Find room for a job on nodes, without regard to limits.

        Args:
            job: Job that waits.
            request: Request of each of its tasks.
            pools: Pools of the nodes; empty for all nodes that the job may use.
            beside: Whether reservations for other jobs are left alone.

        Returns:
            Reservations for the soonest start, one for each node; empty if no nodes have as much.
        """
        every = self._state.cluster.nodes
        # Room that was made for the job is on these nodes, and is reserved for it.
        candidates = [every[agent_id] for agent_id in job.room_on if agent_id in every] or every.values()
        able = [node for node in candidates if self._nodes.serves(job, node, ever=self._reading)]
        if pools and self._held.tree.document.pools and job.spec.gpus:
            able = [node for node in able if self._held.pool_of(node.id) in pools]
        nodes = [self._left_of(job, node) if beside else self._nodes.capacity(node) for node in able]
        if job.spec.tasks > 1:
            place = self._neighbours.placing_of(job)
            return reserve_together(job, request, nodes, now=self._now, place=place)
        reservation = reserve(job, request, nodes, now=self._now)
        return [reservation] if reservation else []

    def alone(self, job: Job, request: Request) -> Reservation | None:
        """Return the node that a job would get without reservations and limits; None without one."""
        return decisive(self.find_room(job, request, beside=False))

    def _left_of(self, job: Job, node: Node) -> NodeCapacity:
        """Return a node without what is reserved there for other jobs."""
        kept = self._kept.on(node.id)
        if not kept:
            return self._nodes.capacity(node)
        if self._booked.any or self._firm:
            others = [
                reservation
                for reservation in kept
                if reservation.job_id != job.id and self._is_kept_from(job, reservation)
            ]
            return self._nodes.capacity(node).keeping(others)
        if node.id not in self._kept.left:
            self._kept.left[node.id] = self._nodes.capacity(node).keeping(kept)
        return self._kept.left[node.id]

    # --- nodes beside reservations

    def outlasted(self, job: Job) -> tuple[int, ...]:
        """Return the indexes of the reservations that a job could delay."""
        if not self.every:
            return ()
        key = (
            job.spec.timeout_s,
            job.spec.kill_grace_s,
            self._attained.passing(job),
            self._booked.kind(job),
            (job.id in self.roomy or self._firm) and job.id,
            self._barriers.lending.kind(job),
        )
        numbers = self._ends.get(key)
        if numbers is None:
            at, every = ends_by(job.spec, self._now), enumerate(self.every)
            numbers = tuple([i for i, r in every if r.agent_id is not None and self._in_way(job, at, r)])
            self._ends[key] = numbers
        return numbers

    def open_to(
        self, outlasted: Iterable[int], nodes: Mapping[AgentId, NodeCapacity]
    ) -> Mapping[AgentId, NodeCapacity]:
        """Return nodes with less free capacity, for a job that could delay some reservations there.

        Args:
            outlasted: Indexes of the reservations.
            nodes: Nodes with their free capacity.
        """
        changed: dict[AgentId, NodeCapacity] = {}
        for i in outlasted:
            kept = self.every[i]
            if kept.agent_id is not None and kept.agent_id in nodes:
                changed[kept.agent_id] = (changed.get(kept.agent_id) or nodes[kept.agent_id]).beside(kept)
        return PatchedNodes(nodes, changed) if changed else nodes

    def kept_by_others(self, job: Job, node: Node) -> list[Reservation]:
        """Return the reservations of a node for other jobs that a job must leave alone."""
        return [r for r in self._kept.on(node.id) if r.job_id != job.id and self._is_kept_from(job, r)]

    def _is_kept_from(self, job: Job, kept: Reservation) -> bool:
        """Return whether a job must leave a reservation alone that could start soon.

        Bookings, and what gangs gave up, are left alone only if the job would delay them.
        """
        firm = kept.booking or kept.is_given_up
        return not firm or self._in_way(job, ends_by(job.spec, self._now + _SOON_S), kept)

    def _in_way(self, job: Job, ends_at: float, kept: Reservation) -> bool:
        """Return whether a job that ends by a time may delay a reservation of another job."""
        if kept.is_given_up and precedes(self._state, job, kept, self._rank):
            return False
        if not kept.booking:
            return not self._barriers.lending.takes_own(job, kept) and self._attained.in_way(
                job, ends_at, kept
            )
        return self._booked.in_way(job, ends_at, kept)

    # --- a book of the match's ledger

    def take(self, take: Take) -> None:
        """Subtract a launch from the rest of limits, and from what reservations leave to others."""
        self._forget(take.agent_id)
        self._before.append(self.every)
        job, request = take.job, take.request
        if job is None or request is None:
            return
        charge = self._held.charge_of_take(take)
        if charge is not None and self._below:
            self._count(job, charge)
        if not self.every:
            return
        ends_at = ends_by(job.spec, self._now)
        takes = [] if charge is None else [(path, charge.pool, charge.milli) for path in up(charge.queue)]
        self._kept.every = [
            after_launch(
                kept,
                request,
                here=kept.agent_id == take.agent_id,
                takes=takes,
                chosen=Chosen(take.agent_id, take.gpus, take.share) if take.share else None,
            )
            if self._in_way(job, ends_at, kept)
            else kept
            if kept.job_id != job.id
            else replace(kept, agent_id=None, spares=())  # the job uses it now
            for kept in self.every
        ]

    def undo(self, take: Take) -> None:
        """Restore the limits and reservations before the latest launch."""
        self._forget(take.agent_id)
        self._kept.every = self._before.pop()
        charge = self._held.charge_of_take(take)
        if charge is not None:
            for path in up(charge.queue):
                if (path, charge.pool) in self._below:
                    self._below[path, charge.pool].pop()

    def _forget(self, agent_id: AgentId) -> None:
        """Drop the cached capacity of a node."""
        self._nodes.forget(agent_id)
        self._kept.left.pop(agent_id, None)

    def _count(self, job: Job, charge: Charge) -> None:
        """Add the allocation of a launch to the cached usage of each limit that it counts against."""
        taken: Allocation | None = None
        for path in up(charge.queue):
            if (path, charge.pool) in self._below:
                taken = taken or self._nodes.allocation_at_launch(job, charge.milli)
                self._below[path, charge.pool].append(taken)

    def _held_below(self, bound: Bound) -> list[Allocation]:
        """Return the allocations that count against a limit; they are cached, and later launches update the cache."""
        key = bound.path, bound.pool
        if key not in self._below:
            held = self._held
            self._below[key] = [
                replace(self._nodes.allocation(task), counted_milli=charge.milli)
                for task in held.tasks_below(bound.path)
                if (charge := held.charge_of(task)).pool == bound.pool
            ] + [
                self._nodes.allocation_at_launch(job, charge.milli)
                for job, charge in held.taken_below(bound.path)
                if charge.pool == bound.pool
            ]
        return self._below[key]
