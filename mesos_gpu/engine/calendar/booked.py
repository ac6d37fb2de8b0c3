"""Bookings for jobs: which of them a job may use, what is reserved for them, and the jobs on their GPUs."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace

from mesos_gpu.engine.calendar.leads import has_ended_by, lead_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.bookings.booking import Booking, BookingSpec, Place
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import Resources, total
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from mesos_gpu.policy.calendar.local_times import shown
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.room.reservation import ends_by, outlasts
from mesos_gpu.policy.tenancy.tree import lineage

Nodes = Mapping[AgentId, NodeCapacity]


def booking_called(state: State, name: str) -> Booking | None:
    """Return the booking with an id, else the one with that name that has not ended; None without one."""
    booking_of_id = state.calendar.bookings.get(name)
    if booking_of_id is not None:
        return booking_of_id
    return next(
        (
            booking
            for booking in state.calendar.bookings.values()
            if booking.spec.name == name and not booking.state.ended
        ),
        None,
    )


def booking_over(state: State, job: Job) -> str:
    """Return why a job that asks for a booking can never start again, in words; "" if it may."""
    name = job.spec.booking
    if name is None:
        return ""
    booking = booking_called(state, name)
    return "" if booking and not booking.state.ended else f"its booking {name} has ended"


def check_booking(state: State, spec: JobSpec, owner: str) -> None:
    """Refuse a job that asks for a booking which it could never use.

    Args:
        owner: Authenticated owner of the job, as of `Job`; "" without one.

    Raises:
        NotAccepted: There is no such booking, or it is for other queues or users.
    """
    if spec.booking is None:
        return
    booking, faults = booking_called(state, spec.booking), list[tuple[str, str]]()
    if booking is None or booking.state.ended:
        faults.append(("/booking", f"there is no booking {spec.booking}, or it has ended"))
    elif not booking.spec.is_for(spec.queue, owner or spec.user or ""):
        faults.append(("/booking", f"booking {spec.booking} is for other queues, or for other users"))
    if spec.is_share or not spec.gpus:
        faults.append(("/gpus", "must be whole GPUs, at least one, for a job with a booking"))
    if faults:
        raise NotAccepted(faults, remedy="list the bookings with: mesos-gpu reserve list")


def may_use(booking: Booking, job: Job) -> bool:
    """Return whether a job may run on the GPUs of a booking.

    It may if it asks for the booking, or asks for none and is of the queue and users of the booking.
    """
    if job.spec.booking is not None and not booking.is_called(job.spec.booking):
        return False
    spec = job.spec
    return bool(spec.gpus) and not spec.is_share and booking.spec.is_for(spec.queue, job.charged_to)


def unfinished(state: State) -> list[Booking]:
    """Return the bookings that have not ended, ordered by their begin."""
    bookings = (booking for booking in state.calendar.bookings.values() if not booking.state.ended)
    return sorted(bookings, key=lambda each: (each.begins, each.id))


def owner_of(state: State, spec: BookingSpec) -> str:
    """Return the queue from whose guarantee a booking is taken, by the present document; see `owner_in`."""
    return owner_in(state.quota.queues, spec)


def owner_in(document: QueueDocument, spec: BookingSpec) -> str:
    """Return the queue from whose guarantee a booking is taken; "" if it is taken from none.

    It is the queue of the booking, or the next one above it with a guarantee in the pool at any hours.
    """
    above = (path for path in lineage(spec.queue) if spec.from_guarantee and path in document.queues)
    return next((path for path in above if _guarantees(document.queues[path], spec.pool)), "")


def _guarantees(queue: QueueSpec, pool: str) -> bool:
    """Return whether a queue has a guarantee in a pool at any hours."""
    return pool in queue.guarantee_gpus or any(pool in entry.guarantee_gpus for entry in queue.hours)


def named_jobs(state: State, booking: Booking) -> list[Job]:
    """Return the jobs that have not ended and ask for a booking by its name."""
    every = state.work.jobs.values()
    return [
        job
        for job in every
        if job.spec.booking and not job.state.ended and booking.is_called(job.spec.booking)
    ]


def holders_of(state: State, gpus: Iterable[GpuId]) -> dict[GpuId, Job]:
    """Return by GPU the jobs that hold some GPUs, wholly or in part."""
    held = {}
    for gpu in gpus:
        for task in state.tenants(gpu):
            job = state.work.jobs.get(task.job_id) if task.job_id is not None else None
            if job is not None:
                held[gpu] = job
    return held


def users_of(state: State, booking: Booking) -> dict[GpuId, Job]:
    """Return by GPU the jobs that hold GPUs of a booking and may use it."""
    return {gpu: job for gpu, job in holders_of(state, booking.gpus).items() if may_use(booking, job)}


def others_on(state: State, booking: Booking, gpus: Iterable[GpuId]) -> list[Job]:
    """Return the jobs that hold some GPUs and may not use a booking."""
    return _once(job for job in holders_of(state, gpus).values() if not may_use(booking, job))


def jobs_of(state: State, booking: Booking) -> list[Job]:
    """Return the jobs that hold GPUs of a booking and may use it."""
    return _once(users_of(state, booking).values())


def _once(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs without repetitions."""
    return list({job.id: job for job in jobs}.values())


