"""When an instance that is out of reach is replaced and given up. Pure."""

from enum import Enum

from mesos_gpu.model.apps.app import UnreachableStrategy


class Fate(Enum):
    """What becomes of an instance whose agent is cut off."""

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
