"""Families of bookings: how they stand, and how many GPUs are booked and used now. No label is of a user's choice."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mesos_gpu.api.metrics.family import Family, Values
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.bookings.booking import BookingState


class _Booked(NamedTuple):
    """What is booked."""

    states: Mapping[BookingState, int]
    booked: int  # GPUs of those that are active, as they were asked for
    ready: int  # of these, those that are there
    used: int  # of these, those that jobs hold which may
    short: int  # bookings whose nodes are to be there, and of which some are lacking


def _booked(view: View) -> _Booked:
    states = dict.fromkeys(BookingState, 0)
    booked = ready = used = short = 0
    for each in view.bookings.values():
        states[each.state] += 1
        short += not each.state.ended and (
            each.told or (each.state.has_nodes and len(each.places) < each.spec.nodes)
        )
        if each.is_active:
            booked += each.spec.gpus_in_all
            ready += len(each.gpus)
            used += each.used_gpus
    return _Booked(states, booked, ready, used, short)


def _by_state(sums: _Booked) -> Values:
    for state, number in sums.states.items():
        yield (state.value,), number


def _one(number: float) -> Values:
    yield (), number


BOOKINGS: Final = (
    Family(
        "mesos_gpu_bookings",
        "gauge",
        "Bookings, by how they stand; those that have ended for 30 days.",
        _booked,
        _by_state,
        ("state",),
    ),
    Family(
        "mesos_gpu_booked_gpus",
        "gauge",
        "GPUs of the bookings that are active now, as they were asked for.",
        _booked,
        lambda sums: _one(sums.booked),
    ),
    Family(
        "mesos_gpu_booked_ready_gpus",
        "gauge",
        "Of the GPUs that are booked now, those on nodes that are there.",
        _booked,
        lambda sums: _one(sums.ready),
    ),
    Family(
        "mesos_gpu_booked_used_gpus",
        "gauge",
        "Of the GPUs that are booked now, those that jobs hold which may use the booking.",
        _booked,
        lambda sums: _one(sums.used),
    ),
    Family(
        "mesos_gpu_bookings_short",
        "gauge",
        "Bookings that lack nodes, though they have begun or are about to.",
        _booked,
        lambda sums: _one(sums.short),
    ),
)
