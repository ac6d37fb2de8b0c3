"""End of a booking's current time, and of bookings for good."""

from dataclasses import replace

from mesos_gpu.engine.arrays.making import kill_left
from mesos_gpu.engine.bookings.notices import call_off, goes_on
from mesos_gpu.engine.bookings.using import charge, idle_gpu_ms
from mesos_gpu.engine.calendar.booked import jobs_of, named_jobs, others_on
from mesos_gpu.engine.tasks.evictions import end_for_good
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking, BookingState
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.policy.calendar.local_times import shown, time_after


def end_booking(
    turn: Turn, booking: Booking, outcome: BookingState, why: str, *, for_good: bool = False
) -> None:
    """End the current time of a booking; a repeated booking goes on with its next time.

    Args:
        turn: Turn of the engine.
        booking: Booking that has not ended.
        outcome: State in which its current time ends.
        why: Outcome in words.
        for_good: Whether it is not repeated any more.
    """
    words = f"booking {booking.spec.name} has ended: {why}"
    if booking.is_active:
        give_notices(turn, booking, words)
        charge(turn, booking)
    after = None if for_good else time_after(booking.spec, booking.day, turn.now)
    if after is not None:
        again = shown(after.begins, booking.spec.zone)
        renewed = booking.renewed(after.day, after.begins, after.ends)
        turn.put(replace(renewed, last=outcome, message=f"{why}; it begins again {again}"))
    else:
        idle = idle_gpu_ms(booking, turn.now)
        turn.put(
            replace(
                booking, state=outcome, places=(), message=why, ended_at=turn.now, last=outcome, idle_gpu_ms=idle,
                counted_at=0.0, used_gpus=0,
            )
        )  # fmt: skip
        _end_named(turn, booking, f"its {words}")
    call_off(turn, others_on(turn.state, booking, booking.gpus), words)
    turn.state.calendar.provisional = None
    turn.state.match.unmatched = True


def _end_named(turn: Turn, booking: Booking, why: str) -> None:
    """End the jobs and arrays that wait for a booking that has ended for good."""
    for array in list(turn.state.work.arrays.values()):
        if array.spec.booking and array.left and booking.is_called(array.spec.booking):
            kill_left(turn, array, array.left)
    for job in named_jobs(turn.state, booking):
        if job.state is JobState.PENDING:
            end_for_good(turn, job, why, unlaunched=why)


def give_notices(turn: Turn, booking: Booking, why: str) -> None:
    """Give notice to the jobs of a booking that do not go on after its end.

    Jobs that ask for the booking by its name get it also on nodes that were replaced meanwhile.
    """
    running = [job for job in named_jobs(turn.state, booking) if job.state is not JobState.PENDING]
    for job in {job.id: job for job in (*jobs_of(turn.state, booking), *running)}.values():
        if not goes_on(booking, job):
            notices.give(turn, job, NoticeReason.CALENDAR, why)
