"""Local times of bookings: parsing and display, and the occurrences of repeated bookings. Pure.

A local time that a clock change skips begins at the change; of a time that occurs twice the earlier is meant, unless it
is written with its offset. A booking of four hours lasts four hours, whatever clock change falls into it.
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
_AHEAD_S: Final = (AHEAD_DAYS + 8) * DAY_S  # time in which the next occurrence is searched
_DAYS: Final = tuple(day.value for day in Weekday)
_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_WORDS: Final = re.compile(r"(?:([a-z]+),?\s+)?(\d{1,2}:\d{2}(?::\d{2})?)")
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}[t ]\d{1,2}:\d{2}(?::\d{2})?(z|[+-]\d{2}:?\d{2})?")


@dataclass(frozen=True, slots=True)
class Time:
    """Occurrence of a booking.

    Attributes:
        day: Local day, as an ISO date.
        begins: Begin in seconds since the epoch.
        ends: End in seconds since the epoch.
    """

    day: str
    begins: int
    ends: int


def written(text: str, zone: str, now: float) -> str:
    """Parse a time that a user wrote; return it in the form of `BookingSpec.begins`.

    Args:
        text: Time in a form of `FORM`; with a weekday or no day, the next such time is meant.
        zone: IANA time zone of the time, unless it is written with an offset.
        now: Seconds since the epoch.

    Raises:
        ValueError: The text is not a time; the message continues "must be".
        zoneinfo.ZoneInfoNotFoundError: The zone is not known.
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
    """Parse a date with a time, and return it as local time of the zone."""
    day, _, rest = text.replace(" ", "t", 1).partition("t")
    if rest.index(":") == 1:
        rest = f"0{rest}"
    try:
        at = datetime.fromisoformat(f"{day}T{rest.upper()}")
    except ValueError:
        raise ValueError(FORM) from None
    return _text(at.astimezone(place) if at.tzinfo is not None else at.replace(tzinfo=place))


def _clock(text: str) -> time:
    """Parse a time of day."""
    match = _CLOCK.fullmatch(text)
    assert match is not None, f"{text} must have the form of a time of day"
    try:
        return time(int(match[1]), int(match[2]), int(match[3] or 0))
    except ValueError:
        raise ValueError(FORM) from None


def _next(day: str, clock: time, today: datetime, place: ZoneInfo, now: float) -> datetime:
    """Return the next local time with that clock time on the given day: "", "today", "tomorrow" or a weekday."""
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
    """Return a local time as text, with its offset only if it is the later one of two equal local times."""
    plain = at.replace(tzinfo=None, fold=0)
    form = plain.isoformat(timespec="minutes" if not plain.second else "seconds")
    if at.fold and at.utcoffset() != at.replace(fold=0).utcoffset():
        return form + at.isoformat()[-6:]
    return form


def epoch_of(day: date, clock: time, place: ZoneInfo, *, fold: int = 0) -> int:
    """Return the seconds since the epoch of a local time; with `fold` 1 of the later one, if it occurs twice."""
    local = datetime.combine(day, clock)
    if fold:
        return int(local.replace(tzinfo=place, fold=1).timestamp())
    return first_moment(local, place)


def times(spec: BookingSpec, since: float, until: float) -> Iterator[Time]:
    """Yield the occurrences of a booking that end after `since` and begin before `until`, in order."""
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
    """Return the first occurrence of a booking that is not over at `after`; None without one."""
    return next(times(spec, after, after + _AHEAD_S), None)


def time_after(spec: BookingSpec, day: str, now: float) -> Time | None:
    """Return the first occurrence of a booking on a later day than `day` that is not over yet; None without one."""
    occurrences = times(spec, now, now + _AHEAD_S)
    return next((occurrence for occurrence in occurrences if occurrence.day > day), None)


def moved(spec: BookingSpec, at: int) -> str:
    """Return `BookingSpec.begins` for a booking that begins at another time, in seconds since the epoch."""
    return _text(datetime.fromtimestamp(at, ZoneInfo(spec.zone)))


def shown(at: float, zone: str) -> str:
    """Return a time as text in a zone: Tue 2026-12-01 09:00."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    return local.strftime("%a %Y-%m-%d %H:%M" if not local.second else "%a %Y-%m-%d %H:%M:%S")
