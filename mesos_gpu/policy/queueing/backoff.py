"""Delays before the next attempt. Pure."""

from math import log
from typing import Final

MAX_PATIENCE: Final = 15  # times the shortest wait for an answer


def delay_s(failures: int, *, first_s: float, most_s: float, factor: float = 2.0) -> float:
    """Return the delay in seconds after that many failures in a row; 0 before any.

    It is `first_s` after the first failure, `factor` (at least 1) times as long after each further one, and never above
    `most_s`: with an app's own numbers this is Marathon's `RateLimiter`.
    """
    if failures <= 0 or first_s <= 0:
        return 0.0
    if first_s >= most_s or (failures - 1) * log(factor) >= log(most_s / first_s):  # the power might overflow
        return most_s
    return first_s * factor ** (failures - 1)


def patience_s(silent_s: float, least_s: float) -> float:
    """Return seconds to wait for an answer before a request is sent again: a quarter of the time that none has come.

    Args:
        silent_s: Time since the first request, in seconds.
        least_s: Shortest wait, in seconds; the longest is `MAX_PATIENCE` times that.
    """
    return min(max(least_s, silent_s / 4), MAX_PATIENCE * least_s)