def booked_for(state: State, job: Job) -> Booking | None:
    """Return the active booking that a running job uses; None without one."""
    if not state.calendar.bookings or job.state is JobState.PENDING:
        return None
    held = {gpu for task in state.work.round_of(job) for gpu in task.gpus}
    active = (
        booking for booking in state.calendar.bookings.values() if booking.is_active and may_use(booking, job)
    )
    return next((booking for booking in active if held & set(booking.gpus)), None)


class Booked:
    """Bookings during one match or one read."""

    def __init__(self, state: State, settings: Settings, now: float) -> None:
        self._state, self._settings, self._now = state, settings, now
        self.any = bool(state.calendar.bookings)
        self._uses: dict[Hashable, tuple[Booking, ...]] = {}

    def active_for(self, job: Job) -> tuple[Booking, ...]:
        """Return the active bookings on whose GPUs a job may start."""
        if not self.any:
            return ()
        key = self.kind(job), job.spec.timeout_s, job.spec.is_share, bool(job.spec.gpus)
        if key not in self._uses:
            active = (booking for booking in unfinished(self._state) if booking.is_active)
            self._uses[key] = tuple([booking for booking in active if self._has_time(booking, job)])
        return self._uses[key]

    def _has_time(self, booking: Booking, job: Job) -> bool:
        """Return whether a job may use a booking for long enough that it does not get its notice at once."""
        if not may_use(booking, job):
            return False
        if ends_by(job.spec, self._now) <= booking.ends or (booking.spec.overrun and job.spec.preemptible):
            return True
        return self._now + 2 * lead_of(self._state, self._settings, job) < booking.ends

    def kind(self, job: Job) -> Hashable:
        """Return a key of a job; jobs with one key may use the same bookings."""
        if not self.any:
            return None
        spec = job.spec
        return spec.booking, spec.queue, job.charged_to, spec.preemptible, spec.notice_s, spec.kill_grace_s

    def in_way(self, job: Job, ends_at: float, kept: Reservation) -> bool:
        """Return whether a job that starts now could delay a booking.

        It does if it may not use the booking, has not ended when the booking begins, and is not ended before by a
        notice.
        """
        booking = self._state.calendar.bookings.get(kept.booking)
        if booking is None or not (booking.is_active or outlasts(ends_at, kept)):
            return False
        if may_use(booking, job) and (not booking.is_active or self._has_time(booking, job)):
            return False
        if booking.is_active:
            return True  # even if the clock was set back to before its begin
        lead_s = lead_of(self._state, self._settings, job)
        return not (job.spec.preemptible and self._now + 2 * lead_s < booking.begins)

    def only(self, job: Job, nodes: Nodes) -> Nodes:
        """Return the nodes of active bookings that a job may use, with their booked GPUs alone.

        GPUs that are still shared are left out, also without any share: they are free only after their cover tasks
        ended.
        """
        able: dict[AgentId, NodeCapacity] = {}
        for booking in self.active_for(job):
            for place in booking.places:
                node = nodes.get(place.agent_id)
                if node is not None:
                    others = able.get(place.agent_id)
                    more = () if others is None else others.gpus
                    shared = {part.gpu_id for part in node.parts}
                    gpus = tuple([gpu for gpu in node.gpus if gpu.id in place.gpus and gpu.id not in shared])
                    able[place.agent_id] = replace(node, gpus=(*more, *gpus), parts=())
        return able

    def kept(self, capacity: Callable[[Node], NodeCapacity]) -> list[Reservation]:
        """Return the reservations for bookings, those that begin first before others.

        Args:
            capacity: Function that returns the capacity of a node.
        """
        if not self.any:
            return []
        provisional = self._state.calendar.provisional
        later = {} if provisional is None else provisional.places
        kept: list[Reservation] = []
        for booking in unfinished(self._state):
            for place in booking.places if booking.state.has_nodes else later.get(booking.id, ()):
                node = self._state.cluster.nodes.get(place.agent_id)
                if node is not None and node.lost_at is None:
                    kept.append(self._reservation(booking, place, capacity(node)))
        return kept

    def _reservation(self, booking: Booking, place: Place, node: NodeCapacity) -> Reservation:
        """Return the reservation of a node for a booking: its GPUs, and their part of all other resources."""
        gpus = frozenset(place.gpus)
        part = part_of(node, len(gpus))
        goes = [
            held
            for held in node.allocations
            if has_ended_by(self._state, self._now, held, booking.begins)
            or any(gpu.id in gpus for gpu in held.gpus)
        ]
        spare = node.free + total(held.resources for held in goes) - part
        return Reservation(
            JobId(""), booking.spec.queue, part.with_gpus(len(gpus)), float(booking.begins),
            agent_id=node.agent_id, hostname=node.hostname, gpus=gpus, spare=spare, booking=booking.id,
            words=f"booked from {_moment(booking)} to {shown(booking.ends, booking.spec.zone)} ({booking.spec.zone})",
        )  # fmt: skip


def _moment(booking: Booking) -> str:
    """Return the begin of a booking in its time zone, for messages."""
    return shown(booking.begins, booking.spec.zone)


def part_of(node: NodeCapacity, gpus: int) -> Resources:
    """Return the part of a node's CPUs, memory and disk that belongs to a number of its GPUs."""
    installed = max(len(node.installed), gpus, 1)
    whole = (node.free + node.given_back).with_gpus(0)
    return Resources.of_milli([max(value, 0) * gpus // installed for value in whole.milli])
