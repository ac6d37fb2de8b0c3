"""Running jobs that may be ended for others, and the cost of their end."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Final

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.tenancy.idle import returnable
from mesos_gpu.engine.tenancy.seats import Admissions
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.room.lost import Ran, cost, least_ms, lost_milli_s, ran

_IDLE_PRIORITY: Final = -(10**9)  # priority of a job with idle GPUs, which is ended before all others
_MILLI_S_PER_H: Final = 3_600_000


def displace(job: Job, rank: int, now: float) -> Victim:
    """Return a job as a victim of a booking.

    Its cost is the work since its latest checkpoint, in thousandths of GPUs times seconds. Earlier ends and the time
    of a restart do not count.

    Args:
        job: The job, preemptible or not.
        rank: The rank that stands for its priority; jobs of a lower rank are displaced first.
        now: Seconds since the epoch.
    """
    return Victim(job.id, rank, lost_milli_s(_ran(job, job.spec.gpu_milli_in_all, now), 0, 0))


def _ran(job: Job, milli: int, now: float) -> Ran:
    """Return the run time of a job by its start, checkpoint and earlier ends."""
    return ran(job.started_at, job.checkpoint_at, now, milli, job.stopped)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """Running job that may be ended for another one.

    Attributes:
        job: The running job.
        leaf: Path of the job's queue.
        pool: Pool in which the job runs.
        milli: Cost of its GPUs, in thousandths.
        victim: The job as a victim, with the cost of its end.
        ran: Time for which the job has run.
        least_ms: Least loss of a job of the queue that reports checkpoints, in milliseconds.
        started_at: Start in seconds since the epoch; infinity if some of its tasks do not run yet.
    """

    job: Job
    leaf: str
    pool: str
    milli: int
    victim: Victim
    ran: Ran
    least_ms: int
    started_at: float


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Running jobs of a leaf.

    Attributes:
        granted: Pool of each job, and the cost of the GPUs of one of its tasks, in thousandths.
        ran: Time for which each job has run.
        least_ms: Least loss of a job that reports checkpoints, in milliseconds.
    """

    granted: Mapping[JobId, tuple[str, int]]
    ran: Mapping[JobId, Ran]
    least_ms: int


class Victims(Mapping[JobId, Victim]):
    """Jobs that may be ended for one job, each computed when it is looked up.

    Args:
        running: Jobs that may be ended for any job; jobs of plans are removed from it.
        known: Results of earlier look-ups, extended by later ones.
        ask: Rule that returns a job as a victim, or None if it may not be ended.
    """

    def __init__(
        self,
        running: Mapping[JobId, Job],
        known: dict[JobId, Victim | None],
        ask: Callable[[Job], Victim | None],
    ) -> None:
        self._running, self._known, self._ask = running, known, ask

    def get(self, job_id: Any, default: Any = None) -> Any:
        """Return a job as a victim, or the default if it may not be ended."""
        other = self._running.get(job_id)
        if other is None:
            return default
        try:
            victim = self._known[job_id]
        except KeyError:
            victim = self._known[job_id] = self._ask(other)
        return default if victim is None else victim

    def __getitem__(self, job_id: JobId) -> Victim:
        """Return a job as a victim.

        Raises:
            KeyError: The job may not be ended.
        """
        victim: Victim | None = self.get(job_id)
        if victim is None:
            raise KeyError(job_id)
        return victim

    def __contains__(self, job_id: object) -> bool:
        """Return whether a job may be ended."""
        return self.get(job_id) is not None

    def __iter__(self) -> Iterator[JobId]:
        """Yield the jobs that may be ended."""
        return (job_id for job_id in self._running if job_id in self)

    def __len__(self) -> int:
        """Count the jobs that may be ended."""
        return sum(1 for _ in self)


