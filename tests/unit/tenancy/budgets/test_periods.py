"""Periods at borders: summer time, midnights that are not there, leap years, far zones."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.tenancy import Period
from mesos_gpu.policy.tenancy.periods import once, period_at

HOUR = 3600
ZONES = (
    "UTC",
    "Europe/Vienna",
    "America/New_York",
    "America/Santiago",
    "Asia/Beirut",
    "Pacific/Apia",
    "Africa/Cairo",
)
REPEATED = [period for period in Period if period is not Period.ONCE]


def at(text: str, zone: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29T12:00", 23), ("2026-10-25T12:00", 25), ("2026-06-01T12:00", 24)]
)
def test_periods_of_days_have_23_24_and_25_hours(day: str, hours: int) -> None:
    span = period_at(Period.DAY, "Europe/Vienna", at(day, "Europe/Vienna"))
    assert span.ends - span.begins == hours * HOUR


def test_period_of_a_day_without_midnight_begins_after_the_gap() -> None:
    # Chile's clocks go from 24:00 on 5 September 2026 to 01:00 on the 6th.
    span = period_at(Period.DAY, "America/Santiago", at("2026-09-06T12:00", "America/Santiago"))
    assert datetime.fromtimestamp(span.begins, ZoneInfo("America/Santiago")).hour == 1
    assert span.ends - span.begins == 23 * HOUR


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        (Period.WEEK, "2026-11-16T00:00", "2026-11-23T00:00"),
        (Period.MONTH, "2026-11-01T00:00", "2026-12-01T00:00"),
        (Period.QUARTER, "2026-10-01T00:00", "2027-01-01T00:00"),
        (Period.YEAR, "2026-01-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_periods_of_weeks_and_more_begin_at_midnight_of_their_zone(
    period: Period, begins: str, ends: str
) -> None:
    zone = "America/New_York"
    span = period_at(period, zone, at("2026-11-22T15:00", zone))
    assert (span.begins, span.ends) == (at(begins, zone), at(ends, zone))


@given(st.sampled_from(REPEATED), st.sampled_from(ZONES), st.integers(0, 4 * 10**9))
def test_periods_cover_every_moment_once(period: Period, zone: str, now: int) -> None:
    span = period_at(period, zone, now)
    assert span.begins <= now < span.ends
    after = period_at(period, zone, span.ends)
    assert after.begins == span.ends
    assert after.index > span.index  # Samoa once left a day out
    assert period_at(period, zone, span.begins) == span
    assert period_at(period, zone, span.ends - 1) == span


def test_period_that_is_there_once() -> None:
    span = once("2026-11-22", "2026-11-24", "Asia/Tokyo")
    assert span.ends - span.begins == 48 * HOUR
    with pytest.raises(ValueError, match="does not repeat"):
        period_at(Period.ONCE, "UTC", 0)
