"""Moments as Marathon writes them: ISO 8601 in UTC, with milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=8192)  # of one moment there are many: an app says each of its versions several times
def stamp(moment: float) -> str:
    """Seconds since the epoch as "2015-02-03T12:30:00.000Z"."""
    time = datetime.fromtimestamp(round(moment, 3), UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


def moment(text: str) -> float:
    """The inverse.

    Raises:
        ValueError: It is none.
    """
    return datetime.fromisoformat(text).timestamp()
