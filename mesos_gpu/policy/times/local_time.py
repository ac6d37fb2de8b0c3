"""Local times of a time zone, including days with a clock change. Pure."""

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

DAY_S = 86400


def first_moment(local: datetime, place: ZoneInfo) -> int:
    """Return the first time at which the clocks of a zone show a local time or a later one, in seconds since the epoch.

    If clocks are set back and show it twice, that is the first of the two; if they are set forward and skip it, the
    time of the change.

    Args:
        local: Local time in whole seconds, without a zone.
        place: Time zone of the clock.
    """
    at = int(local.replace(tzinfo=place, fold=0).astimezone(UTC).timestamp())
    if shown_at(at, place) == local:
        return at
    # In a gap, fold 0 applies the offset from before it, so `at` lies as far after the change as `local` lies after the
    # begin of the gap: search the change before it.
    low, high = at - DAY_S, at
    while high - low > 1:
        middle = (low + high) // 2
        if shown_at(middle, place) < local:
            low = middle
        else:
            high = middle
    return high


def shown_at(moment: float, place: ZoneInfo) -> datetime:
    """Return the local time of a zone at a time in seconds since the epoch, without the zone."""
    return datetime.fromtimestamp(moment, place).replace(tzinfo=None)


def midnight(day: date, place: ZoneInfo) -> int:
    """Return the first time of a local day, in seconds since the epoch."""
    return first_moment(datetime.combine(day, time()), place)
