"""Local times of bookings: as people write them, and when those that are repeated are there. Pure.

A time that the clocks leave out begins when they are set; of one that is there twice the earlier is meant, unless it is
written with its offset. What lasts four hours lasts four hours whatever the clocks do meanwhile.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.bookings.booking import AHEAD_DAYS, DAY_S, BookingSpec, Repeat
from mesos_gpu.model.tenancy import Weekday
from mesos_gpu.policy.times.local_time import first_moment

FORM: Final = "a time as 2026-12-01T09:00, Tue 09:00, today 14:30, tomorrow 9:00, 14:30 or now"
_AHEAD_S: Final = (AHEAD_DAYS + 8) * DAY_S  # in which the next time of a booking is looked for
_DAYS: Final = tuple(each.value for each in Weekday)
_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_WORDS: Final = re.compile(r"(?:([a-z]+),?\s+)?(\d{1,2}:\d{2}(?::\d{2})?)")
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}[t ]\d{1,2}:\d{2}(?::\d{2})?(z|[+-]\d{2}:?\d{2})?")


@dataclass(frozen=True, slots=True)
class Time:
    """A time of a booking: the local day, and from when to when it is there, in seconds since the epoch."""

    day: str
    begins: int
    ends: int


def written(text: str, zone: str, now: float) -> str:
    """A time as `BookingSpec.begins` has it, from what somebody wrote.

    Args:
        text: As of `FORM`; a day of the week, or no day: the next time that it is that late.
        zone: Of IANA's database, whose local time it is unless it is written with an offset.
        now: Seconds since the epoch.

    Raises:
        ValueError: It is no time, in words that go after "must be".
        zoneinfo.ZoneInfoNotFoundError: There is no such zone.
    """
    place, low = ZoneInfo(zone), text.strip().lower()
    if low == "now":
        return _text(datetime.fromtimestamp(int(now) + 1, place))
    if _ISO.fullmatch(low):
        return _of_iso(low, place)
    match = _WORDS.fullmatch(low)
    if match is None:
        raise ValueError(FORM)
    today = datetime.fromtimestamp(now, place)
    return _text(_next(match[1] or "", _clock(match[2]), today, place, now))


def _of_iso(text: str, place: ZoneInfo) -> str:
    day, _, rest = text.replace(" ", "t", 1).partition("t")
    if rest.index(":") == 1:
        rest = f"0{rest}"
    try:
        at = datetime.fromisoformat(f"{day}T{rest.upper()}")
    except ValueError:
        raise ValueError(FORM) from None
    return _text(at.astimezone(place) if at.tzinfo is not None else at.replace(tzinfo=place))


def _clock(text: str) -> time:
    match = _CLOCK.fullmatch(text)
    assert match is not None, f"{text} is of the form of a time of day"
    try:
        return time(int(match[1]), int(match[2]), int(match[3] or 0))
    except ValueError:
        raise ValueError(FORM) from None


def _next(day: str, clock: time, today: datetime, place: ZoneInfo, now: float) -> datetime:
    if day in ("today", "tomorrow"):
        return datetime.combine(today.date() + timedelta(days=day == "tomorrow"), clock, place)
    first = today.date()
    if day:
        named = next((i for i in range(7) if day in (_DAYS[i], _NAMES[i])), None)
        if named is None:
            raise ValueError(FORM)
        first += timedelta(days=(named - first.weekday()) % 7)
    step = 7 if day else 1
    at = datetime.combine(first, clock, place)
    return at if epoch_of(at.date(), clock, place) >= now else at + timedelta(days=step)


def _text(at: datetime) -> str:
    """Local time; with its offset only where that tells it from an earlier one."""
    plain = at.replace(tzinfo=None, fold=0)
    form = plain.isoformat(timespec="minutes" if not plain.second else "seconds")
    if at.fold and at.utcoffset() != at.replace(fold=0).utcoffset():
        return form + at.isoformat()[-6:]
    return form


def epoch_of(day: date, clock: time, place: ZoneInfo, *, fold: int = 0) -> int:
    """Seconds since the epoch of a local time; with `fold` 1 of the later one, where it is there twice."""
    local = datetime.combine(day, clock)
    if fold:
        return int(local.replace(tzinfo=place, fold=1).timestamp())
    return first_moment(local, place)


def times(spec: BookingSpec, since: float, until: float) -> Iterator[Time]:
    """The times of a booking that end after `since` and begin before `until`, in their order."""
    place, first = ZoneInfo(spec.zone), datetime.fromisoformat(spec.begins)
    fold = 0
    if first.tzinfo is not None:
        first = first.astimezone(place)
        fold = first.fold
    last = date.fromisoformat(spec.until) if spec.until else date.max
    step = timedelta(days=7 if spec.repeat is Repeat.WEEKLY else 1)
    day, clock = first.date(), first.time().replace(fold=0, tzinfo=None)
    if spec.repeat is not Repeat.NONE:
        gone_days = int(since - spec.lasts_s - epoch_of(day, clock, place)) // DAY_S
        day += step * max(gone_days // step.days, 0)
    while day <= last:
        begins = epoch_of(day, clock, place, fold=fold if day == first.date() else 0)
        if begins >= until:
            return
        if begins + spec.lasts_s > since and not (spec.repeat is Repeat.WEEKDAYS and day.weekday() > 4):
            yield Time(day.isoformat(), begins, begins + spec.lasts_s)
        if spec.repeat is Repeat.NONE:
            return
        day += step


def next_time(spec: BookingSpec, after: float) -> Time | None:
    """The first time of a booking that is not over then; None: there is none any more."""
    return next(times(spec, after, after + _AHEAD_S), None)


def time_after(spec: BookingSpec, day: str, now: float) -> Time | None:
    """The first time of a booking on a later day than that which is not over yet; None: there is none."""
    every = times(spec, now, now + _AHEAD_S)
    return next((each for each in every if each.day > day), None)


def moved(spec: BookingSpec, at: int) -> str:
    """`BookingSpec.begins` of a booking that begins at another moment, in seconds since the epoch."""
    return _text(datetime.fromtimestamp(at, ZoneInfo(spec.zone)))


def shown(at: float, zone: str) -> str:
    """A moment as people in a zone read it: Tue 2026-12-01 09:00."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    return local.strftime("%a %Y-%m-%d %H:%M" if not local.second else "%a %Y-%m-%d %H:%M:%S")
