"""Times of bookings: as people write them, in summer and winter."""

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from mesos_gpu.model.bookings.booking import AHEAD_DAYS, DAY_S, BookingSpec, Repeat
from mesos_gpu.policy.calendar.local_times import (
    FORM,
    Time,
    epoch_of,
    moved,
    next_time,
    shown,
    time_after,
    times,
    written,
)
from mesos_gpu.policy.times.local_time import first_moment

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
        " NOW ": "2026-11-24T12:00:01",
        "12:00": "2026-11-24T12:00",  # it is that late now
        "11:59": "2026-11-25T11:59",
        "tue 12:00": "2026-11-24T12:00",
        "tue 11:59": "2026-12-01T11:59",
        "today 9:00": "2026-11-24T09:00",
        "sun, 0:00": "2026-11-29T00:00",
        "wednesday 23:59:59": "2026-11-25T23:59:59",
        "2026-12-01T9:00:30Z": "2026-12-01T10:00:30",
        "2026-12-01t09:00+0530": "2026-12-01T04:30",
        "2026-10-25T02:30": "2026-10-25T02:30",  # the earlier of two
        "2026-10-25T02:30+02:00": "2026-10-25T02:30",
        "2026-10-25T02:30+01:00": "2026-10-25T02:30+01:00",
    }
    for text, want in texts.items():
        assert written(text, VIENNA, NOON) == want, text
        assert written(want, VIENNA, NOON) == want, want


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9",
        "25:00",
        "2026-13-01T09:00",
        "noon",
        "12:60",
        "9:00:60",
        "tuesda 9:00",
        "someday 9:00",
        "2026-12-01",
        "-1:00",
    ],
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


def test_booking_time_of_a_week_is_that_of_each_day() -> None:
    names = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for days, name in enumerate((*names[2:], names[0])):
        want = f"{datetime.fromtimestamp(NOON + (days + 1) * 86400, UTC):%Y-%m-%d}T08:15"
        assert written(f"{name} 8:15", VIENNA, NOON) == written(f"{name[:3]} 08:15", VIENNA, NOON) == want


def test_booking_time_in_the_hour_that_is_there_twice_is_now_and_not_the_later_one() -> None:
    now = datetime(2026, 10, 25, 1, 15, tzinfo=UTC).timestamp()  # 02:15 for the second time
    assert written("02:30", VIENNA, now) == "2026-10-26T02:30", "of today the earlier has passed"
    assert written("now", VIENNA, now) == "2026-10-25T02:15:01+01:00"
    assert written("now", VIENNA, now - 3600) == "2026-10-25T02:15:01"


ZONES = (VIENNA, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC")
STARTS = (
    "2026-10-24T02:30",
    "2026-03-28T02:10",
    "2011-12-28T09:00",
    "2026-11-24T23:59:30",
    "2026-10-25T02:30+01:00",
)


@pytest.mark.parametrize("seed", range(60))
def test_booking_times_are_those_of_all_days_one_by_one(seed: int) -> None:
    random = Random(seed)
    zone, start = random.choice(ZONES), random.choice(STARTS)
    repeat = random.choice(list(Repeat))
    spec = replace(
        booked(start, repeat, zone, random.choice(("", "", "2026-11-09"))),
        lasts_s=random.choice((600, 4 * 3600, 30 * 3600)),
    )
    place, first = ZoneInfo(zone), datetime.fromisoformat(start)
    fold = 0
    if first.tzinfo is not None:
        fold, first = first.astimezone(place).fold, first.astimezone(place).replace(tzinfo=None)
    first = first.replace(fold=0)
    every = list[Time]()
    for n in range(0, 40 if repeat is not Repeat.NONE else 1, 7 if repeat is Repeat.WEEKLY else 1):
        local = first + timedelta(days=n)
        begins = first_moment(local, place)
        if not n and fold:
            begins = int(local.replace(tzinfo=place, fold=1).timestamp())
        weekend = repeat is Repeat.WEEKDAYS and local.weekday() in (5, 6)
        if not weekend and (not spec.until or str(local.date()) <= spec.until):
            every.append(Time(str(local.date()), begins, begins + spec.lasts_s))
    last = first_moment(first + timedelta(days=33), place)
    moments = sorted({at for each in every for at in (each.begins, each.ends) if at < last} | {last - 1})
    for since in moments:
        for exact in (since - 1, since, since + 0.5):
            assert list(times(spec, exact, last)) == [
                each for each in every if each.ends > exact and each.begins < last
            ]
    for until in moments:
        assert list(times(spec, 0, until)) == [each for each in every if each.begins < until]


def test_booking_is_looked_for_somewhat_longer_than_it_may_be_booked_ahead() -> None:
    begins = int(datetime(2026, 12, 1, 8, tzinfo=UTC).timestamp())
    ahead = (AHEAD_DAYS + 8) * DAY_S
    spec = booked("2026-12-01T09:00")
    assert next_time(spec, begins - ahead) is None
    assert next_time(spec, begins - ahead + 1) == Time("2026-12-01", begins, begins + 4 * 3600)
    assert time_after(spec, "2026-11-30", begins - ahead) is None
    assert time_after(spec, "2026-11-30", begins - ahead + 1) == Time("2026-12-01", begins, begins + 4 * 3600)


def test_moment_is_shown_and_moved_in_the_zone_of_its_booking() -> None:
    assert shown(NOON, VIENNA) == "Tue 2026-11-24 12:00"
    assert shown(NOON + 5, "UTC") == "Tue 2026-11-24 11:00:05"
    assert moved(booked("2026-12-01T09:00"), int(NOON)) == "2026-11-24T12:00"
    later = int(datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp())
    assert moved(booked("2026-12-01T09:00"), later) == "2026-10-25T02:30+01:00"
    assert moved(booked("2026-12-01T09:00"), later - 3600) == "2026-10-25T02:30"


@pytest.mark.parametrize(("fold", "utc"), [(0, "10-25 00:30"), (1, "10-25 01:30")])
def test_epoch_of_a_local_time_that_is_there_twice(fold: int, utc: str) -> None:
    at = epoch_of(date(2026, 10, 25), time(2, 30), ZoneInfo(VIENNA), fold=fold)
    assert in_utc(at) == utc


def test_booking_written_with_an_offset_is_the_first_moment_on_later_days() -> None:
    """On the day on which its clock is set forward, the time of the booking is left out."""
    spec = booked("2026-10-25T02:30+01:00", Repeat.WEEKLY)
    since = datetime(2027, 3, 27, tzinfo=UTC).timestamp()
    assert [in_utc(each.begins) for each in times(spec, since, since + 9 * DAY_S)] == [
        "03-28 01:00",
        "04-04 00:30",
    ]
