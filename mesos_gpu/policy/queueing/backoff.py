"""How long to wait before the next try. Pure."""

from math import log


def delay_s(failures: int, *, first_s: float, most_s: float, factor: float = 2.0) -> float:
    """The delay after that many failures in a row, seconds; 0 before any.

    `first_s` after the first, `factor` (at least 1) times as long after each further one, never above `most_s`: with
    an app's own numbers this is Marathon's `RateLimiter`.
    """
    if failures <= 0 or first_s <= 0:
        return 0.0
    if first_s >= most_s or (failures - 1) * log(factor) >= log(most_s / first_s):  # the power might overflow
        return most_s
    return first_s * factor ** (failures - 1)
