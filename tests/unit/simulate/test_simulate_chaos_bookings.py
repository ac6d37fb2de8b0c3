"""Chaos with bookings, nodes of them that are lost, and clocks that pass begins: it holds, and bugs are found."""

from collections.abc import Callable

import pytest

from mesos_gpu.engine.bookings import choosing, ticking, using
from mesos_gpu.engine.calendar.booked import Booked
from mesos_gpu.engine.preemption import recalls as of_plans
from tests.chaos import run as chaos
from tests.chaos.rules import bookings as rules_of
from tests.chaos.rules import charges, recalls
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs


@pytest.fixture(autouse=True)
def _bookings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.BOOKINGS,))


@runs(1200)
def test_chaos_of_bookings_finds_no_violation(steps: int) -> None:
    assert_holds(steps, 1, "BookingMade", "BookingChanged", "BookingCancelled", "Launch", "GiveNotice")


# --- bugs put in on purpose


def _nodes_are_chosen_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choosing._Choice, "_taken", lambda choice, booking: set())


def _anything_starts_on_what_is_booked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Booked, "in_way", lambda booked, job, ends_at, kept: False)


def _nobody_is_told_before_the_begin(patch: pytest.MonkeyPatch) -> None:
    """Nodes are chosen, and who is there is not looked at."""
    patch.setattr(ticking, "on_places", lambda turn, booking, places: {})


def _a_lost_node_is_not_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choosing._Choice, "replace_unsound", lambda choice, booking: None)


def _idle_is_counted_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(using, "min", lambda now, ends: now, raising=False)


def _whoever_was_told_is_let_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(of_plans, "_needless", lambda turn, taker: "somebody says so")


BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "a booking's nodes are chosen twice": (_nodes_are_chosen_twice, {rules_of.ONCE}),
    "anything starts on what is booked": (
        _anything_starts_on_what_is_booked,
        {rules_of.FOR, rules_of.BEFORE},
    ),
    "nobody is told before the begin": (_nobody_is_told_before_the_begin, {rules_of.FOR}),
    "idle is counted beyond the end": (_idle_is_counted_beyond_the_end, {charges.IDLE}),
    "whoever was told is let go on": (_whoever_was_told_is_let_go_on, {recalls.CALLED_OFF}),
    "a lost node is not replaced": (_a_lost_node_is_not_replaced, {rules_of.KEPT, rules_of.LIFE}),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_chaos_of_bookings_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert_found(rules, monkeypatch)
