"""Begin of a booking: choice of its nodes, and events for its owner about what is lacking."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import BookingState, Repeat
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.saves import SaveBooking
from mesos_gpu.scheduler.happenings.bookings import happened_to
from tests.unit.engine.bookings.worlds import HOUR, Booked

STOPPABLE = {"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}
BEGUN = "it has begun, and lasts until Tue 2026-11-24 14:00"


class Told(Booked):
    """List the events for owners in their order: kinds and texts."""

    def feed(self, *events: ev.Event) -> list[fx.Effect]:
        last, effects = dict(self.state.calendar.bookings), super().feed(*events)
        for effect in effects:
            if isinstance(effect, SaveBooking):
                said = happened_to(last.get(effect.booking.id), effect.booking)
                self.said = [
                    *self.said,
                    *((each.kind.value, each.message.partition(": ")[2]) for each in said),
                ]
                last[effect.booking.id] = effect.booking
        return effects

    said: Sequence[tuple[str, str]] = ()

    def told(self, seconds: float) -> list[tuple[str, str]]:
        """Let time pass; what is told meanwhile."""
        self.said = ()
        self.go(seconds)
        return list(self.said)


@pytest.fixture
def one() -> Told:
    """A node of four GPUs, booked from one to two o'clock; it is noon."""
    world = Told()
    world.up("n1", 4)
    world.book()
    return world


def test_booking_with_free_nodes_begins_without_a_false_alarm(one: Told) -> None:
    assert one.told(HOUR + 2) == [
        ("booking_chosen", "its nodes are chosen: n1.example; it begins Tue 2026-11-24 13:00"),
        ("booking_started", BEGUN),
    ]
    assert (one.booking().message, one.booking().told, one.booking().counted_at) == (
        BEGUN,
        False,
        one.booking().begins,
    )


def test_booking_with_jobs_in_its_way_has_its_nodes_chosen_before(one: Told) -> None:
    one.run("stoppable", gpus=4, **STOPPABLE)
    assert [kind for kind, _ in one.told(HOUR - 60)] == ["booking_chosen"]
    assert one.told(62) == [("booking_started", BEGUN)]


def test_booking_without_nodes_begins_and_reports_it() -> None:
    world = Told()
    world.up("n1", 4)
    world.up("n2", 4)
    world.book(nodes=2)
    world.feed(ev.AgentLost(AgentId("n2")))
    lacks = "1 of its 2 nodes is lacking"
    why = f"{lacks}: no other is sound, or can be free in time"
    assert world.told(HOUR + 2) == [
        ("booking_short", f"its nodes are chosen: n1.example; it begins Tue 2026-11-24 13:00; {why}"),
        ("booking_started", f"{BEGUN}; {lacks}"),
    ]
    alone = Told()
    alone.up("n1", 4)
    alone.book()
    alone.feed(ev.AgentLost(AgentId("n1")))
    assert alone.told(HOUR + 2) == [
        ("booking_short", "its node is lacking: no other is sound, or can be free in time"),
        ("booking_started", f"{BEGUN}; its node is lacking"),
    ]


def test_booking_begins_without_the_master_and_reports_nothing_lacking(one: Told) -> None:
    one.feed(ev.Disconnected())
    (event,) = one.told(HOUR + 2)
    assert event == ("booking_started", f"{BEGUN}; its nodes are chosen as soon as Mesos offers any")
    one.register()
    assert one.told(2) == [("booking_chosen", "its nodes are chosen: n1.example; " + BEGUN)]


def test_booking_begins_on_a_clock_set_back_below_the_subscription(one: Told) -> None:
    one.go(HOUR - 100)
    one.register()
    one.now -= 900.0
    one.state.calendar.bookings["exam"] = replace(one.booking(), begins=int(one.now) + 5)
    one.offer_again()
    assert [kind for kind, _ in one.told(8)] == ["booking_chosen", "booking_started"]
    assert one.booking().places


def test_booking_begins_and_ends_though_ticks_come_too_close_together(one: Told) -> None:
    """A busy scheduler looks at what time asks for at most five times a second, and matches more often."""
    for moment, state in (
        (one.booking().begins, BookingState.ACTIVE),
        (one.booking().ends, BookingState.RETURNED),
    ):
        one.now = moment - 0.1
        one.feed(ev.Tick())
        one.now = moment + 0.05
        one.feed(ev.Tick())
        one.now = moment + 0.3
        one.feed(ev.Tick())
        assert one.booking().state is state


def test_booking_over_the_change_to_winter_time_begins_on_another_node_than_the_lost_one() -> None:
    world = Told(now=1_792_875_600.0)  # Sat 2026-10-24 23:00 in Vienna
    world.up("n1", 4)
    world.up("n2", 4)
    made = world.book(begins="2026-10-25T02:30+01:00", zone="Europe/Vienna", lasts_s=4 * HOUR)
    assert made.begins - world.now == 4.5 * HOUR, (
        "that night has an hour more, and it begins in the second of both"
    )
    assert made.ends - made.begins == 4 * HOUR
    for name in ("one", "two"):
        world.run(name, gpus=4, **STOPPABLE)
    world.run("exam", queue="exam", booking="exam", gpus=4)
    world.go(4.5 * HOUR - 1)
    (lost,) = world.booking().places
    world.feed(ev.AgentLost(lost.agent_id))
    (place,) = world.booking().places
    assert (place.agent_id != lost.agent_id, world.booking().state) == (True, BookingState.PREPARING)
    (started,) = world.told(1)
    assert started == ("booking_started", "it has begun, and lasts until Sun 2026-10-25 06:30")
    assert world.now == made.begins
    world.go(66)  # a notice given right before the begin has its whole length
    assert world.on("exam") == set(map(str, place.gpus))


def test_nightly_booking_happens_once_when_its_hour_is_there_twice() -> None:
    world = Told(now=1_792_789_200.0)  # Fri 2026-10-23 23:00 in Vienna
    world.up("n1", 4)
    begins = []
    world.book(begins="02:30", zone="Europe/Vienna", repeat=Repeat.DAILY)
    for _ in range(3):
        begins.append(world.booking().begins)
        world.now = begins[-1] - 1.0
        assert [kind for kind, _ in world.told(3)][:2] == ["booking_chosen", "booking_started"]
        world.go(HOUR)
    assert [after - before for before, after in pairwise(begins)] == [
        24 * HOUR,
        25 * HOUR,
    ]
