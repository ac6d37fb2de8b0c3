"""JSON of bookings; pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from mesos_gpu.model.bookings.booking import BOOKING_FIELDS, Booking, BookingSpec
from mesos_gpu.wire.checking import Check, Problem
from mesos_gpu.wire.kinds import read_fields, write_fields
from mesos_gpu.wire.tenancy.kinds import READERS, WRITERS

_NEEDED = ("name", "queue", "gpus", "from", "for_s")


def decode(value: Mapping[str, Any]) -> BookingSpec | list[Problem]:
    """Parse a request for a booking; return it, or all problems. Its times are not checked."""
    check = Check(value, [field.key for field in BOOKING_FIELDS])
    for key in _NEEDED:
        if key not in check.given:
            check.problem(key, "is missing")
    spec = BookingSpec(**read_fields(check, BOOKING_FIELDS, READERS))
    return check.problems or spec


def encode_spec(spec: BookingSpec) -> dict[str, Any]:
    """Return a request for a booking in the form that `decode` parses, with all fields."""
    written = write_fields(spec, BOOKING_FIELDS, WRITERS)
    return {**written, "until": written["until"] or None}


def encode(booking: Booking, times: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return a booking as in answers. `times`: begin and end of the occurrences to show."""
    return {
        "id": booking.id,
        **encode_spec(booking.spec),
        "by": booking.by,
        "made_at": booking.made_at,
        "state": booking.state.value,
        "begins": booking.begins,
        "ends": booking.ends,
        "last": None if booking.last is None else booking.last.value,
        "message": booking.message,
        "places": [{"node": place.hostname, "gpus": list(place.gpus)} for place in booking.places],
        "used_at": booking.used_at,
        "ended_at": booking.ended_at,
        "times": [{"begins": begins, "ends": ends} for begins, ends in times],
    }
