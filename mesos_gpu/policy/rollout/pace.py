"""When an instance that is out of reach is replaced and given up, and how long a failing app waits. Pure."""

from enum import Enum
from math import log

from mesos_gpu.model.app import UnreachableStrategy


class Fate(Enum):
    """Of an instance whose agent is cut off."""

    KEEP = "keep"  # it counts as one of its app's
    REPLACE = "replace"  # another one is started; should it come back, one is too many
    FORGET = "forget"  # it is gone for good; should it come back, it is killed


def fate(strategy: UnreachableStrategy | None, since: float, now: float) -> Fate:
    """What holds at `now` for an instance that is out of reach `since`. Without a strategy it is kept for ever."""
    if strategy is None:
        return Fate.KEEP
    away_s = now - since
    if away_s >= strategy.expunge_after_s:
        return Fate.FORGET
    return Fate.REPLACE if away_s >= strategy.inactive_after_s else Fate.KEEP


def next_change_at(strategy: UnreachableStrategy | None, since: float, now: float) -> float | None:
    """When `fate` will say something else; None: never."""
    if strategy is None:
        return None
    times = (since + strategy.inactive_after_s, since + strategy.expunge_after_s)
    return min((at for at in times if at > now), default=None)


def delay_s(failures: int, *, backoff_s: float, factor: float, most_s: float) -> float:
    """How long an app waits before its next launch, after `failures` in a row: Marathon's `RateLimiter`.

    `backoff_s` after the first, `factor` (at least 1) times as long after each further one, at most `most_s`.
    """
    if failures <= 0 or backoff_s <= 0:
        return 0.0
    if backoff_s >= most_s or (failures - 1) * log(factor) >= log(
        most_s / backoff_s
    ):  # the power might overflow
        return most_s
    return backoff_s * factor ** (failures - 1)
