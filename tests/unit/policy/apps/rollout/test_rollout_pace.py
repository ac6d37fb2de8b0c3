"""Instances out of reach, and the delay of an app that keeps failing."""

import pytest

from mesos_gpu.model.apps.app import UnreachableStrategy
from mesos_gpu.policy.apps.rollout.pace import Fate, fate
from mesos_gpu.policy.queueing.backoff import delay_s

SLOW = UnreachableStrategy(inactive_after_s=60, expunge_after_s=600)
FATES = {
    "just cut off": (SLOW, 0.0, Fate.KEEP),
    "almost": (SLOW, 59.9, Fate.KEEP),
    "replaced": (SLOW, 60.0, Fate.REPLACE),
    "still not given up": (SLOW, 599.9, Fate.REPLACE),
    "given up": (SLOW, 600.0, Fate.FORGET),
    "Marathon's default: at once": (UnreachableStrategy(), 0.0, Fate.FORGET),
    "both at the same time": (UnreachableStrategy(60, 60), 60.0, Fate.FORGET),
    "the clock went back": (SLOW, -5.0, Fate.KEEP),
    "disabled": (None, 1e9, Fate.KEEP),
}


@pytest.mark.parametrize(("strategy", "away_s", "want"), FATES.values(), ids=FATES)
def test_unreachable_instance_is_replaced_and_expunged_by_its_strategy(
    strategy: UnreachableStrategy | None, away_s: float, want: Fate
) -> None:
    assert fate(strategy, 100.0, 100.0 + away_s) is want


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


@pytest.mark.parametrize(("failures", "first_s", "factor", "most_s", "want"), DELAYS.values(), ids=DELAYS)
def test_backoff_grows_with_failures_up_to_its_maximum(
    failures: int, first_s: float, factor: float, most_s: float, want: float
) -> None:
    assert delay_s(failures, first_s=first_s, factor=factor, most_s=most_s) == pytest.approx(want)
