"""Other times for a booking that does not fit: the nearest before and after the one that was asked for."""

from dataclasses import replace

import pytest

from mesos_gpu.model.bookings.booking import BookingSpec
from mesos_gpu.policy.calendar.book import Ground, Item, NodeGpus, nearest
from mesos_gpu.policy.calendar.local_times import moved

NOW = 1_796_000_400 // 3600 * 3600
HOUR = 3600
GROUND = Ground([NodeGpus("n1", "A100", "default", 4)])


def item(name: str, begins: float, hours: float = 1) -> Item:
    spec = BookingSpec(name, "q", 4, "2026-12-01T09:00", round(hours * HOUR))
    at = NOW + round(begins * HOUR)
    return Item(name, replace(spec, begins=moved(spec, at)), at, at + spec.lasts_s)


def found(*taken: tuple[float, float], asked: float = 4, hours: float = 1, most: int = 2) -> list[float]:
    others = [item(f"b{i}", *each) for i, each in enumerate(taken)]
    times = nearest(GROUND, others, item("new", asked, hours), NOW, most=most)
    return [(at - NOW) / HOUR for at in times]


@pytest.mark.parametrize(
    ("taken", "times"),
    [
        ([(4, 1)], [3, 5]),
        ([(4, 2)], [3, 6]),
        ([(3, 2)], [2, 5]),
        ([(4, 1), (5, 1)], [3, 6]),
        ([(0, 5)], [5]),  # nothing before it
        ([(0, 4), (4, 1)], [5]),
    ],
)
def test_nearest_times_are_where_others_end_or_begin(
    taken: list[tuple[float, float]], times: list[float]
) -> None:
    assert found(*taken, most=1) == times


def test_nearest_times_are_in_order_and_each_once() -> None:
    taken = [(2, 1), (4, 1), (6, 1)]
    assert found(*taken) == [1, 3, 5, 7]
    assert found(*taken, most=1) == [3, 5]
    assert found(*taken, most=9) == sorted({*found(*taken, most=9)})


def test_nearest_times_are_never_the_asked_one_nor_past() -> None:
    times = found((0.5, 1), asked=0.5, most=9)
    assert times == [1.5]
    assert found((1, 1), asked=1, hours=1, most=9) in ([0, 2], [2])


def test_nearest_times_leave_room_for_the_whole_booking() -> None:
    assert found((4, 1), (6, 1), hours=2, most=1) == [2, 7]
