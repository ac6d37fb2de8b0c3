"""Bookings as jobs meet them: which of them a job may use, what it waits for, and who holds what is booked."""

from collections.abc import Iterator

from mesos_gpu.engine.state import State
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.jobs.job import Job, JobState


def booking_called(state: State, name: str) -> Booking | None:
    """The booking of that id; else the one of that name that has not ended; None: there is none."""
    known = state.bookings.get(name)
    if known is not None:
        return known
    return next(
        (each for each in state.bookings.values() if each.spec.name == name and not each.state.ended), None
    )


def may_use(booking: Booking, job: Job) -> bool:
    """Whether a job may run on what is booked: it asks for that booking, or for none and is of its queue and users."""
    if job.spec.booking is not None and not booking.is_called(job.spec.booking):
        return False
    return booking.spec.is_for(job.spec.queue, job.charged_to) and not job.spec.is_share


def named_jobs(state: State, booking: Booking) -> list[Job]:
    """The jobs that have not ended and ask for a booking by its name."""
    every = state.jobs.values()
    return [
        job
        for job in every
        if job.spec.booking and not job.state.ended and booking.is_called(job.spec.booking)
    ]


def users_of(state: State, booking: Booking) -> Iterator[Job]:
    """The jobs that hold GPUs of a booking, and may: each once."""
    seen: set[str] = set()
    for gpu in booking.gpus:
        task = state.holder(gpu)
        job = None if task is None else state.current(task)
        if (
            job is not None
            and job.id not in seen
            and job.state is not JobState.PENDING
            and may_use(booking, job)
        ):
            seen.add(job.id)
            yield job
