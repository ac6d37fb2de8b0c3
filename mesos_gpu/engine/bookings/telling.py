"""Who is told to end for a booking, or at its end, and who goes on after all."""

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

SLACK_S: Final = 2.0  # so late may a match be


def tell_at(turn: Turn, booking: Booking, job: Job) -> float:
    """When a job is to be told, so that it has ended when a booking begins."""
    return booking.begins - lead_of(turn.state, turn.settings, job)


def tell_end_at(turn: Turn, booking: Booking, job: Job) -> float:
    """When a job that runs on a booking is to be told, so that it has ended when that ends; infinite: it goes on."""
    return inf if goes_on(booking, job) else booking.ends - lead_of(turn.state, turn.settings, job)


def on_places(turn: Turn, booking: Booking, places: Collection[Place]) -> dict[JobId, Job]:
    """The jobs that hold GPUs at some places, may not use the booking, and are not sure to end before it begins."""
    held = others_on(turn.state, booking, [gpu for place in places for gpu in place.gpus])
    return {job.id: job for job in held if ends_by_limit(turn.state, turn.now, job) > booking.begins}


def goes_on(booking: Booking, job: Job) -> bool:
    """Whether a job goes on after the end of a booking, as one that borrows."""
    return booking.spec.overrun and job.spec.preemptible and job.spec.booking is None


def is_told(turn: Turn, job: Job) -> bool:
    """Whether a job knows that it ends for a booking, or at the end of one."""
    standing = notices.stands(turn, job)
    return standing is not None and standing.reason is NoticeReason.CALENDAR


def call_off(turn: Turn, jobs: Iterable[Job], why: str) -> None:
    """Let those of some jobs go on that were told to end for a booking, and that no booking needs to end now.

    Args:
        turn: The step. Its bookings are as they are from now on.
        jobs: Who may have been told for what has changed.
        why: What has changed, in words.
    """
    for job in jobs:
        if is_told(turn, job) and _may_go_on(turn, job):
            notices.recall(turn, job, why, of=(NoticeReason.CALENDAR,))


def _may_go_on(turn: Turn, job: Job) -> bool:
    named = None if job.spec.booking is None else booking_called(turn.state, job.spec.booking)
    if job.spec.booking is not None and (named is None or not named.is_active):
        return False  # it runs on that booking alone
    return not any(_ends_for(turn, booking, job) for booking in unfinished(turn.state))


def _ends_for(turn: Turn, booking: Booking, job: Job) -> bool:
    """Whether a booking has a job end now: for its begin, or with it."""
    if job in jobs_of(turn.state, booking):
        return booking.is_active and turn.now >= tell_end_at(turn, booking, job)
    if job.id not in on_places(turn, booking, booking.places):
        return False
    return turn.now >= tell_at(turn, booking, job) - SLACK_S
