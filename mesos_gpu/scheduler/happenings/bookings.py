"""Events of bookings, derived from two successive states of a booking."""

from mesos_gpu.model.bookings.booking import Booking, BookingState
from mesos_gpu.model.tasks.event import EventKind, LogEvent

_ENDS = {
    BookingState.OVER: EventKind.BOOKING_ENDED,
    BookingState.RETURNED: EventKind.BOOKING_RETURNED,
    BookingState.FAILED: EventKind.BOOKING_FAILED,
    BookingState.CANCELLED: EventKind.BOOKING_CANCELLED,
}


def happened_to(old: Booking | None, new: Booking) -> list[LogEvent]:
    """Return the events of a booking's change, without numbers yet; empty if nothing is worth an event."""
    kind = _kind(old, new)
    if kind is None:
        return []
    text = f"booking {new.spec.name} ({new.spec.words}): {new.message}"
    event = LogEvent(
        0, 0.0, kind, owner=new.by, user=new.by, queue=new.spec.queue, message=text, state=new.state.value,
        booking=new.id,
    )  # fmt: skip
    return [event]


def _kind(old: Booking | None, new: Booking) -> EventKind | None:
    """Return the kind of event for a change of a booking; None if it is worth no event."""
    if old is None:
        return EventKind.BOOKING_MADE
    if new.state.ended:
        return None if old.state.ended else _ENDS[new.state]
    if old.spec != new.spec:
        return EventKind.BOOKING_MOVED
    if old.day != new.day and new.last is not None:
        return _ENDS[new.last]
    if new.told and not old.told:
        return EventKind.BOOKING_SHORT
    if new.is_active and not old.is_active:
        return EventKind.BOOKING_STARTED
    if new.places and old.places != new.places:
        return EventKind.BOOKING_REPLACED if old.places or old.told else EventKind.BOOKING_CHOSEN
    return None
