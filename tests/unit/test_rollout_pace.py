"""Instances out of reach, and the delay of an app that keeps failing."""

import pytest

from mesos_gpu.model.app import UnreachableStrategy
from mesos_gpu.policy.rollout.pace import Fate, delay_s, fate, next_change_at

SLOW = UnreachableStrategy(inactive_after_s=60, expunge_after_s=600)
FATES = {
    "just cut off": (SLOW, 0.0, Fate.KEEP, 160.0),
    "almost": (SLOW, 59.9, Fate.KEEP, 160.0),
    "replaced": (SLOW, 60.0, Fate.REPLACE, 700.0),
    "still not given up": (SLOW, 599.9, Fate.REPLACE, 700.0),
    "given up": (SLOW, 600.0, Fate.FORGET, None),
    "Marathon's default: at once": (UnreachableStrategy(), 0.0, Fate.FORGET, None),
    "both at the same time": (UnreachableStrategy(60, 60), 60.0, Fate.FORGET, None),
    "the clock went back": (SLOW, -5.0, Fate.KEEP, 160.0),
    "disabled": (None, 1e9, Fate.KEEP, None),
}


@pytest.mark.parametrize(("strategy", "away_s", "want", "change_at"), FATES.values(), ids=FATES)
def test_fate(
    strategy: UnreachableStrategy | None, away_s: float, want: Fate, change_at: float | None
) -> None:
    assert fate(strategy, 100.0, 100.0 + away_s) is want
    assert next_change_at(strategy, 100.0, 100.0 + away_s) == change_at


DELAYS = {
    "none failed": (0, 1.0, 1.15, 300.0, 0.0),
    "the first": (1, 1.0, 1.15, 300.0, 1.0),
    "the second": (2, 1.0, 1.15, 300.0, 1.15),
    "the eleventh": (11, 1.0, 1.15, 300.0, 1.15**10),
    "the last below the limit": (41, 1.0, 1.15, 300.0, 1.15**40),
    "the limit": (42, 1.0, 1.15, 300.0, 300.0),
    "for ever": (10**9, 1.0, 1.15, 300.0, 300.0),
    "begins above the limit": (1, 500.0, 1.15, 300.0, 300.0),
    "no backoff": (5, 0.0, 1.15, 300.0, 0.0),
    "no delay allowed": (5, 1.0, 2.0, 0.0, 0.0),
    "a factor of one": (10**9, 2.0, 1.0, 300.0, 2.0),
}


@pytest.mark.parametrize(("failures", "backoff_s", "factor", "most_s", "want"), DELAYS.values(), ids=DELAYS)
def test_delay(failures: int, backoff_s: float, factor: float, most_s: float, want: float) -> None:
    assert delay_s(failures, backoff_s=backoff_s, factor=factor, most_s=most_s) == pytest.approx(want)
