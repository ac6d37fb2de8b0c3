"""Ranges of uids from which each task gets one of its own."""

from typing import Final

POOL: Final = "MESOS_GPU_USER_POOL"  # environment variable of executors
_MIN, _LAST = 1000, 2**32 - 2  # lower ones belong to the system; (uid_t) -1 is invalid


def parse_pool(text: str) -> range:
    """Parse a range such as `60000-60999`; "" is the empty range.

    Raises:
        ValueError: The text is not a range, or includes users of the system.
    """
    if not text:
        return range(0)
    first, _, last = text.partition("-")
    good = all(word.isascii() and word.isdigit() for word in (first, last))
    if not good or not _MIN <= int(first) <= int(last) <= _LAST:
        raise ValueError(f"{text!r} is not a range FIRST-LAST of uids from {_MIN} on, such as 60000-60999")
    return range(int(first), int(last) + 1)
