"""What a booking is charged for GPUs that stood ready and that nobody used."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import BookingState, Charge
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.testing.builders import every
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


def test_nobody_is_charged_for_the_time_after_its_end_at_which_no_scheduler_ran() -> None:
    made = world()
    made.go(HOUR + 1)
    made.now += 3 * HOUR
    assert charged_gpu_s(made.feed(ev.Tick())) == pytest.approx(4 * HOUR, rel=0.01)


def test_a_node_that_was_lacking_is_charged_from_when_it_is_had() -> None:
    made = world(nodes=2)
    made.feed(ev.AgentLost(AgentId("n2")))
    made.go(HOUR + 1)
    assert [place.agent_id for place in made.booking().places] == ["n1"]
    made.go(HOUR / 2)
    made.up("n3", 4)
    assert charged_gpu_s(made.go(HOUR / 2 + 1)) == pytest.approx(4 * HOUR + 4 * HOUR / 2, rel=0.01)


def test_a_clock_that_is_set_back_lets_nobody_be_charged_for_more_than_is_booked() -> None:
    made = world()
    made.go(HOUR + 1800)
    made.run("short", queue="exam", timeout_s=60.0)
    made.now -= 2 * HOUR
    made.go(60)
    made.status(made.state.round_of(made.job("short"))[0].id, "TASK_FINISHED", agent="n1")
    assert charged_gpu_s(made.go(3 * HOUR)) == pytest.approx(4 * HOUR, rel=0.01)


def test_nobody_has_to_use_it_before_its_begin_which_comes_again_when_the_clock_is_set_back() -> None:
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
