"""Expected end of a running job, as far as it is known. It does not change the state."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.bookings.notices import goes_on
from mesos_gpu.engine.calendar.booked import may_use
from mesos_gpu.engine.calendar.leads import ends_by_limit
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.tasks.notice import ComingEnd, NoticeReason
from mesos_gpu.model.words import clock, lasting
from mesos_gpu.policy.calendar.local_times import shown
from mesos_gpu.policy.explain.why import state_words

_QUEUED: Final = "it is then queued again, and no attempt is used"
_OVER: Final = "it is then not started again"


def coming_end(state: State, now: float, job: Job) -> ComingEnd | None:
    """Return the first known end of a running job; None without one, or if the job is being ended already.

    Sources are standing notices, deadlines of drains, bookings of its GPUs, and its own time limit.

    Args:
        state: State of the engine.
        now: Time, in seconds since the epoch.
        job: Job of the state.
    """
    if job.state is JobState.PENDING or job.state.ended or job.kill_requested:
        return None
    if any(task.evicted and not task.ended for task in state.work.round_of(job)):
        return None
    return min(
        _ends(state, now, job), key=lambda end: end.at, default=None
    )  # the first of several at one time


def with_coming_end(answer: Why, end: ComingEnd | None, job: Job, now: float) -> Why:
    """Return an explanation of a running job with its expected end; an end for idle GPUs is in it already."""
    if end is None or end.reason is NoticeReason.IDLE:
        return answer
    # The message of a job with notice is about this end, as it was when the notice was given.
    before = state_words(job.state) if end.why in job.message else answer.summary
    left = f", in {lasting(end.at - now)}" if end.at > now else ""
    return replace(answer, summary=f"{before}; it ends by {clock(end.at, now)}{left}: {end.why}; {end.then}")


def _ends(state: State, now: float, job: Job) -> Iterator[ComingEnd]:
    """Yield the known ends of a running job."""
    notice = notices.stands(state, job)
    if notice is not None:
        then = _after_limit(job) if notice.reason is NoticeReason.TIME_LIMIT else _QUEUED
        yield ComingEnd(notice.until, notice.reason, notice.why, _OVER if notice.final else then)
    drained = notices.drain_end(state, job, state.cluster.drains)
    if drained is not None:
        yield ComingEnd(drained[0], NoticeReason.DRAIN, drained[1], _QUEUED)
    yield from _by_bookings(state, now, job)
    limit_s = job.spec.timeout_s
    started = [task.started_at for task in state.work.round_of(job) if task.started_at is not None]
    if limit_s is not None and started:
        why = f"its time limit of {limit_s:g} s ends"
        yield ComingEnd(min(started) + limit_s, NoticeReason.TIME_LIMIT, why, _after_limit(job))


def _by_bookings(state: State, now: float, job: Job) -> Iterator[ComingEnd]:
    """Yield the ends of a running job by bookings of its GPUs."""
    chosen = [booking for booking in state.calendar.bookings.values() if booking.state.has_nodes]
    held = {gpu for task in state.work.round_of(job) for gpu in task.gpus} if chosen else set()
    for booking in chosen:
        if held.isdisjoint(booking.gpus):
            continue
        if may_use(booking, job):
            if booking.is_active and not goes_on(booking, job):
                why = f"booking {booking.spec.name}, on which it runs, ends"
                yield ComingEnd(booking.ends, NoticeReason.CALENDAR, why, _QUEUED)
        elif (
            not booking.is_active and job.spec.preemptible and ends_by_limit(state, now, job) > booking.begins
        ):
            yield ComingEnd(booking.begins, NoticeReason.CALENDAR, _booked(booking), _QUEUED)


def _booked(booking: Booking) -> str:
    """Return the reason of an end for a booking of the job's GPUs."""
    spec = booking.spec
    begins = shown(booking.begins, spec.zone)
    return f"its GPUs are booked from {begins} ({spec.zone}) on for queue {spec.queue}, as {spec.name}"


def _after_limit(job: Job) -> str:
    """Return what follows the end of a time limit, which uses an attempt."""
    tried = job.attempts + 1
    return (
        f"attempt {tried + 1} of {job.spec.max_attempts} follows" if tried < job.spec.max_attempts else _OVER
    )
