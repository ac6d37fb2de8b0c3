"""Handlers of events change only the parts of the state that they declare."""

from collections.abc import Callable

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import PARTS
from mesos_gpu.engine.step import HANDLERS, Handler
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId, OfferId
from tests.chaos import world as chaos
from tests.chaos.violation import Violation
from tests.doubles.builders import World

RESCINDED = ev.OfferRescinded(OfferId("gone"))


def suppress(turn: Turn) -> None:
    turn.state.mesos.suppressed = not turn.state.mesos.suppressed


def note_report(turn: Turn) -> None:
    turn.state.gpus.gpu_work.reported.add(AgentId("a0"))


def note_drafts(turn: Turn) -> None:
    turn.state.work.members.drafts[JobId("a")] = {}


#: Changes of parts that OfferRescinded does not declare, and the fields that a failure names.
UNDECLARED = {
    "of a field": (suppress, "suppressed of mesos"),
    "of a set in a field": (note_report, "gpu_work of gpus"),
    "of a dict in a field": (note_drafts, "members of work"),
}


def take_by(change: Callable[[Turn], None], *changes: str) -> Handler:
    """A handler that makes a change."""
    return Handler(lambda turn, _: change(turn), frozenset(changes))


@pytest.mark.parametrize("event", HANDLERS, ids=lambda event: event.__name__)
def test_handler_declares_parts_of_the_state(event: type) -> None:
    assert set(PARTS) >= HANDLERS[event].changes != set()


@pytest.mark.parametrize(("change", "words"), UNDECLARED.values(), ids=UNDECLARED)
def test_undeclared_change_of_a_part_is_found(
    change: Callable[[Turn], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HANDLERS, ev.OfferRescinded, take_by(change, "cluster"))
    with pytest.raises(AssertionError, match=f"OfferRescinded has changed {words}"):
        World().feed(RESCINDED)


def test_undeclared_change_of_a_part_is_found_in_a_chaos_world(monkeypatch: pytest.MonkeyPatch) -> None:
    world = chaos.World(5, closely=True)
    monkeypatch.setitem(HANDLERS, ev.OfferRescinded, take_by(suppress, "cluster"))
    world.inbox.append(RESCINDED)
    with pytest.raises(Violation, match="OfferRescinded has changed suppressed of mesos"):
        world.flush()


def test_declared_change_of_a_part_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, ev.OfferRescinded, take_by(suppress, "mesos"))
    World().feed(RESCINDED)
