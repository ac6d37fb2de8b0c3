"""Metrics of bookings: their states, and GPUs that are booked and used now. No label is chosen by users."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mesos_gpu.api.metrics.family import Family, Values
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.bookings.booking import BookingState


class _Booked(NamedTuple):
    """Counts of bookings and of their GPUs."""

    states: Mapping[BookingState, int]
    booked: int  # GPUs of active bookings, as requested
    ready: int  # of `booked`, the GPUs on nodes that are there
    used: int  # of `booked`, the GPUs held by jobs that may use the booking
    short: int  # bookings that lack nodes, though they should have them by now


def _booked(view: View) -> _Booked:
    """Count bookings and their GPUs."""
    states = dict.fromkeys(BookingState, 0)
    booked = ready = used = short = 0
    for booking in view.bookings.values():
        states[booking.state] += 1
        short += not booking.state.ended and (
            booking.told or (booking.state.has_nodes and len(booking.places) < booking.spec.nodes)
        )
        if booking.is_active:
            booked += booking.spec.gpus_in_all
            ready += len(booking.gpus)
            used += booking.used_gpus
    return _Booked(states, booked, ready, used, short)


def _by_state(sums: _Booked) -> Values:
    for state, number in sums.states.items():
        yield (state.value,), number


def _unlabelled(number: float) -> Values:
    yield (), number


BOOKINGS: Final = (
    Family(
        "mesos_gpu_bookings",
        "gauge",
        "Bookings by state; ended ones are counted for 30 days.",
        _booked,
        _by_state,
        ("state",),
    ),
    Family(
        "mesos_gpu_booked_gpus",
        "gauge",
        "Requested GPUs of the bookings that are active now.",
        _booked,
        lambda sums: _unlabelled(sums.booked),
    ),
    Family(
        "mesos_gpu_booked_ready_gpus",
        "gauge",
        "Of the GPUs that are booked now, those on nodes that are there.",
        _booked,
        lambda sums: _unlabelled(sums.ready),
    ),
    Family(
        "mesos_gpu_booked_used_gpus",
        "gauge",
        "Of the GPUs that are booked now, those that jobs hold which may use the booking.",
        _booked,
        lambda sums: _unlabelled(sums.used),
    ),
    Family(
        "mesos_gpu_bookings_short",
        "gauge",
        "Bookings that lack nodes, though they have begun or are about to.",
        _booked,
        lambda sums: _unlabelled(sums.short),
    ),
)
