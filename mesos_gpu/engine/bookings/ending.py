"""The end of a booking's time, and of bookings."""

from dataclasses import replace

from mesos_gpu.engine.calendar.booked import named_jobs, users_of
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
    """End the current time of a booking; one that is repeated goes on with its next time.

    Args:
        turn: The step.
        booking: It.
        outcome: How its time went.
        why: The same, in words.
        for_good: Whether it is not repeated any more.
    """
    if booking.is_active and outcome is BookingState.CANCELLED:
        tell_jobs(turn, booking, f"booking {booking.spec.name} was cancelled")
    after = None if for_good else time_after(booking.spec, booking.day, turn.now)
    if after is None:
        over = replace(booking, state=outcome, places=(), message=why, ended_at=turn.now, last=outcome)
        turn.put(over)
        for job in named_jobs(turn.state, booking):
            if job.state is JobState.PENDING:
                words = f"its booking {booking.spec.name} has ended: {why}"
                end_for_good(turn, job, words, unlaunched=words)
    else:
        again = shown(after.begins, booking.spec.zone)
        turn.put(
            replace(
                booking,
                day=after.day,
                begins=after.begins,
                ends=after.ends,
                state=BookingState.BOOKED,
                places=(),
                used_at=None,
                told=False,
                last=outcome,
                message=f"{why}; it begins again {again}",
            )
        )
    turn.state.provisional = None
    turn.state.unmatched = True


def tell_jobs(turn: Turn, booking: Booking, why: str, *, left_s: float | None = None) -> None:
    """Give what runs on a booking its notice, unless it goes on as one that borrows."""
    for job in users_of(turn.state, booking):
        if not (booking.spec.overrun and job.spec.preemptible):
            notices.give(turn, job, NoticeReason.CALENDAR, why, notice_s=left_s)
