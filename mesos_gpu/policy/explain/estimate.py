"""Estimated start of a job, as a time and as text. Pure."""

from collections.abc import Iterable, Sequence
from math import inf
from statistics import median
from typing import Final

from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.words import counted
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, Reservation

_NEVER: Final = (
    "no node would have room even if all jobs there ended: GPUs that are sick, drained or reserved for other jobs"
    " do not count"
)


class RunTimes:
    """Run times of finished jobs of the same app, or else of the same name.

    Args:
        jobs: Jobs of any state; only finished ones count, as a failed one says little about how long the work takes.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._of: dict[str, list[float]] = {}
        for job in jobs:
            if job.state is JobState.FINISHED and job.started_at is not None and job.ended_at is not None:
                for group in _groups(job):
                    self._of.setdefault(group, []).append(job.ended_at - job.started_at)

    def median_of(self, job: Job) -> tuple[float, str] | None:
        """Return the median run time in seconds, with its source as text; None if no such job has finished."""
        group = next((group for group in _groups(job) if group in self._of), None)
        if group is None:
            return None
        times = self._of[group]
        middle, count = median(times), len(times)
        jobs = f"{count} finished jobs" if count > 1 else "the one finished job"
        return (
            middle,
            f"{'the median of ' if count > 1 else ''}{jobs} {group} is {span(middle)}",
        )


def _groups(job: Job) -> list[str]:
    """Return the groups whose run times apply to a job, as text, the closest first."""
    return [*([f"of app {job.spec.app}"] if job.spec.app else []), f"named {job.spec.name}"]


def estimate_of(job: Job, reservation: Reservation | None, *, beyond: str = "", now: float) -> Estimate:
    """Return the estimate that a reservation implies.

    Args:
        job: Job that is pending.
        reservation: Reservation with the earliest known start; None if the job can never start.
        beyond: Description of a limit that never lets it start; "" without such a limit.
        now: Seconds since the epoch.
    """
    if job.not_before > now:
        return Estimate(job.not_before, "its next attempt begins then")
    if reservation is None:
        return Estimate(None, beyond or _NEVER)
    if not reservation.awaited:
        return Estimate(reservation.at, f"what it needs is free on {reservation.hostname}")
    last = reservation.awaited[-1]
    if reservation.at == ENDLESS:
        return Estimate(None, f"the end of {_named(last)}{_on(reservation)} is unknown: {_unknown(last)}")
    return Estimate(reservation.at, f"{_ran(last, now)}{_on(reservation)}; {_then(job, reservation)}")


def after(first: Sequence[Reservation], timeouts_s: Sequence[float | None], now: float) -> Estimate:
    """Return the estimate of a job that can start only after the jobs for which its node is reserved have run.

    Args:
        first: Reservations of that node; at least one.
        timeouts_s: Time limit of each reservation's job; None without a limit.
        now: Seconds since the epoch.
    """
    ends = [r.at + (ENDLESS if limit is None else limit) for r, limit in zip(first, timeouts_s, strict=True)]
    last = max(range(len(first)), key=ends.__getitem__)
    reservation = first[last]
    if reservation.booking:
        return Estimate(None, f"{reservation.hostname} is {reservation.words}")
    reason = f"{reservation.hostname} is kept for job {reservation.job_id}"
    if ends[last] == ENDLESS:
        return Estimate(None, f"{reason}, whose end is unknown")
    starts, lasts = span(first[last].at - now), span(timeouts_s[last] or 0.0)
    return Estimate(ends[last], f"{reason}, which starts in {starts} and has a timeout_s of {lasts}")


def _on(reservation: Reservation) -> str:
    return f" on {reservation.hostname}" if reservation.hostname else ""


def _named(allocation: Allocation) -> str:
    """Return the holder of an allocation as text."""
    return f"job {allocation.job_id}" if allocation.job_id else "a node monitor"


def _unknown(allocation: Allocation) -> str:
    """Return why the end of an allocation is unknown."""
    if allocation.job_id is None:
        return "it runs as long as its node"
    return "it has no timeout_s, and no finished job of its app or name ran so long"


def _ran(allocation: Allocation, now: float) -> str:
    """Return how long an allocation has run, and how long it is expected to, as text."""
    if allocation.lasts_s is None:
        return f"{_named(allocation)} is being ended"
    so_far = f"{_named(allocation)} has run {span(now - allocation.since)}"
    if allocation.learnt:
        return f"{so_far}, and {allocation.learnt},"
    return f"{so_far} of its timeout_s {span(allocation.lasts_s)}"


def _then(job: Job, reservation: Reservation) -> str:
    """Return the capacity for the job once the awaited allocations have ended, as text."""
    gpus = gpus_of(job.spec.gpus)
    if reservation.agent_id is None:
        tight = min(reservation.spares, key=lambda spare: spare.milli, default=None)
        queue = reservation.queue if tight is None else tight.queue
        return f"then queue {queue} may hold {gpus_of(number_of(job.spec.gpu_milli_in_all))} more"
    if job.spec.tasks > 1:
        return f"then there is room for all its {job.spec.tasks} tasks"
    if job.spec.is_share:
        return f"then its share of {gpus} is free there"
    return (
        f"then {gpus} are free there"
        if job.spec.gpus > 1
        else ("then a GPU is free there" if job.spec.gpus else "then there is room for it")
    )


def gpus_of(count: float) -> str:
    """Return a number of GPUs as text: 1 GPU, 2 GPUs, 0.25 GPUs."""
    return counted(count, "GPU")


def span(seconds: float) -> str:
    """Return a time span as text: 40s, 3m, 2h05m."""
    if seconds == inf:
        return "for ever"
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    return f"{minutes}m" if minutes < 120 else f"{minutes // 60}h{minutes % 60:02}m"
