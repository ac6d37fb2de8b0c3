"""A series of numbers as a line of bar characters. Pure function."""

import math
from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "·"


def spark(values: Sequence[float | None], *, most: float, width: int) -> str:
    """Return one bar per group of values, oldest first; a dot for unknown values.

    Args:
        values: Values from 0 to `most`; None if not known.
        most: Value of a full bar; above 0.
        width: Maximum number of bars; each is the mean of equally many values.
    """
    if not values:
        return ""
    group_size = math.ceil(len(values) / width)
    first = len(values) % group_size  # the oldest bar has the remainder, so that the latest are complete
    groups = [
        values[max(end - group_size, 0) : end]
        for end in range(first or group_size, len(values) + 1, group_size)
    ]
    return "".join(_bar(group, most) for group in groups)


def _bar(values: Sequence[float | None], most: float) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return _UNKNOWN
    part = min(max(sum(known) / len(known) / most, 0.0), 1.0)
    return _BARS[min(math.ceil(part * len(_BARS)) - 1, len(_BARS) - 1)] if part else _BARS[0]
