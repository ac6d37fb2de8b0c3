"""Least attained service: who has had less goes first, and who runs gives way to who has had less. Pure.

Service is GPU time, in thousandths of GPUs times milliseconds: whole numbers, which every reader adds up alike.
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
    """Levels of service: at `first_ms` * `factor`^n of GPU time a job goes one level down.

    Within a level first come, first served, or, with `small_first`, who asks for fewer GPUs: of two jobs of which
    nothing else is known, that frees more for others sooner.
    """

    first_ms: int
    factor: int
    small_first: bool = False
    lift_after_ms: int | None = (
        None  # who waits so long at a stretch starts anew, before all others; None: nobody
    )

    def level(self, service: int) -> tuple[int, int]:
        """The level, from 0, and the service at which it ends."""
        level, until = 0, self.first_ms * WHOLE
        while service >= until:
            level, until = level + 1, until * self.factor
        return level, until

    def rank_of(self, service: int, milli: int, *, lifted: bool) -> Rank:
        """The lowest goes first. `milli`: thousandths of GPUs that it asks for."""
        level, _ = self.level(service)
        if lifted and level == 0:
            return (-1,)
        return (level, milli if self.small_first else 0)


#: Those of a queue with `order: las`, and of `simulate jobs --policy mesos-gpu`.
STEPS: Final = Steps(HOUR_MS, 8, small_first=True, lift_after_ms=30 * 24 * HOUR_MS)


def waits_since(job: Job) -> float:
    """Since when a job that is pending waits at a stretch, seconds since the epoch."""
    known = (job.served.waits_since if job.served else None, job.in_line_since)
    return next((at for at in known if at is not None), job.submitted_at)


def is_due(job: Job, now: float, steps: Steps = STEPS) -> bool:
    """Whether a job has waited so long that it starts anew."""
    if job.state is not JobState.PENDING or steps.lift_after_ms is None:
        return False
    return (now - waits_since(job)) * 1000 >= steps.lift_after_ms


def service_of(members: Iterable[Task], milli: int, now: float) -> int:
    """What the tasks of one launch have had until now; each counts as so many thousandths of GPUs."""
    ran_ms = sum(
        max(
            round((now if task.ended_at is None else task.ended_at) * 1000) - round(task.started_at * 1000), 0
        )
        for task in members
        if task.started_at is not None
    )
    return ran_ms * milli


def rank_of(job: Job, members: Iterable[Task], now: float, steps: Steps = STEPS) -> Rank:
    """Where a job stands in its queue: the lowest goes first.

    Args:
        job: One that waits or runs.
        members: The tasks of its launch, of one that runs; of one that waits none count.
        now: Seconds since the epoch.
        steps: The levels.
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
    """When a job that runs reaches its next level, seconds since the epoch, a moment after it."""
    service = (job.served or UNSERVED).milli_ms + service_of(members, job.spec.counted_milli, now)
    left = steps.level(service)[1] - service
    return now + (-(-left // max(job.spec.gpu_milli_in_all, 1)) + 1) / 1000


def at_launch(job: Job, now: float, steps: Steps = STEPS) -> Served | None:
    """What is kept of a job that starts: all, or that it starts anew."""
    return Served(lifted=True) if is_due(job, now, steps) else job.served


def at_end(job: Job, members: Iterable[Task], now: float) -> Served | None:
    """What is kept of a job whose launch has ended, and that goes back to its queue; None: it holds no GPUs."""
    if not job.spec.gpus:
        return None
    served = job.served or UNSERVED
    service = service_of(members, job.spec.counted_milli, now)
    return Served(served.milli_ms + service, now, served.lifted)


def in_rank(jobs: Iterable[Job], now: float, steps: Steps = STEPS) -> list[Job]:
    """Jobs that wait in one queue, the first to be tried first."""

    def place(job: Job) -> tuple[Rank, float, int]:
        return rank_of(job, (), now, steps), job.submitted_at, job.sequence

    return sorted(jobs, key=place)


def moved(ordered: Sequence[Job], leaves: Mapping[JobId, str], now: float) -> list[Job]:
    """A line of jobs of many queues in which those of some stand by their service, at the places that those have.

    Args:
        ordered: The line.
        leaves: The queue of each job whose queue is in this order.
        now: Seconds since the epoch.
    """
    mine: dict[str, list[Job]] = {}
    for job in ordered:
        if job.id in leaves:
            mine.setdefault(leaves[job.id], []).append(job)
    turns = {queue: iter(in_rank(jobs, now)) for queue, jobs in mine.items()}
    return [next(turns[leaves[job.id]]) if job.id in leaves else job for job in ordered]
