"""Charges of a booking for GPUs that stood ready and were not used."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import BookingState, Charge
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.shares.units import WHOLE
from tests.doubles.builders import every
from tests.unit.engine.bookings.worlds import HOUR, Booked


def charged_gpu_s(effects: list[fx.Effect]) -> float:
    """GPU seconds of the only record."""
    ((span, ends_ms),) = [(each.record.span, each.record.ends_ms) for each in every(effects, KeepRecord)]
    return sum(part.gpu_milli for part in span.parts) / WHOLE * (ends_ms - span.begins_ms) / 1000


def world(nodes: int = 1) -> Booked:
    made = Booked()
    made.up("n1", 4)
    made.up("n2", 4)
    made.book(purge_after_s=0, charge=Charge.IDLE, nodes=nodes)
    return made


def test_booking_is_not_charged_after_its_end_while_no_scheduler_ran() -> None:
    made = world()
    made.go(HOUR + 1)
    made.now += 3 * HOUR
    assert charged_gpu_s(made.feed(ev.Tick())) == pytest.approx(4 * HOUR, rel=0.01)


def test_booking_is_charged_for_a_lacking_node_from_when_it_has_it() -> None:
    made = world(nodes=2)
    made.feed(ev.AgentLost(AgentId("n2")))
    made.go(HOUR + 1)
    assert [place.agent_id for place in made.booking().places] == ["n1"]
    made.go(HOUR / 2)
    made.up("n3", 4)
    assert charged_gpu_s(made.go(HOUR / 2 + 1)) == pytest.approx(4 * HOUR + 4 * HOUR / 2, rel=0.01)


def test_booking_is_charged_for_no_more_than_booked_when_a_clock_is_set_back() -> None:
    made = world()
    made.go(HOUR + 1800)
    made.run("short", queue="exam", timeout_s=60.0)
    made.now -= 2 * HOUR
    made.go(60)
    made.status(made.state.work.round_of(made.job("short"))[0].id, "TASK_FINISHED", agent="n1")
    assert charged_gpu_s(made.go(3 * HOUR)) == pytest.approx(4 * HOUR, rel=0.01)


def test_booking_purge_does_not_count_before_a_begin_that_comes_again() -> None:
    made = Booked()
    made.up("n1", 4)
    made.up("n2", 4)
    made.book(purge_after_s=600)
    made.go(HOUR + 5)
    (place,) = made.booking().places
    made.now -= 900
    made.feed(ev.AgentLost(place.agent_id))
    made.go(895 + 590)
    assert made.booking().is_active
    made.go(20)
    assert made.booking().state is BookingState.RETURNED
