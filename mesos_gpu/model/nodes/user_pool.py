"""The range of uids of which tasks get one each."""

from typing import Final

POOL: Final = "MESOS_GPU_USER_POOL"  # of executors
_MIN, _LAST = 1000, 2**32 - 2  # below are the system's; (uid_t) -1 is none


def parse_pool(text: str) -> range:
    """`60000-60999`; "": empty.

    Raises:
        ValueError: It is no range, or goes over users of the system.
    """
    if not text:
        return range(0)
    first, _, last = text.partition("-")
    good = all(word.isascii() and word.isdigit() for word in (first, last))
    if not good or not _MIN <= int(first) <= int(last) <= _LAST:
        raise ValueError(f"{text!r} is not FIRST-LAST, uids from {_MIN} on, as 60000-60999")
    return range(int(first), int(last) + 1)
