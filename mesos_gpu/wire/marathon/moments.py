"""Times in Marathon's form: ISO 8601 in UTC with milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=8192)  # the times of an app's versions occur repeatedly
def stamp(moment: float) -> str:
    """Format seconds since the epoch as "2015-02-03T12:30:00.000Z"."""
    time = datetime.fromtimestamp(round(moment, 3), UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


def moment(text: str) -> float:
    """Parse a time in ISO 8601 into seconds since the epoch.

    Raises:
        ValueError: The text is not such a time.
    """
    return datetime.fromisoformat(text).timestamp()
