"""Formatting and parsing of numbers and times in texts, without side effects."""

from typing import Final

_DAY_S: Final = 86400.0
_MAX_DIGITS: Final = 18  # Python refuses texts of more than 4,300


def whole_of(text: str) -> int | None:
    """Return the number in a text of 1 to 18 ASCII digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def counted(count: float, noun: str) -> str:
    """Return a number with its noun: `1 GPU`, `2 GPUs`, `0.25 GPUs`. The plural of the noun must be formed with -s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def is_or_are(count: float) -> str:
    """Return the verb for a number of things."""
    return "is" if count == 1 else "are"


def lasting(seconds: float) -> str:
    """Return a duration in at most two units: `42s`, `3m12s`, `2h05m`, `3d04h`. Negative ones count as 0."""
    whole = max(int(seconds), 0)  # the clocks of two hosts may differ
    for unit_s, part_s, unit, part in ((86400, 3600, "d", "h"), (3600, 60, "h", "m"), (60, 1, "m", "s")):
        if whole >= unit_s:
            return f"{whole // unit_s}{unit}{whole % unit_s // part_s:02}{part}"
    return f"{whole}s"


def clock(moment: float, now: float) -> str:
    """Return a time in UTC: the time of day if less than a day from `now`, as "10:02Z", else with the date."""
    from datetime import UTC, datetime  # executors import this module, but need no dates

    time = datetime.fromtimestamp(moment, UTC)
    return time.strftime("%H:%MZ" if abs(now - moment) < _DAY_S else "%Y-%m-%dT%H:%MZ")
