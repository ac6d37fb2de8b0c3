"""Bugs put into lend limits, limits and gangs on purpose: chaos finds each, and tells it shortly."""

from collections.abc import Callable

import pytest

from mesos_gpu.engine.queue import backlog
from mesos_gpu.engine.queue.barriers import AdmissionLimits
from tests.chaos import run as chaos
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs


def _limits_are_missing_in_plans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AdmissionLimits, "shortages", lambda barriers, job: {})


def _lend_limits_hold_at_starts_alone(patch: pytest.MonkeyPatch) -> None:
    """A share that grows is not asked what other queues keep."""
    patch.setattr(AdmissionLimits, "wait_of_lenders", lambda barriers, job, pool, milli: None)


def _room_of_gangs_is_given_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backlog, "given_up", lambda *asked: [])


BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str], tuple[float, ...]]] = {
    "limits are missing in plans": (
        _limits_are_missing_in_plans,
        {"no limit keeps a job waiting that others give way to"},
        chaos.QUEUES,
    ),
    "lend limits hold at starts alone": (
        _lend_limits_hold_at_starts_alone,
        {"nothing is lent beyond a lend limit"},
        chaos.LENDING,
    ),
    "room of gangs is given away": (
        _room_of_gangs_is_given_away,
        {"no job behind a gang has what the gang gave up"},
        chaos.RECLAIMS,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules", "mix"), BUGS.values(), ids=BUGS)
def test_chaos_of_limits_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None],
    rules: set[str],
    mix: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (mix,))
    assert_found(rules, monkeypatch)


@runs(2500)
def test_chaos_of_lending_finds_no_violation(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.LENDING,))
    assert_holds(steps, 3, "QueuesChanged", "JobSubmitted", "Launch")
