"""Pending jobs during one match: their order, what blocks each, and the room that is reserved for it."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from mesos_gpu.engine.calendar.booked import Booked
from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.queue.barriers import AdmissionLimits
from mesos_gpu.engine.queue.held import Held, has_room
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.queue.line import PendingOrder, Standing
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.nodes import Ends, Learn, Nodes, Offered
from mesos_gpu.engine.queue.reasons import Facts
from mesos_gpu.engine.queue.reserving import Reservations
from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.room.given_up import given_up
from mesos_gpu.engine.room.hopeless import is_hopeless, note_hopeless
from mesos_gpu.engine.room.kept import Kept
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.policy.capacity.node import ENDLESS, NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request


def request_of(job: Job, settings: Settings, state: State) -> Request:
    """Return the request of each task of a job, with the resources of its executor, but without its ports.

    GPU models are known models that match the names in the job; names that match none stay.
    """
    spec = job.spec
    share = spec.share_request(settings.placing.isolation, across_users=settings.placing.mps_across_users)
    gpu = GpuRequest(
        spec.gpus,
        models=state.cluster.models_of(spec.gpu_model),
        memory_mib=spec.gpu_memory_mib if share is None else None,
        compute_capability=spec.compute_capability,
        share=share,
    )
    # The owner of a share decides which GPUs it may have; for whole GPUs the owner does not matter.
    user = None if share is None else spec.user or settings.programs.default_user
    return Request(footprint_of(job, settings).total, gpu, job.min_driver, spec.tasks, user)


class Backlog:
    """Pending jobs during one match: their order, what blocks each, and the reservations made for them.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        offered: Function that returns the rest of the offers of an agent.
        reading: Whether the state must not remember any results, as for a reader.
        learn: Function that estimates the run time of jobs without a limit; None for no estimates.
        standing: Fair shares of queues; None to use guarantees and weights alone.

    Attributes:
        held: Holdings of queues and users, and pools of jobs.
        booked: Bookings of the match.
        neighbours: Constraints between jobs and nodes.
        attained: Order of queues by attained service.
        nodes: Nodes of the match.
        barriers: Admission limits that block a job before any node is examined.
        reservations: Room that is kept for jobs.
    """

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        offered: Offered,
        *,
        reading: bool = False,
        learn: Learn | None = None,
        standing: Standing | None = None,
    ) -> None:
        self._state, self._settings, self._now, self._reading = state, settings, now, reading
        self._queues = set[str]()  # queues whose first blocked job is known
        self._starving = set[str]()  # queues whose first starving job is known to be blocked
        self._hopeless: set[tuple[str, Hashable]] = set()
        kept = Kept()
        self.booked = Booked(state, settings, now)
        self.neighbours = Neighbours(state, settings.placing.levels, reading=reading)
        self.attained = AttainedServiceOrder(state, now)
        self.held = Held(state, charges_of(state, settings), now)
        self.nodes = Nodes(
            state,
            settings,
            now,
            self.held,
            self.neighbours,
            offered,
            Ends(state, now, learn),
            reading=reading,
        )
        aging_step_s = settings.queue.aging_step_s
        self.barriers = AdmissionLimits(
            Facts(state, self.held, now, self.attained, standing, kept, aging_step_s)
        )
        self.reservations = Reservations(
            state,
            settings,
            now,
            kept,
            self.held,
            self.nodes,
            self.neighbours,
            self.barriers,
            self.attained,
            self.booked,
            reading=reading,
        )
        if reading:
            self.keep_first()
        self._waits = PendingOrder(
            state,
            settings,
            now,
            self.held,
            self.attained,
            standing,
            held_back=self.barriers.rule_against,
        )

    def jobs(self) -> Iterable[Job]:
        """Yield every pending job in queue order; which one is next depends on what became of those before."""
        return self._waits.jobs()

    def starving_as(self, other: "Backlog") -> None:
        """Adopt the starving jobs of another backlog of this moment whose queue order was computed."""
        self._waits.heads = other._waits.heads

    def kind(self, job: Job, request: Request) -> Hashable:
        """Return a key of a job; of jobs with one key all can start or none, by their needs, limits and nodes."""
        pools = self.barriers.open_pools(job)
        seat = None if pools is None else self._state.quota.seats_given.get(job.id)
        return request, self.neighbours.key(job), pools, seat and (seat.pool, job.spec.preemptible)

    # --- nodes where a place is looked for

    def in_pools(
        self, job: Job, nodes: Mapping[AgentId, NodeCapacity]
    ) -> Sequence[Mapping[AgentId, NodeCapacity]]:
        """Return those of some nodes that are in pools with room in their limits for all of a job.

        They are in groups, the best first, as of `Pools.preferred`.
        """
        pools, held = self.barriers.open_pools(job), self.held
        if pools is None:
            return (nodes,)
        parts = held.pools.preferred(job, pools, self._state.quota.seats_given.get(job.id))
        able = {key: node for key, node in nodes.items() if held.is_in(key, pools)}
        return [{key: node for key, node in able.items() if held.pool_of(key) in part} for part in parts]

    def booked_for(self, job: Job, nodes: Mapping[AgentId, NodeCapacity]) -> Mapping[AgentId, NodeCapacity]:
        """Return the capacity booked for a job on nodes, as far as its queue, class and the limits of pools allow."""
        booked, held = self.booked.only(job, nodes), self.held
        pools = self.barriers.pools_of_booked(job)
        return {key: node for key, node in booked.items() if held.is_in(key, pools)}

    # --- jobs that cannot start

    def helps_no_more(self, job: Job) -> bool:
        """Return whether freed capacity can no longer help a job.

        That is so if a rule or limit blocks the job even after all victims have ended, or if some of the capacity is
        in a pool that the job may no longer use.
        """
        if not self.held.may_use_room(job):
            return True
        if job.room_made_at is not None and job.room_made_at > self._now:
            return False  # room for the next hours, which have not begun
        wait = self.barriers.rule_against(job)
        if wait is None:
            return bool(self.barriers.beyond(job))
        ends_help = wait.stage is Stage.GUARANTEE or wait.lack is not None
        return not ends_help or job.id not in self.ended_for

    def request(self, job: Job) -> Request:
        """Return the request of each task of a job, as `request_of`."""
        return request_of(job, self._settings, self._state)

    @cached_property
    def ended_for(self) -> frozenset[JobId | None]:
        """Pending jobs for which tasks are being ended, as they were when first asked in this match."""
        return frozenset(self._state.work.tasks[task_id].preempted_for for task_id in self._state.work.live)

    def keep_first(self) -> None:
        """Reserve what is booked, and what gangs that start again gave up, before reservations for other jobs."""
        lookups = (
            self.barriers.rule_against,
            self.request,
            self.barriers.spares_beside,
            partial(self.neighbours.placing_of, empty=True),
        )
        free = given_up(self._state, self._settings, self._now, *lookups, self.nodes.capacity)
        self.reservations.begin(self.booked.kept(self.nodes.capacity), free)

    def keep_rooms(self) -> None:
        """Reserve for each job the room that was made for it, so that none of these jobs takes room of another."""
        jobs, queue = self._state.work.jobs, self._state.work.queue
        waiting = [job for _, job_id in queue if has_room(job := jobs[job_id])]
        for job in sorted(waiting, key=lambda job: (job.room_made_at, job.sequence)):
            self.block(job)
            self.reservations.roomy.add(job.id)

    def kept_for(self, jobs: Iterable[Job], others: Collection[JobId]) -> Iterator[Job]:
        """Yield the jobs for which `block` may reserve room, in their order; the caller blocks each before the next.

        Args:
            jobs: First jobs in queue order.
            others: Jobs that are yielded in any case.
        """
        line, most = iter(jobs), self._settings.queue.most_reservations
        while len(self._queues) < most and (job := next(line, None)) is not None:
            yield job
        heads = self._waits.heads
        for job in line:
            if job.room_made_at is not None or job.id in heads or job.id in others:
                yield job

    def block(self, job: Job) -> None:
        """Reserve room for a job that cannot start, if some node could serve it.

        Room is reserved for the first such job of each queue, and for the first that borrows and waits too long.
        """
        queue = job.spec.queue
        if job.room_on and job.room_made_at is not None:
            if job.id not in self.reservations.roomy and not self.helps_no_more(job):
                request, ahead = self.request(job), job.room_made_at > self._now
                look = self.reservations.find_room if ahead else self.reservations.find
                self.reservations.add(look(job, request))
            return
        starves = job.id in self._waits.heads
        served = self._starving if starves else self._queues
        if queue in served or len(served) >= self._settings.queue.most_reservations:
            return
        if self.barriers.rule_against(job) is not None:
            return  # more room would not help it
        request = self.request(job)
        key = queue, self.kind(job, request)
        if key in self._hopeless:
            return
        reservations = self.reservations.find(job, request)
        if not reservations:
            self._hopeless.add(key)
            if not self._reading and self._is_lost(job, request, starves=starves):
                note_hopeless(self._state, job, self._now)
            return
        served.add(queue)
        borrows = not self.held.tree.is_flat and job.spec.gpus and self._waits.seat_for(job) is None
        # Before a job that borrows starves, no node idles for it for an unknown time.
        if starves or not borrows or all(reservation.at < ENDLESS for reservation in reservations):
            self.reservations.add(reservations)

    def _is_lost(self, job: Job, request: Request, *, starves: bool) -> bool:
        """Return whether no node could serve a job that starves or has a seat.

        False while the job may use more pools later.
        """
        if self.held.pools.next(job) is not None:
            return False
        if job.id in self._state.quota.seats_given:
            able = filter(lambda node: self.nodes.serves(job, node), self._state.cluster.nodes.values())
            return is_hopeless(self._state, request, map(self.nodes.capacity, able))
        if not starves:
            return False
        pools = self.barriers.may_hold(job)
        parts = self.held.parts(job, pools, pools)
        return not any(self.reservations.find_room(job, request, part, beside=False) for part in parts)
