"""Requests to make, move and cancel bookings: only a booking that fits is accepted."""

from dataclasses import replace
from math import inf
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.bookings.documents import faults_of
from mesos_gpu.engine.bookings.ending import end_booking
from mesos_gpu.engine.bookings.ground import booked_items, ground_of
from mesos_gpu.engine.bookings.notices import call_off
from mesos_gpu.engine.calendar.booked import booking_called, jobs_of, others_on, owner_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotAccepted, NotFound, TooMuch
from mesos_gpu.model.bookings.booking import (
    AHEAD_DAYS,
    MAX_BOOKINGS,
    Booking,
    BookingSpec,
    BookingState,
    Repeat,
)
from mesos_gpu.model.tenancy import ZONE, find_zone
from mesos_gpu.policy.calendar.book import (
    Item,
    clash,
    horizon,
    items_of,
    nearest,
    never,
    refusal,
    unknown_models,
)
from mesos_gpu.policy.calendar.local_times import Time, next_time, shown, times, written

_LIST: Final = "list the bookings with: mesos-gpu reserve list"
_MEND: Final = "see the bookings and the queues: mesos-gpu reserve list, mesos-gpu queue show"
_LATE_S: Final = 60  # age that the begin of a new booking may have, as requests take time


def on_made(turn: Turn, event: ev.BookingMade) -> None:
    """Create a booking.

    Raises:
        NotAccepted: It would fit at no time; the error lists all reasons.
        Conflict: Another booking has its name, or leaves no room; the error says when it would fit.
        TooMuch: `MAX_BOOKINGS` bookings have not ended.
    """
    if sum(not other.state.ended for other in turn.state.calendar.bookings.values()) >= MAX_BOOKINGS:
        raise TooMuch(f"{MAX_BOOKINGS} bookings have not ended, and no more may be made", remedy=_LIST)
    _refuse_name(turn.state, event.spec, event.id)
    spec, first = _checked(turn, event.id, event.spec)
    booking = Booking(event.id, spec, event.by, turn.now, first.day, first.begins, first.ends)
    put(turn, replace(booking, message=begins_words(booking)))


def on_changed(turn: Turn, event: ev.BookingChanged) -> None:
    """Change a booking; an active one keeps its nodes, and only its end and its rules may change.

    Raises:
        NotFound: The booking does not exist.
        NotAccepted, Conflict: See `on_made`; or the booking has ended, or has begun.
    """
    old = _known(turn.state, event.id)
    _refuse_name(turn.state, event.spec, event.id)
    if old.is_active:
        _change_active(turn, old, event.spec)
        return
    spec, first = _checked(turn, event.id, event.spec)
    now = replace(old, spec=spec).renewed(first.day, first.begins, first.ends)
    put(turn, replace(now, message=begins_words(now)))
    call_off(turn, others_on(turn.state, old, old.gpus), f"booking {spec.name} was moved")


def _change_active(turn: Turn, old: Booking, asked: BookingSpec) -> None:
    """Change an active booking.

    Raises:
        Conflict: The change concerns more than its end and its rules, or leaves no room for other bookings.
        NotAccepted: Its new end has passed.
    """
    free = ("lasts_s", "overrun", "users", "until", "purge_after_s", "charge", "name")
    if asked != replace(old.spec, **{name: getattr(asked, name) for name in free}):
        raise Conflict(
            f"booking {old.id} has begun: only its length, users and rules can be changed",
            remedy="cancel it and make a new one: mesos-gpu reserve cancel",
        )
    ends = old.begins + asked.lasts_s
    if ends <= turn.now:
        raise NotAccepted(
            [("/for_s", f"it has lasted longer than {asked.lasts_s} s")],
            remedy="cancel it: mesos-gpu reserve cancel",
        )
    now = replace(old, spec=asked, ends=ends)
    _refuse_taken(turn.state, now)
    own_items = [Item(old.id, asked, old.begins, ends, (), owner_of(turn.state, asked))]
    own_items += items_of(old.id, asked, turn.now, horizon(turn.now), owner=own_items[0].owner, after=old.day)
    misfit = clash(ground_of(turn.state), [*booked_items(turn.state, turn.now, old.id), *own_items], old.id)
    if misfit is not None:
        what, _ = refusal(misfit, asked.zone, ())
        raise Conflict(what, remedy=f"make it no longer than until then; {_LIST}")
    message = f"it lasts until {shown(ends, asked.zone)}"
    put(turn, replace(now, message=message))
    affected = (*jobs_of(turn.state, old), *others_on(turn.state, old, old.gpus))
    call_off(turn, affected, f"booking {asked.name} was changed: {message}")


