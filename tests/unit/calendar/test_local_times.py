"""Times of bookings: as people write them, in summer and winter."""

from datetime import UTC, datetime

import pytest

from mesos_gpu.model.bookings.booking import BookingSpec, Repeat
from mesos_gpu.policy.calendar.local_times import FORM, next_time, time_after, times, written

VIENNA = "Europe/Vienna"
NOON = datetime(2026, 11, 24, 11, tzinfo=UTC).timestamp()  # Tue 12:00 in Vienna


def booked(begins: str, repeat: Repeat = Repeat.NONE, zone: str = VIENNA, until: str = "") -> BookingSpec:
    return BookingSpec("exam", "exam", 1, begins, 4 * 3600, zone, repeat=repeat, until=until)


def in_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M")


def test_booking_times_are_read_as_people_write_them() -> None:
    texts = {
        "2026-12-01T09:00": "2026-12-01T09:00",
        "2026-12-01 9:00": "2026-12-01T09:00",
        "2026-12-01T09:00:30": "2026-12-01T09:00:30",
        "2026-12-01T08:00Z": "2026-12-01T09:00",
        "2026-12-01T09:00+01:00": "2026-12-01T09:00",
        "Tue 12:30": "2026-11-24T12:30",
        "tue 09:00": "2026-12-01T09:00",  # of today it has passed
        "Tuesday, 09:00": "2026-12-01T09:00",
        "mon 09:00": "2026-11-30T09:00",
        "today 14:30": "2026-11-24T14:30",
        "tomorrow 9:00": "2026-11-25T09:00",
        "14:30": "2026-11-24T14:30",
        "9:00": "2026-11-25T09:00",
        "now": "2026-11-24T12:00:01",
        "2026-10-25T02:30": "2026-10-25T02:30",  # the earlier of two
        "2026-10-25T02:30+02:00": "2026-10-25T02:30",
        "2026-10-25T02:30+01:00": "2026-10-25T02:30+01:00",
    }
    for text, want in texts.items():
        assert written(text, VIENNA, NOON) == want, text
        assert written(want, VIENNA, NOON) == want, want


@pytest.mark.parametrize(
    "text", ["", "9", "25:00", "2026-13-01T09:00", "noon", "someday 9:00", "2026-12-01", "-1:00"]
)
def test_booking_time_that_is_none_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="tomorrow 9:00") as refused:
        written(text, VIENNA, NOON)
    assert str(refused.value) == FORM


def test_repeated_booking_keeps_its_local_time_over_winter_and_summer() -> None:
    spec = booked("2026-10-20T09:00", Repeat.WEEKLY)
    since = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
    every = list(times(spec, since, since + 31 * 86400))
    assert [in_utc(each.begins) for each in every] == ["10-20 07:00", "10-27 08:00"]
    assert {each.ends - each.begins for each in every} == {4 * 3600}
    summer = datetime(2027, 3, 22, tzinfo=UTC).timestamp()
    assert [in_utc(each.begins) for each in times(spec, summer, summer + 14 * 86400)] == [
        "03-23 08:00",
        "03-30 07:00",
    ]


def test_booking_time_that_clocks_leave_out_begins_when_they_are_set() -> None:
    (gap,) = times(booked("2026-03-29T02:30"), 0, 2e9)
    assert in_utc(gap.begins) == "03-29 01:00"  # 03:00 in Vienna
    days = [
        in_utc(each.begins) for each in times(booked("2026-03-28T02:30", Repeat.DAILY), 0, gap.begins + 86400)
    ]
    assert days == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_booking_time_there_twice_is_the_earlier_unless_it_has_an_offset() -> None:
    (early,) = times(booked("2026-10-25T02:30"), 0, 2e9)
    (late,) = times(booked("2026-10-25T02:30+01:00"), 0, 2e9)
    assert (in_utc(early.begins), in_utc(late.begins)) == ("10-25 00:30", "10-25 01:30")


def test_weekdays_leave_out_the_weekend_and_until_is_the_last_day() -> None:
    spec = booked("2026-11-27T09:00", Repeat.WEEKDAYS, until="2026-12-01")
    assert [each.day for each in times(spec, 0, 2e9)] == ["2026-11-27", "2026-11-30", "2026-12-01"]


def test_booking_next_time_is_the_one_that_is_not_over() -> None:
    spec = booked("2026-11-17T09:00", Repeat.WEEKLY)
    now = next_time(spec, NOON)
    assert now is not None
    assert now.day == "2026-11-24"  # it began at nine, and lasts until one
    later = time_after(spec, now.day, NOON)
    assert later is not None
    assert later.day == "2026-12-01"
    assert next_time(booked("2026-11-17T09:00"), NOON) is None
