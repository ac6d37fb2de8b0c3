"""Local times of a place, on days of 23 and of 25 hours, too."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.times.local_time import DAY_S, first_moment, midnight, shown_at

VIENNA = ZoneInfo("Europe/Vienna")
PLACES = [
    ZoneInfo(name)
    for name in ("UTC", "Europe/Vienna", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata")
]


def utc(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp())


CASES = {
    "a plain day": ("2026-11-24T09:00", "2026-11-24T08:00"),
    "the hour that is skipped is over when clocks are set forward": ("2026-03-29T02:30", "2026-03-29T01:00"),
    "the hour after it": ("2026-03-29T03:00", "2026-03-29T01:00"),
    "of an hour that comes twice the first": ("2026-10-25T02:30", "2026-10-25T00:30"),
    "the hour after both": ("2026-10-25T03:00", "2026-10-25T02:00"),
}


@pytest.mark.parametrize(("local", "moment"), CASES.values(), ids=CASES)
def test_local_time_of_vienna_as_a_moment(local: str, moment: str) -> None:
    assert first_moment(datetime.fromisoformat(local), VIENNA) == utc(moment)


def test_local_days_may_have_23_or_25_hours() -> None:
    lengths = [
        midnight(date(2026, 3, day + 1), VIENNA) - midnight(date(2026, 3, day), VIENNA) for day in (28, 29)
    ]
    assert lengths == [DAY_S, DAY_S - 3600]
    assert midnight(date(2026, 10, 26), VIENNA) - midnight(date(2026, 10, 25), VIENNA) == DAY_S + 3600


@given(st.datetimes(datetime(2000, 1, 1), datetime(2037, 12, 1)), st.sampled_from(PLACES))
def test_local_time_is_shown_then_and_not_a_second_before(local: datetime, place: ZoneInfo) -> None:
    local = local.replace(microsecond=0)
    moment = first_moment(local, place)
    assert shown_at(moment, place) >= local > shown_at(moment - 1, place)