class Running:
    """Running jobs that may be ended at one moment, and the cost of their end.

    Args:
        turn: Turn of the engine.
        seating: Guaranteed admission of jobs in the match.
        jobs: Preemptible jobs that run and have no notice. Jobs whose idle GPUs may be returned are added.
    """

    def __init__(self, turn: Turn, seating: Admissions, jobs: Mapping[JobId, Job]) -> None:
        self._turn, self._seating = turn, seating
        self.idle = returnable(turn)
        self.jobs = {**jobs, **self.idle}
        self._restart_ms = round(turn.settings.queue.restart_s * 1000)
        self._leaves: dict[str, _Leaf] = {}
        self._runners: dict[JobId, RunningJob] = {}
        self._victims: dict[JobId, Victim | None] = {}

    @cached_property
    def by_leaf(self) -> Mapping[str, list[Job]]:
        """Running jobs of each leaf, in the order of their tasks."""
        leaves: dict[str, list[Job]] = {}
        for job in self.jobs.values():
            leaves.setdefault(leaf_of(self._seating.tree, job), []).append(job)
        return leaves

    @cached_property
    def lowest_priority(self) -> int:
        """Lowest priority of a running job; the highest possible priority if no job runs."""
        return min((job.priority for job in self.jobs.values()), default=HIGHEST_PRIORITY)

    def every(self) -> Mapping[JobId, Victim]:
        """Return all jobs as victims."""
        return Victims(self.jobs, self._victims, lambda job: self.runner(job).victim)

    def runner(self, job: Job) -> RunningJob:
        """Return a running job with the cost of its end, computed on first use."""
        runner = self._runners.get(job.id)
        if runner is None:
            leaf = leaf_of(self._seating.tree, job)
            of_leaf = self._leaf(leaf)
            (pool, milli), job_ran = of_leaf.granted[job.id], of_leaf.ran[job.id]
            runner = self._runners[job.id] = RunningJob(
                job,
                leaf,
                pool,
                milli * job.spec.tasks,
                Victim(job.id, _IDLE_PRIORITY, 0)
                if job.id in self.idle
                else Victim(job.id, job.priority, cost(job_ran, of_leaf.least_ms, self._restart_ms)),
                job_ran,
                of_leaf.least_ms,
                inf if job.started_at is None else job.started_at,
            )
        return runner

    def runner_of(self, job_id: JobId) -> RunningJob:
        """Return a running job whose cost was computed before, even if a plan has removed it.

        Raises:
            KeyError: The job was never looked up as a victim.
        """
        return self._runners[job_id]

    def _leaf(self, path: str) -> _Leaf:
        """Return the running jobs of a leaf, computed on first use."""
        leaf = self._leaves.get(path)
        if leaf is None:
            jobs, now = self.by_leaf[path], self._turn.now
            granted = {job.id: self._seating.ground.granted(job) for job in jobs}
            job_ran = {job.id: _ran(job, granted[job.id][1] * job.spec.tasks, now) for job in jobs}
            leaf = self._leaves[path] = _Leaf(granted, job_ran, least_ms([*job_ran.values()]))
        return leaf

    def cost_at(self, runner: RunningJob, at: float) -> int:
        """Return the cost of ending a job at an earlier moment, in thousandths of cost times seconds.

        Args:
            runner: The running job.
            at: Seconds since the epoch; of a moment before its start, that of its start.
        """
        then = _ran(runner.job, runner.milli, max(at, min(runner.started_at, self._turn.now)))
        return cost(then, min(runner.least_ms, then.since_start_ms), self._restart_ms)

    def lost_gpu_h(self, job_id: JobId) -> float:
        """Return the work that is lost by the end of a job, in GPU hours."""
        runner = self._runners[job_id]
        return lost_milli_s(runner.ran, runner.least_ms, self._restart_ms) / _MILLI_S_PER_H

    def remove(self, victims: Iterable[Victim]) -> None:
        """Remove jobs that a plan ends, so that no other plan counts on their GPUs."""
        for victim in victims:
            del self.jobs[victim.job_id]
