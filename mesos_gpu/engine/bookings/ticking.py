"""Begins and ends of bookings by the clock, with the notices of jobs that run on their nodes."""

from typing import Final

from mesos_gpu.engine.bookings.beginning import begin, is_to_begin
from mesos_gpu.engine.bookings.ending import end_booking
from mesos_gpu.engine.bookings.notices import SLACK_S, end_notice_at, has_notice, notice_at, on_places
from mesos_gpu.engine.bookings.using import count_used, purged_at
from mesos_gpu.engine.calendar.booked import jobs_of, unfinished
from mesos_gpu.engine.calendar.leads import notice_of
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import DAY_S, Booking, BookingState
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.notice import NoticeReason

_KEPT_S: Final = 30 * DAY_S  # time for which ended bookings are kept


def on_tick(turn: Turn) -> None:
    """Begin and end bookings that are due; nothing is examined before the known time of the next change."""
    state = turn.state
    provisional = state.calendar.provisional
    if not state.calendar.bookings or (provisional is not None and turn.now < provisional.next_at):
        return
    for booking in unfinished(state):
        _look(turn, booking)
    for booking in list(state.calendar.bookings.values()):
        if booking.ended_at is not None and turn.now - booking.ended_at > _KEPT_S:
            turn.drop(Booking, booking.id)


def _look(turn: Turn, booking: Booking) -> None:
    """Begin, follow or end one booking."""
    if not booking.is_active and turn.now >= booking.ends:
        end_booking(turn, booking, BookingState.FAILED, "no scheduler ran during its time")
        return
    if is_to_begin(turn, booking):
        _begin(turn, booking)
    elif booking.is_active:
        _look_at_active(turn, count_used(turn, booking))
    elif booking.state is BookingState.PREPARING:
        _make_room(turn, booking)


def _begin(turn: Turn, booking: Booking) -> None:
    """Have the next match choose the nodes of a booking; if no match is possible it begins without nodes."""
    state = turn.state
    if not state.mesos.connected or state.mesos.doubtful:
        begin(turn, booking)
        state.calendar.provisional = None
    state.match.unmatched = True


def _make_room(turn: Turn, booking: Booking) -> None:
    """Give notice to the jobs on the nodes of a booking, each by its notice time before the begin."""
    for job in on_places(turn, booking, booking.places).values():
        if job.spec.preemptible and turn.now >= notice_at(turn, booking, job):
            left_s = _left_s(turn, job, booking.begins)
            _give_notice(turn, job, f"booking {booking.spec.name} begins", left_s)


def _look_at_active(turn: Turn, booking: Booking) -> None:
    """Give notice to jobs that may not use an active booking, and end it when it is over or unused."""
    spec = booking.spec
    for job in on_places(turn, booking, booking.places).values():
        if job.spec.preemptible:  # it started before its node was chosen for the booking
            _give_notice(turn, job, f"booking {spec.name} has begun", None)
    if turn.now >= booking.ends:
        never = booking.used_at is None and not booking.used_gpus
        outcome = BookingState.RETURNED if never else BookingState.OVER
        if not booking.places:
            outcome = BookingState.FAILED
        end_booking(turn, booking, outcome, _WHY[outcome])
        return
    purge_at = purged_at(turn, booking)
    if purge_at is not None and turn.now >= purge_at:
        why = f"no job used it for {spec.purge_after_s} s, so it was given back"
        end_booking(turn, booking, BookingState.RETURNED, why)
        return
    for job in jobs_of(turn.state, booking):
        if turn.now >= end_notice_at(turn, booking, job):
            _give_notice(turn, job, f"booking {spec.name} ends", _left_s(turn, job, booking.ends))


def _left_s(turn: Turn, job: Job, moment: float) -> float:
    """Return the seconds from now to SIGTERM by which a job has ended at a moment.

    A job that gets notice too late for that, because the booking was created or moved late, gets its whole notice
    time.
    """
    left_s = max(moment - job.spec.kill_grace_s - turn.now, 0.0)
    owed_s = notice_of(turn.state, turn.settings, job)
    return left_s if left_s >= owed_s - SLACK_S else owed_s


def _give_notice(turn: Turn, job: Job, why: str, left_s: float | None) -> None:
    """Give a job notice for a booking, unless it has one already."""
    if not has_notice(turn, job):
        notices.give(turn, turn.state.work.jobs[job.id], NoticeReason.CALENDAR, why, notice_s=left_s)


_WHY: Final = {
    BookingState.OVER: "its time is over",
    BookingState.RETURNED: "its time is over, and no job used it",
    BookingState.FAILED: "its time is over, and there were no nodes for it",
}
