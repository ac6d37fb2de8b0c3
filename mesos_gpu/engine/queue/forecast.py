"""Queue order, reservations and expected starts of pending jobs, for readers."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from itertools import accumulate, islice
from typing import Final, Protocol

from mesos_gpu.engine.gpus.unreserving import unreserved_of
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.line import Standing
from mesos_gpu.engine.queue.nodes import Offered
from mesos_gpu.engine.queue.secrets import problem_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.queue import Estimate, Kept, QueueUse, Waiting
from mesos_gpu.model.jobs.why import PendingReclaim
from mesos_gpu.model.nodes.offer import Scalar, resources_of
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.policy.capacity.node import ENDLESS, Reservation
from mesos_gpu.policy.explain.estimate import RunTimes, after, estimate_of
from mesos_gpu.policy.explain.owed import by_room
from mesos_gpu.policy.queueing.queue import effective_priority, in_line_since
from mesos_gpu.policy.room.reservation import decisive

#: Reasons for waiting other than limits and rules.
BACK_OFF, SECRETS, ROOM, UNASKED = "back-off", "secrets", "room", "unasked"
_MAX_ESTIMATED: Final = 1000  # jobs with an estimate; computing it blocks the engine's thread


def offered_of(state: State) -> Offered:
    """Return a function that returns the unreserved part of the held offers of an agent."""
    held: dict[AgentId, list[Scalar]] = {}
    for offer in state.cluster.offers.values():
        held.setdefault(offer.agent_id, []).extend(unreserved_of(state, offer))
    left = {agent_id: resources_of(scalars) for agent_id, scalars in held.items()}
    return lambda agent_id: left.get(agent_id, NOTHING)


class Coming(Protocol):
    """Room that ends of other jobs will make, as `engine.explain.coming.Coming`."""

    def of(self, backlog: Backlog, job: Job, /) -> PendingReclaim | None:
        """Return the room that will be made for a job; jobs are passed in queue order."""


class Forecast:
    """Expected starts of pending jobs.

    It reads the state and is valid as long as the state does not change.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        standing: Fair shares of queues and capacity of pools, as for `Backlog`.
        coming: Room that will be made for jobs; None if it is not looked for.
        until: Job that ends `jobs`, as jobs behind it do not change its start; None for all jobs.
    """

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        standing: Standing | None = None,
        coming: Coming | None = None,
        *,
        until: JobId | None = None,
    ) -> None:
        self._state, self._settings, self._now = state, settings, now
        self._standing, self._coming = standing, coming
        self.backlog = Backlog(state, settings, now, offered_of(state), reading=True, standing=standing)
        self._blocked_until: JobId | None = None  # all jobs before that job are blocked in `backlog`
        self.jobs: list[Job] = []
        for job in self.backlog.jobs():
            self.jobs.append(job)
            if job.id == until:
                break
        arrays, members = state.work.arrays, state.work.members
        last = {max(drafts, key=drafts.__getitem__): arrays[of] for of, drafts in members.drafts.items()}
        self._behind = {job_id: members.startable(array) for job_id, array in last.items()}

    def stands_for(self, job_id: JobId) -> int:
        """Return the number of tasks that a job stands for in the queue order.

        The last draft of an array stands for all tasks of the array that have no job yet.
        """
        return 1 + self._behind.get(job_id, 0)

    @cached_property
    def _places(self) -> Sequence[int]:
        """Number of tasks before each of `jobs`, with startable tasks of arrays that have no job yet."""
        if not self._behind:
            return range(len(self.jobs))
        return list(accumulate((self.stands_for(job.id) for job in self.jobs[:-1]), initial=0))

    def _at(self, job_id: JobId) -> int | None:
        """Return the index of a job in `jobs`, found fastest near the end; None if the job does not wait."""
        indexes = range(len(self.jobs) - 1, -1, -1)
        return next((i for i in indexes if self.jobs[i].id == job_id), None)

    def place_of(self, job_id: JobId) -> int | None:
        """Return the number of tasks before a job, or None if the job does not wait."""
        at = self._at(job_id)
        return None if at is None else self._places[at]

    def waiting(self, most: int, sees: Callable[[Job], bool] = lambda _: True) -> list[Waiting]:
        """Return the first `most` pending jobs that a caller may see, in their order."""
        kept = {reservation.job_id: _kept(reservation) for reservation in self.before(None)}
        seen = list(islice(((i, job) for i, job in enumerate(self.jobs) if sees(job)), most))
        estimates = self._estimates(min(seen[-1][0] + 1 if seen else 0, _MAX_ESTIMATED))
        step_s = self._settings.queue.aging_step_s
        return [
            Waiting(
                job=job,
                position=(place := self._places[i]),
                effective_priority=effective_priority(job.priority, self._now - in_line_since(job), step_s),
                kept=kept.get(job.id),
                estimate=estimates.get(job.id) or Estimate(None, f"{place} jobs stand before it"),
            )
            for i, job in seen
        ]

    def reasons(self, most: int) -> Counter[str]:
        """Count the first `most` pending jobs by what they wait for, and the others as `UNASKED`.

        Keys are values of `Stage` or the constants of this module. Call it before other methods, as it makes
        reservations.
        """
        counts: Counter[str] = Counter()
        for job in self.jobs[:most]:
            counts[self._reason(job)] += 1
            if job.not_before <= self._now:
                self.backlog.block(job)
        counts[UNASKED] += max(len(self.jobs) - most, 0) + sum(self._state.work.members.unmade.values())
        return counts

    def _reason(self, job: Job) -> str:
        """Return the reason why a job waits: a value of `Stage` or a constant of this module."""
        if job.not_before > self._now:
            return BACK_OFF
        if problem_of(self._state, self._settings, self._now, job):
            return SECRETS
        wait = self.backlog.barriers.wait_of(job)
        return ROOM if wait is None else wait.stage.value

    def before(self, job_id: JobId | None) -> list[Reservation]:
        """Return the reservations for the jobs before a job; for all jobs without a `job_id`.

        Jobs that will be ended for the jobs before it count, too.
        """
        at = None if job_id is None else self._at(job_id)
        self._block(
            self.backlog, self.jobs[:at], self._coming if job_id is not None and not self.learns else None
        )
        self._blocked_until = job_id
        return self.backlog.reservations.every

    def _block(self, backlog: Backlog, jobs: Sequence[Job], coming: Coming | None) -> None:
        """Reserve room for some jobs, in their order.

        A victim of a job with a seat is no victim of a job behind it, so victims of these jobs are found first.

        Args:
            backlog: Backlog that takes the reservations.
            jobs: First jobs in queue order.
            coming: Room that will be made for jobs; None if it is not looked for.
        """
        seated = self._state.quota.seats_given if coming is not None else {}
        for job in backlog.kept_for(jobs, seated):
            if coming is not None and job.id in seated:
                coming.of(backlog, job)
            if job.not_before <= self._now:
                backlog.block(job)

    @cached_property
    def learns(self) -> bool:
        """Whether a running job has no time limit, so that its end is estimated from run times of other jobs.

        Otherwise an estimate needs no second look at the jobs before a job.
        """
        running = (
            self._state.work.holding_job(self._state.work.tasks[task_id]) for task_id in self._state.work.live
        )
        return any(job is not None and job.spec.timeout_s is None for job in running)

    def kept_from(self, job: Job) -> dict[AgentId, list[Reservation]]:
        """Return by node the reservations that a job must leave alone. Call `before` first."""
        by_node: dict[AgentId, list[Reservation]] = {}
        for i in self.backlog.reservations.outlasted(job):
            reservation = self.backlog.reservations.every[i]
            if reservation.agent_id is not None:
                by_node.setdefault(reservation.agent_id, []).append(reservation)
        return by_node

    def estimate(self, job: Job) -> Estimate:
        """Return when a job may start. Call `before` first."""
        at = self._at(job.id)
        assert at is not None, f"{job.id} does not wait"
        if self._blocked_until == job.id and not self.learns:
            return self._estimated(self.backlog, at, job)
        backlog = self._learning()
        self._block(backlog, self.jobs[:at], self._coming)
        return self._estimated(backlog, at, job)

    def _estimated(self, backlog: Backlog, at: int, job: Job) -> Estimate:
        """Return the estimate for the job at an index, beside the reservations of a backlog."""
        reservation = decisive(backlog.reservations.find(job, backlog.request(job)))
        return self._estimate(backlog, job, reservation, self._places[at])

    def _learning(self) -> Backlog:
        """Return a backlog that estimates the end of jobs without a time limit from run times of ended jobs."""
        times = RunTimes(self._state.work.jobs[job_id] for job_id in self._state.work.ended)
        backlog = Backlog(
            self._state,
            self._settings,
            self._now,
            offered_of(self._state),
            reading=True,
            learn=times.median_of,
            standing=self._standing,
        )
        backlog.starving_as(self.backlog)
        return backlog

    def _estimates(self, most: int) -> dict[JobId, Estimate]:
        """Return when each of the first jobs may start, with reservations for the jobs before it."""
        backlog = self._learning()
        estimates: dict[JobId, Estimate] = {}
        reservations: dict[tuple[str, int, Hashable], Reservation | None] = {}
        for at, job in enumerate(self.jobs[:most]):
            request = backlog.request(job)
            limited = job.spec.queue if backlog.barriers.bounds(job) else ""
            key = limited, len(backlog.reservations.every), backlog.kind(job, request)
            if key not in reservations:
                reservations[key] = decisive(backlog.reservations.find(job, request))
            estimates[job.id] = self._estimate(backlog, job, reservations[key], self._places[at])
            if job.not_before <= self._now:
                backlog.block(job)
        return estimates

    def _estimate(self, backlog: Backlog, job: Job, reservation: Reservation | None, ahead: int) -> Estimate:
        """Return when a job may start, and the basis of the estimate.

        Args:
            backlog: Backlog with reservations for the jobs before it.
            job: Job that waits.
            reservation: Reservation that the job would get; None without one.
            ahead: Number of jobs before it.
        """
        beyond = backlog.barriers.beyond(job)
        rule = backlog.barriers.rule_against(job)
        if rule is not None and not beyond:
            return Estimate(rule.until, rule.words)
        estimate = estimate_of(job, reservation, beyond=beyond, now=self._now)
        room = None if self._coming is None or beyond else self._coming.of(backlog, job)
        if room is not None and (estimate.at is None or estimate.at > room.until):
            estimate = by_room(room, self._now)
        if estimate.at is not None and problem_of(self._state, self._settings, self._now, job):
            return Estimate(None, "it waits for its secrets")
        lacks = reservation is None and estimate.at is None
        alone = backlog.reservations.alone(job, backlog.request(job)) if lacks else None
        first = [r for r in backlog.reservations.every if alone is not None and r.agent_id == alone.agent_id]
        if first and not beyond:
            jobs = (self._state.work.jobs.get(r.job_id) for r in first)
            return after(first, [None if job is None else job.spec.timeout_s for job in jobs], self._now)
        if estimate.at is None or not ahead:
            return estimate
        before = "1 job stands" if ahead == 1 else f"{ahead} jobs stand"
        return Estimate(estimate.at, f"{estimate.basis}; {before} before it")

    def queues(self) -> list[QueueUse]:
        """Return every queue that has a limit or a pending job, by name."""
        names: dict[str, int] = dict.fromkeys(self._settings.queue.queue_limits, 0)
        since: dict[str, float] = {}
        for job in self.jobs:
            names[job.spec.queue] = names.get(job.spec.queue, 0) + 1
            since[job.spec.queue] = min(job.submitted_at, since.get(job.spec.queue, job.submitted_at))
        for array_id, waiting in self._state.work.members.unmade.items():
            array = self._state.work.arrays[array_id]
            queue = array.spec.queue
            names[queue] = names.get(queue, 0) + waiting
            since[queue] = min(array.submitted_at, since.get(queue, array.submitted_at))
        used = dict.fromkeys(names, 0)
        for task_id in self._state.work.live:
            holder = self._state.work.holding_job(self._state.work.tasks[task_id])
            if holder is not None and holder.spec.queue in used:
                used[holder.spec.queue] += self._state.work.counted_milli(
                    self._state.work.tasks[task_id], holder
                )
        limits = self._settings.queue.queue_limits
        return [
            QueueUse(name, limits.get(name), number_of(used[name]), names[name], since.get(name))
            for name in sorted(names)
        ]


def _kept(reservation: Reservation) -> Kept:
    """Return a reservation as readers see it."""
    at = None if reservation.at == ENDLESS else reservation.at
    gpus = {
        *reservation.gpus,
        *(part.gpu_id for part in reservation.beside),
    }  # whole GPUs, and GPUs of which a share is reserved
    return Kept(reservation.hostname or None, tuple(sorted(gpus)), at)
