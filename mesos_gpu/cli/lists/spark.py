"""A series of numbers as one line of characters. Pure."""

import math
from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "·"


def spark(values: Sequence[float | None], *, most: float, width: int) -> str:
    """Bars of equal height for equal numbers, oldest first; a dot where nothing is known.

    Args:
        values: From 0 to `most`; None: not known.
        most: What a full bar stands for; above 0.
        width: How many bars at most; each is the mean of what is known of as many values.
    """
    if not values:
        return ""
    each = math.ceil(len(values) / width)
    first = len(values) % each  # the oldest bar has what is left over: the latest are whole
    groups = [values[max(end - each, 0) : end] for end in range(first or each, len(values) + 1, each)]
    return "".join(_bar(group, most) for group in groups)


def _bar(values: Sequence[float | None], most: float) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return _UNKNOWN
    part = min(max(sum(known) / len(known) / most, 0.0), 1.0)
    return _BARS[min(math.ceil(part * len(_BARS)) - 1, len(_BARS) - 1)] if part else _BARS[0]
