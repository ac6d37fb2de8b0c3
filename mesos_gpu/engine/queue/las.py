"""Queues whose jobs stand by the service that they have attained: their order, and who gives way to whom."""

from collections.abc import Iterable

from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tenancy import LineOrder
from mesos_gpu.policy.capacity.node import Reservation
from mesos_gpu.policy.room.reservation import outlasts
from mesos_gpu.policy.tenancy.las import Rank, is_due, moved, moves_at, rank_of


class Attained:
    """Where jobs of such queues stand at one moment. Valid as long as the state does not change."""

    def __init__(self, state: State, now: float) -> None:
        """Nothing is computed before it is asked for."""
        self._state, self._now = state, now
        leaves = state.quota.tree.leaves()
        self._queues = {each.path for each in leaves if each.resolved.order is LineOrder.LAS}
        self._ranks: dict[JobId, Rank] = {}

    @property
    def any(self) -> bool:
        """Whether there is such a queue."""
        return bool(self._queues)

    def orders(self, job: Job) -> bool:
        """Whether its queue is one."""
        return job.spec.queue in self._queues

    def line(self, ordered: list[Job]) -> list[Job]:
        """The line of all that wait, with the jobs of each such queue in its order, at the places that they had."""
        if not self._queues:
            return ordered
        leaves = {job.id: job.spec.queue for job in ordered if self.orders(job)}
        return moved(ordered, leaves, self._now)

    def gives_way(self, running: Job, job: Job) -> bool:
        """Whether a job that runs may be ended for one that waits in its queue: it stands behind it."""
        if running.spec.queue != job.spec.queue or not self.orders(job):
            return False
        return self.rank(running) > self.rank(job)

    def passing(self, job: Job) -> str:
        """The queue within which a job may start on what is kept for those before it, as they have it ended when they
        can start; "": it may not."""
        return job.spec.queue if job.spec.preemptible and self.orders(job) else ""

    def in_way(self, job: Job, ends_at: float, kept: Reservation) -> bool:
        """Whether a job that ends at the latest at a time may be in the way of another for which something is kept;
        after a very long wait of that one those of its queue are, too."""
        if kept.job_id == job.id or not outlasts(ends_at, kept):
            return False
        if not self._queues or kept.queue != self.passing(job):
            return True
        other = self._state.work.jobs[kept.job_id]
        return other.room_made_at is not None or is_due(other, self._now)

    def moves_on(self, waiting: Iterable[Job], running: Iterable[Job]) -> bool:
        """Whether anybody who waits could have somebody ended."""
        first: dict[str, Rank] = {}
        for job in waiting:
            if self.orders(job):
                rank = self.rank(job)
                first[job.spec.queue] = min(first.get(job.spec.queue, rank), rank)
        return any(job.spec.queue in first and self.rank(job) > first[job.spec.queue] for job in running)

    def rank(self, job: Job) -> Rank:
        """Where a job of such a queue stands, that waits or runs: the lowest goes first; of others there is none."""
        if not self.orders(job):
            return ()
        known = self._ranks.get(job.id)
        if known is None:
            members = () if job.state is JobState.PENDING else self._state.work.round_of(job)
            known = self._ranks[job.id] = rank_of(job, members, self._now)
        return known

    def level(self, job: Job) -> int:
        """The level of a job of such a queue, from 0; of one that started anew -1."""
        return self.rank(job)[2]

    def moves_at(self, running: Job) -> float:
        """When a job of such a queue that runs reaches its next level."""
        return moves_at(running, self._state.work.round_of(running), self._now)
