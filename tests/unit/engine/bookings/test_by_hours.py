"""Bookings beside what queues are guaranteed at the time of the booking, not now."""

import re
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import events as ev
from mesos_gpu.errors import Conflict, NotAccepted
from mesos_gpu.model.bookings.booking import Repeat
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


def test_booking_is_held_against_the_guarantees_of_its_own_hours() -> None:
    made = world()
    with pytest.raises(Conflict, match="0 GPUs are not guaranteed") as refused:
        made.book("by-day", begins="13:00")
    assert refused.value.remedy == "it would fit from Tue 2026-11-24 22:00, or Wed 2026-11-25 22:00 on (UTC)"
    assert made.book("between", begins="22:00", lasts_s=HOUR).begins == made.now + 10 * HOUR


def test_booking_that_hours_begin_in_is_held_against_those_too() -> None:
    with pytest.raises(NotAccepted, match="0 GPUs are not guaranteed"):
        world().book(begins="22:00", lasts_s=HOUR + 60)  # at no time, as there is no longer gap


def test_guarantee_of_the_night_alone_is_booked_for_the_night() -> None:
    made = world()
    with pytest.raises(Conflict, match="queue batch is guaranteed 0 GPUs") as refused:
        made.book("early", queue="batch", begins="13:00", from_guarantee=True)
    assert "it would fit from Tue 2026-11-24 23:00" in refused.value.remedy
    made.book("late", queue="batch", begins="23:00", from_guarantee=True)


_CLOCKS: Final = ("00:00", "06:00", "08:30", "12:00", "17:15", "22:00")
_WINDOWS: Final = st.tuples(
    st.sampled_from(_CLOCKS),
    st.sampled_from(_CLOCKS),
    st.sampled_from([2, 4]),
    st.sampled_from(["ops", "batch"]),
).filter(lambda window: window[0] != window[1])


def refused_times(made: Booked, **fields: Any) -> list[str]:
    """The times that a refusal names; none: it was taken, or would be taken at no time."""
    try:
        made.book(**fields)
    except NotAccepted:
        return []
    except Conflict as refused:
        return re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?", refused.remedy)
    return []


@pytest.mark.parametrize("count", [8, pytest.param(15, marks=pytest.mark.long)])
def test_booking_time_that_a_refusal_names_is_accepted(count: int) -> None:
    """Beside guarantees by hours, and what is booked."""

    @settings(max_examples=count)
    @given(
        st.lists(_WINDOWS, min_size=1, max_size=3, unique_by=lambda window: window[3]),
        st.sampled_from(["12:30", "16:00", "21:45", "tomorrow 08:30"]),
        st.sampled_from([1, 3, 9]),
        st.sampled_from([Repeat.NONE, Repeat.NONE, Repeat.WEEKLY]),
        st.booleans(),
    )
    @example([("08:30", "22:00", 4, "ops")], "13:00", 1, Repeat.NONE, False)
    @example([("08:30", "22:00", 4, "ops")], "13:00", 1, Repeat.WEEKLY, True)
    def check(
        windows: list[tuple[str, str, int, str]], begins: str, hours: int, repeat: Repeat, booked: bool
    ) -> None:
        made = Booked()
        made.up("a", 4)
        queues = {"exam": QueueSpec(), "ops": QueueSpec(), "batch": QueueSpec()}
        for since, until, gpus, path in windows:
            owed = {"default": Guarantee(gpus * 500)}  # both together no more than there is
            queues[path] = QueueSpec(hours=(Hours(since, until, guarantee_gpus=owed),))
        made.feed(ev.QueuesChanged(QueueDocument(queues=queues), 0))
        if booked:
            with suppress(Conflict, NotAccepted):
                made.book("other", begins="23:00", lasts_s=4 * HOUR)
        named = refused_times(made, begins=begins, lasts_s=hours * HOUR, repeat=repeat)
        for number, moment in enumerate(named):
            made.book(f"again{number}", begins=moment, lasts_s=hours * HOUR, repeat=repeat)
            made.feed(ev.BookingCancelled(f"again{number}"))

    check()
