"""Order of jobs in queues with `order: las` (least attained service), and which running jobs give way by it."""

from collections.abc import Iterable

from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tenancy import QueueOrder
from mesos_gpu.policy.capacity.node import Reservation
from mesos_gpu.policy.room.reservation import outlasts
from mesos_gpu.policy.tenancy.las import Rank, is_due, moved, moves_at, rank_of


class AttainedServiceOrder:
    """Order by attained service at one moment; valid as long as the state does not change."""

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        leaves = state.quota.tree.leaves()
        self._queues = {leaf.path for leaf in leaves if leaf.resolved.order is QueueOrder.LAS}
        self._ranks: dict[JobId, Rank] = {}

    @property
    def any(self) -> bool:
        """Whether any queue is ordered by attained service."""
        return bool(self._queues)

    def orders(self, job: Job) -> bool:
        """Return whether the queue of a job is ordered by attained service."""
        return job.spec.queue in self._queues

    def line(self, ordered: list[Job]) -> list[Job]:
        """Return all pending jobs with those of each such queue in its order, at the places that its jobs had."""
        if not self._queues:
            return ordered
        leaves = {job.id: job.spec.queue for job in ordered if self.orders(job)}
        return moved(ordered, leaves, self._now)

    def gives_way(self, running: Job, job: Job) -> bool:
        """Return whether a running job may be ended for a pending job of its queue that comes before it."""
        if running.spec.queue != job.spec.queue or not self.orders(job):
            return False
        return self.rank(running) > self.rank(job)

    def passing(self, job: Job) -> str:
        """Return the queue within which a job may use what is reserved for jobs before it; "" if it may not.

        It may, as the jobs before it have it ended when they can start.
        """
        return job.spec.queue if job.spec.preemptible and self.orders(job) else ""

    def in_way(self, job: Job, ends_at: float, kept: Reservation) -> bool:
        """Return whether a job that ends by a time may delay the job of a reservation.

        A job of the same queue does not, unless the other job has waited very long.
        """
        if kept.job_id == job.id or not outlasts(ends_at, kept):
            return False
        if not self._queues or kept.queue != self.passing(job):
            return True
        other = self._state.work.jobs[kept.job_id]
        return other.room_made_at is not None or is_due(other, self._now)

    def moves_on(self, waiting: Iterable[Job], running: Iterable[Job]) -> bool:
        """Return whether any pending job could have a running job ended."""
        first: dict[str, Rank] = {}
        for job in waiting:
            if self.orders(job):
                rank = self.rank(job)
                first[job.spec.queue] = min(first.get(job.spec.queue, rank), rank)
        return any(job.spec.queue in first and self.rank(job) > first[job.spec.queue] for job in running)

    def rank(self, job: Job) -> Rank:
        """Return the place of a job in its queue, the lowest first; empty for a job of another kind of queue."""
        if not self.orders(job):
            return ()
        rank = self._ranks.get(job.id)
        if rank is None:
            members = () if job.state is JobState.PENDING else self._state.work.round_of(job)
            rank = self._ranks[job.id] = rank_of(job, members, self._now)
        return rank

    def level(self, job: Job) -> int:
        """Return the level of a job of such a queue, from 0; -1 for a job that starts again."""
        return self.rank(job)[2]

    def moves_at(self, running: Job) -> float:
        """Return when a running job of such a queue reaches its next level, in seconds since the epoch."""
        return moves_at(running, self._state.work.round_of(running), self._now)
