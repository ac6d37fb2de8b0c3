"""Chaos with arrays, idle GPUs, bookings, hours and pools in one world: it holds, and a bug of each is found there."""

from collections.abc import Callable

import pytest

from tests.chaos import run as chaos
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs
from tests.unit.simulate.test_simulate_chaos_arrays import BUGS as OF_ARRAYS
from tests.unit.simulate.test_simulate_chaos_bookings import BUGS as OF_BOOKINGS
from tests.unit.simulate.test_simulate_chaos_idle import BUGS as OF_IDLE_GPUS

BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    name: bugs[name]
    for bugs, name in (
        (OF_ARRAYS, "a limit is passed after a restart"),
        (OF_BOOKINGS, "a booking's nodes are chosen twice"),
        (OF_IDLE_GPUS, "unknown is taken for idle"),
    )
}


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.TOGETHER,))


@runs(1200)
def test_chaos_of_all_features_together_finds_no_violation(steps: int) -> None:
    assert_holds(steps, 1, "BookingMade", "ArrayKillRequested", "KeepAsked", "QueuesChanged", "GiveNotice")


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_chaos_of_all_features_together_finds_a_seeded_bug(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert_found(rules, monkeypatch)
