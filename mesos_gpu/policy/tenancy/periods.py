"""Begin and end of budget periods: at midnight of a time zone, with days of 23, 24 or 25 hours. Pure."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.tenancy import Period
from mesos_gpu.policy.times.local_time import midnight

_MONTHS: Final = {Period.MONTH: 1, Period.QUARTER: 3, Period.YEAR: 12}
_DAYS: Final = {Period.DAY: 1, Period.WEEK: 7}
_MONDAY: Final = date(1970, 1, 5)


@dataclass(frozen=True, slots=True)
class Span:
    """Budget period in seconds since the epoch, without `ends` itself; `index` grows by one with each period."""

    index: int
    begins: int
    ends: int


def period_at(period: Period, zone: str, now: float) -> Span:
    """Return the budget period that contains a time.

    Args:
        period: Kind of the period, such as a month.
        zone: Name of the time zone at whose midnight periods begin.
        now: Time in seconds since the epoch.

    Raises:
        ValueError: The period does not repeat (`once`).
        zoneinfo.ZoneInfoNotFoundError: The zone is not known.
    """
    place = ZoneInfo(zone)
    today = datetime.fromtimestamp(now, place).date()
    index = _index_of(period, today)
    begins = midnight(_first_day(period, index), place)
    if now < begins:  # a day whose midnight a clock change skips begins later than its date
        index -= 1
        begins = midnight(_first_day(period, index), place)
    return Span(index, begins, midnight(_first_day(period, index + 1), place))


def once(begins: str, ends: str, zone: str) -> Span:
    """Return the span from the midnight of `begins` to that of `ends`; both are ISO dates.

    Raises:
        ValueError: One of the two is not a date.
        zoneinfo.ZoneInfoNotFoundError: The zone is not known.
    """
    place = ZoneInfo(zone)
    return Span(0, midnight(date.fromisoformat(begins), place), midnight(date.fromisoformat(ends), place))


def _index_of(period: Period, day: date) -> int:
    """Return the number of the period that contains a day."""
    if period in _DAYS:
        return (day - _MONDAY).days // _DAYS[period]
    if period in _MONTHS:
        return (day.year * 12 + day.month - 1) // _MONTHS[period]
    raise ValueError(f"a budget with period {period.value} does not repeat: it has no calendar period")


def _first_day(period: Period, index: int) -> date:
    """Return the first day of a period by its number."""
    if period in _DAYS:
        return _MONDAY + timedelta(days=index * _DAYS[period])
    year, month = divmod(index * _MONTHS[period], 12)
    return date(year, month + 1, 1)
