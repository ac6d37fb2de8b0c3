"""Replacement of unreachable instances. Pure."""

from enum import Enum

from mesos_gpu.model.apps.app import UnreachableStrategy


class Fate(Enum):
    """Treatment of an instance whose agent is unreachable."""

    KEEP = "keep"  # it counts as an instance of its app
    REPLACE = "replace"  # another one is started; if it comes back, one is surplus
    FORGET = "forget"  # it is given up; if it comes back, it is killed


def fate(strategy: UnreachableStrategy | None, since: float, now: float) -> Fate:
    """Return the treatment at `now` of an instance that is unreachable since `since`; without a strategy it is kept."""
    if strategy is None:
        return Fate.KEEP
    away_s = now - since
    if away_s >= strategy.expunge_after_s:
        return Fate.FORGET
    return Fate.REPLACE if away_s >= strategy.inactive_after_s else Fate.KEEP