def _refuse_taken(state: State, booking: Booking) -> None:
    """Refuse a change by which a booking lasts into another one with some of its GPUs.

    Raises:
        Conflict: Another booking has some of its GPUs.
    """
    for other in state.calendar.bookings.values():
        chosen = other.id != booking.id and other.state.has_nodes and other.overlaps(booking)
        if chosen and set(other.gpus) & set(booking.gpus):
            raise Conflict(
                f"booking {other.id} has its GPUs from {shown(other.begins, booking.spec.zone)} on",
                remedy=f"make it no longer than until then; {_LIST}",
            )


def on_cancelled(turn: Turn, event: ev.BookingCancelled) -> None:
    """Cancel a booking for good; its jobs get notice.

    Raises:
        NotFound: The booking does not exist.
        Conflict: The booking has ended.
    """
    end_booking(turn, _known(turn.state, event.id), BookingState.CANCELLED, "it was cancelled", for_good=True)


def put(turn: Turn, booking: Booking) -> None:
    """Save a booking, and let the next match choose its provisional nodes again."""
    turn.put(booking)
    turn.state.calendar.provisional = None
    turn.state.match.unmatched = True


def begins_words(booking: Booking) -> str:
    """Return the begin of a booking, in words."""
    return f"it begins {shown(booking.begins, booking.spec.zone)}"


def _known(state: State, booking_id: str) -> Booking:
    """Return a booking that has not ended.

    Raises:
        NotFound: No booking has that id.
        Conflict: The booking has ended.
    """
    booking = state.calendar.bookings.get(booking_id)
    if booking is None:
        raise NotFound(f"there is no booking {booking_id}", remedy=_LIST)
    if booking.state.ended:
        raise Conflict(
            f"booking {booking_id} has ended: {booking.message}",
            remedy="make a new booking: mesos-gpu reserve",
        )
    return booking


def _refuse_name(state: State, spec: BookingSpec, booking_id: str) -> None:
    """Refuse a name that another booking has.

    Raises:
        Conflict: Another booking has the name.
    """
    other = booking_called(state, spec.name)
    if other is not None and other.id != booking_id:
        raise Conflict(f"booking {other.id} has the name {spec.name}", remedy="give it another name")


def _checked(turn: Turn, booking_id: str, asked: BookingSpec) -> tuple[BookingSpec, Time]:
    """Return a booking with its first time.

    Raises:
        NotAccepted: It would fit at no time.
        Conflict: Other bookings leave no room at its time; the error says when it would fit.
    """
    faults = list(faults_of(turn.state.quota.tree, turn.state.quota.queues, asked))
    spec, first = _times(turn, asked, faults)
    if faults or first is None:
        raise NotAccepted(faults, remedy=_MEND)
    ground, owner = ground_of(turn.state), owner_of(turn.state, spec)
    own_items = items_of(booking_id, spec, turn.now, horizon(turn.now), owner=owner)
    if why := unknown_models(ground, spec):
        raise NotAccepted([("/gpu_model", why)], remedy="name a model that there is: mesos-gpu gpus")
    if why := never(ground, own_items[0], turn.now):
        raise NotAccepted([("/gpus", why)], remedy="ask for less, or for another model or pool")
    others = booked_items(turn.state, turn.now, booking_id)
    misfit = clash(ground, [*others, *own_items], booking_id)
    if misfit is None:
        return spec, first
    if misfit.is_own:
        raise NotAccepted([("/for_s", misfit.why)], remedy="make it shorter, or repeat it less often")
    what, remedy = refusal(misfit, spec.zone, nearest(ground, others, own_items[0], turn.now))
    raise Conflict(what, remedy=remedy)


def _times(turn: Turn, asked: BookingSpec, faults: list[tuple[str, str]]) -> tuple[BookingSpec, Time | None]:
    """Return a booking with its begin as a time, and its first time; faults are added to `faults`."""
    if find_zone(asked.zone) is None:
        faults.append(("/zone", f"must be {ZONE.form}, got {asked.zone[:80]}"))
        return asked, None
    try:
        spec = replace(asked, begins=written(asked.begins, asked.zone, turn.now))
    except (ValueError, OverflowError) as error:
        faults.append(("/from", f"must be {error}, got {asked.begins}"))
        return asked, None
    only = next(times(spec, -inf, inf), None) if spec.repeat is Repeat.NONE else None
    if only is not None and (only.begins < turn.now - _LATE_S or only.ends <= turn.now):
        faults.append(("/from", f"has passed: {spec.begins} ({spec.zone})"))
        return spec, None
    first = next_time(spec, turn.now)
    if first is None or first.begins > horizon(turn.now):
        late = bool(spec.until) and (first is None or spec.repeat is not Repeat.NONE)
        why = "has no time left by then" if late else f"must be within {AHEAD_DAYS} days, got {spec.begins}"
        faults.append(("/until" if late else "/from", why))
        return spec, None
    return spec, first
