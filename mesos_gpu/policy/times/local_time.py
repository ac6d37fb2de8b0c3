"""Moments by the clock of a place: on the days when it is set forward or back, too. Pure."""

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

DAY_S = 86400


def first_moment(local: datetime, place: ZoneInfo) -> int:
    """When the clock of a place first shows a time, or a later one, seconds since the epoch.

    Where clocks are set back and show it twice, that is the first of the two; where they are set forward and skip it,
    the moment at which they are set.

    Args:
        local: By that clock, in whole seconds, without a zone.
        place: Its zone.
    """
    at = int(local.replace(tzinfo=place, fold=0).astimezone(UTC).timestamp())
    if shown_at(at, place) == local:
        return at
    # In a gap, fold 0 gives the offset before it: the time that it names is as far after the gap's end as the one that
    # is looked for is after its begin.
    low, high = at - DAY_S, at
    while high - low > 1:
        middle = (low + high) // 2
        if shown_at(middle, place) < local:
            low = middle
        else:
            high = middle
    return high


def shown_at(moment: float, place: ZoneInfo) -> datetime:
    """What the clock of a place shows at a moment, seconds since the epoch, without its zone."""
    return datetime.fromtimestamp(moment, place).replace(tzinfo=None)


def midnight(day: date, place: ZoneInfo) -> int:
    """The first moment of a day, seconds since the epoch."""
    return first_moment(datetime.combine(day, time()), place)
