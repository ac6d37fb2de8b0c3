"""Least attained service: jobs that have had less GPU time go first, and running jobs give way to them. Pure.

Service is GPU time, in thousandths of GPUs times milliseconds: whole numbers, so that every sum is exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.served import UNSERVED, Served
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.task import Task

HOUR_MS: Final = 3_600_000
Rank = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """Levels of attained service: at `first_ms` * `factor`^n of GPU time a job goes one level down.

    Attributes:
        first_ms: GPU time, in milliseconds, at which the first level ends.
        factor: Ratio of the ends of successive levels.
        small_first: Whether, within a level, jobs with fewer GPUs go first (that frees GPUs for others sooner);
            otherwise jobs go in order of submission.
        lift_after_ms: Uninterrupted waiting after which a job's service is reset and it goes before all others; None
            for never.
    """

    first_ms: int
    factor: int
    small_first: bool = False
    lift_after_ms: int | None = None

    def level(self, service: int) -> tuple[int, int]:
        """Return the level of a service, from 0, and the service at which that level ends."""
        level, until = 0, self.first_ms * WHOLE
        while service >= until:
            level, until = level + 1, until * self.factor
        return level, until

    def rank_of(self, service: int, milli: int, *, lifted: bool) -> Rank:
        """Return the rank of a job; the lowest goes first.

        Args:
            service: Attained service of the job.
            milli: Thousandths of GPUs that the job requests.
            lifted: Whether the job's service was reset after a long wait.
        """
        level, _ = self.level(service)
        if lifted and level == 0:
            return (-1,)
        return (level, milli if self.small_first else 0)


#: Levels of queues with `order: las`, and of `simulate jobs --policy mesos-gpu`.
STEPS: Final = Steps(HOUR_MS, 8, small_first=True, lift_after_ms=30 * 24 * HOUR_MS)


def waits_since(job: Job) -> float:
    """Return the start of a pending job's current wait, in seconds since the epoch."""
    starts = (job.served.waits_since if job.served else None, job.in_line_since)
    return next((at for at in starts if at is not None), job.submitted_at)


def is_due(job: Job, now: float, steps: Steps = STEPS) -> bool:
    """Return whether a pending job has waited so long that its attained service is reset."""
    if job.state is not JobState.PENDING or steps.lift_after_ms is None:
        return False
    return (now - waits_since(job)) * 1000 >= steps.lift_after_ms


def service_of(members: Iterable[Task], milli: int, now: float) -> int:
    """Return the service of one launch up to now; each task counts as `milli` thousandths of GPUs."""
    ran_ms = sum(
        max(
            round((now if task.ended_at is None else task.ended_at) * 1000) - round(task.started_at * 1000), 0
        )
        for task in members
        if task.started_at is not None
    )
    return ran_ms * milli


def rank_of(job: Job, members: Iterable[Task], now: float, steps: Steps = STEPS) -> Rank:
    """Return the rank of a job in its queue; the lowest goes first.

    Args:
        job: Waiting or running job.
        members: Tasks of its launch; ignored for a waiting job.
        now: Seconds since the epoch.
        steps: Levels of service.
    """
    served, milli = job.served or UNSERVED, job.spec.gpu_milli_in_all
    if job.state is JobState.PENDING:
        due = is_due(job, now, steps)
        rank = steps.rank_of(0 if due else served.milli_ms, milli, lifted=due or served.lifted)
    else:
        service = served.milli_ms + service_of(members, job.spec.counted_milli, now)
        rank = steps.rank_of(service, milli, lifted=served.lifted)
    return (min(rank[0], 0), -job.priority, *rank)


def moves_at(job: Job, members: Iterable[Task], now: float, steps: Steps = STEPS) -> float:
    """Return the time just after a running job reaches its next level, in seconds since the epoch."""
    service = (job.served or UNSERVED).milli_ms + service_of(members, job.spec.counted_milli, now)
    left = steps.level(service)[1] - service
    return now + (-(-left // max(job.spec.gpu_milli_in_all, 1)) + 1) / 1000


def at_launch(job: Job, now: float, steps: Steps = STEPS) -> Served | None:
    """Return the service record of a job that starts: a reset one if it has waited long enough, else its own."""
    return Served(lifted=True) if is_due(job, now, steps) else job.served


def at_end(job: Job, members: Iterable[Task], now: float) -> Served | None:
    """Return the service record of a job that returns to its queue after a launch; None if it requests no GPUs."""
    if not job.spec.gpus:
        return None
    served = job.served or UNSERVED
    service = service_of(members, job.spec.counted_milli, now)
    return Served(served.milli_ms + service, now, served.lifted)


def in_rank(jobs: Iterable[Job], now: float, steps: Steps = STEPS) -> list[Job]:
    """Return the waiting jobs of one queue in order of their rank."""

    def place(job: Job) -> tuple[Rank, float, int]:
        return rank_of(job, (), now, steps), job.submitted_at, job.sequence

    return sorted(jobs, key=place)


def moved(ordered: Sequence[Job], leaves: Mapping[JobId, str], now: float) -> list[Job]:
    """Return a queue order in which the jobs of some queues are rearranged by attained service.

    Each such queue keeps its positions in the order; only its jobs change places among them.

    Args:
        ordered: Jobs of many queues, in order.
        leaves: Queue of each job whose queue has this order.
        now: Seconds since the epoch.
    """
    by_queue: dict[str, list[Job]] = {}
    for job in ordered:
        if job.id in leaves:
            by_queue.setdefault(leaves[job.id], []).append(job)
    turns = {queue: iter(in_rank(jobs, now)) for queue, jobs in by_queue.items()}
    return [next(turns[leaves[job.id]]) if job.id in leaves else job for job in ordered]
