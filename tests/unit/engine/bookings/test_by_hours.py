"""Bookings beside what queues are guaranteed at the time of the booking, not now."""

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.errors import Conflict, NotAccepted
from mesos_gpu.model.tenancy import Guarantee, Hours, QueueDocument, QueueSpec
from tests.unit.engine.bookings.worlds import HOUR, Booked

FOUR = {"default": Guarantee(4000)}
DAY = ("06:00", "22:00")


def world() -> Booked:
    """A node of 4 GPUs, at noon: by day all are guaranteed to notebooks, by night to batch from 23:00 on."""
    made = Booked()
    made.up("a", 4)
    notebooks = QueueSpec(hours=(Hours(*DAY, guarantee_gpus=FOUR),))
    batch = QueueSpec(hours=(Hours("23:00", "06:00", guarantee_gpus=FOUR),))
    document = QueueDocument(queues={"notebooks": notebooks, "batch": batch, "exam": QueueSpec()})
    made.feed(ev.QueuesChanged(document, 0))
    return made


def test_a_booking_is_held_against_the_guarantees_of_its_own_hours() -> None:
    made = world()
    with pytest.raises(NotAccepted, match="0 GPUs are guaranteed to nobody"):
        made.book("by-day", begins="13:00")
    assert made.book("between", begins="22:00", lasts_s=HOUR).begins == made.now + 10 * HOUR


def test_a_booking_that_hours_begin_in_is_held_against_those_too() -> None:
    with pytest.raises((NotAccepted, Conflict), match="0 GPUs are guaranteed to nobody"):
        world().book(begins="22:00", lasts_s=HOUR + 60)


def test_what_is_guaranteed_at_night_alone_is_booked_for_the_night() -> None:
    made = world()
    with pytest.raises(NotAccepted, match="queue batch is guaranteed 0 GPUs"):
        made.book("early", queue="batch", begins="13:00", from_guarantee=True)
    made.book("late", queue="batch", begins="23:00", from_guarantee=True)
