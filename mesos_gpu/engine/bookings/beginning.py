"""Begin of a booking's time, and messages about its begin and the nodes that it lacks."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine.bookings.using import count_used
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking, BookingState
from mesos_gpu.policy.calendar.local_times import shown

_OFFERS_S: Final = 2.0  # time after a subscription in which Mesos offers free resources


def offered_at(turn: Turn) -> float | None:
    """Return when all free resources will have been offered, in seconds since the epoch; None if they are by now.

    They count as offered if the clock was set back after the subscription.
    """
    since = turn.state.mesos.registered_at
    return since + _OFFERS_S if since <= turn.now < since + _OFFERS_S else None


def is_to_begin(turn: Turn, booking: Booking) -> bool:
    """Return whether a booking is not active although its time has come."""
    return not booking.is_active and booking.begins <= turn.now < booking.ends


def begin(turn: Turn, booking: Booking) -> Booking:
    """Activate a booking with the nodes that it has.

    If its message does not mention missing nodes, it is not known yet whether any are missing.
    """
    lacks = lacking_words(booking)
    then = lacks if booking.told or not lacks else "its nodes are chosen as soon as Mesos offers any"
    message = "; ".join(filter(None, (lasts_words(booking), then)))
    begun = replace(booking, state=BookingState.ACTIVE, message=message)
    turn.put(begun)
    return count_used(turn, begun)


def lasts_words(booking: Booking) -> str:
    """Return the end of a booking that has begun, in words."""
    return f"it has begun, and lasts until {shown(booking.ends, booking.spec.zone)}"


def lacking_words(booking: Booking) -> str:
    """Return the number of nodes that a booking lacks, in words; "" if it lacks none."""
    of = booking.spec.nodes
    lacks = of - len(booking.places)
    if not lacks:
        return ""
    return (
        "its node is lacking"
        if of == 1
        else f"{lacks} of its {of} nodes {'is' if lacks == 1 else 'are'} lacking"
    )
