"""Notices of bookings to jobs: before a booking begins on their GPUs, and before it ends."""

from collections.abc import Collection, Iterable
from math import inf
from typing import Final

from mesos_gpu.engine.calendar.booked import booking_called, jobs_of, others_on, unfinished
from mesos_gpu.engine.calendar.leads import ends_by_limit, lead_of
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking, Place
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.notice import NoticeReason

SLACK_S: Final = 2.0  # greatest delay of a match


def notice_at(turn: Turn, booking: Booking, job: Job) -> float:
    """Return when a job gets notice so that it has ended when a booking begins, in seconds since the epoch."""
    return booking.begins - lead_of(turn.state, turn.settings, job)


def end_notice_at(turn: Turn, booking: Booking, job: Job) -> float:
    """Return when a job on a booking gets notice so that it ends with the booking, in seconds since the epoch.

    Infinity if the job goes on.
    """
    return inf if goes_on(booking, job) else booking.ends - lead_of(turn.state, turn.settings, job)


def on_places(turn: Turn, booking: Booking, places: Collection[Place]) -> dict[JobId, Job]:
    """Return the jobs that hold GPUs of some places, may not use the booking, and may not have ended at its begin."""
    held = others_on(turn.state, booking, [gpu for place in places for gpu in place.gpus])
    return {job.id: job for job in held if ends_by_limit(turn.state, turn.now, job) > booking.begins}


def goes_on(booking: Booking, job: Job) -> bool:
    """Return whether a job goes on after the end of a booking, as a borrower."""
    return booking.spec.overrun and job.spec.preemptible and job.spec.booking is None


def has_notice(turn: Turn, job: Job) -> bool:
    """Return whether a job has a standing notice for the begin or end of a booking."""
    standing = notices.stands(turn.state, job)
    return standing is not None and standing.reason is NoticeReason.CALENDAR


def call_off(turn: Turn, jobs: Iterable[Job], why: str) -> None:
    """Recall the notices of jobs that no booking needs to end any more.

    Args:
        turn: Turn of the engine, in which the booking has changed already.
        jobs: Jobs that may have a notice because of the changed booking.
        why: Change of the booking, in words.
    """
    for job in jobs:
        if has_notice(turn, job) and _may_go_on(turn, job):
            notices.recall(turn, job, why, of=(NoticeReason.CALENDAR,))


def _may_go_on(turn: Turn, job: Job) -> bool:
    """Return whether no booking needs the end of a job any more."""
    named = None if job.spec.booking is None else booking_called(turn.state, job.spec.booking)
    if job.spec.booking is not None and (named is None or not named.is_active):
        return False  # it runs on that booking alone
    return not any(_ends_for(turn, booking, job) for booking in unfinished(turn.state))


def _ends_for(turn: Turn, booking: Booking, job: Job) -> bool:
    """Return whether a booking needs the end of a job now, for its begin or with its end."""
    if job in jobs_of(turn.state, booking):
        return booking.is_active and turn.now >= end_notice_at(turn, booking, job)
    if job.id not in on_places(turn, booking, booking.places):
        return False
    return turn.now >= notice_at(turn, booking, job) - SLACK_S
