"""Notices for a booking, withdrawn when it has other nodes, is gone, or lasts on."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import BookingState
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tasks.notice import Notice
from tests.doubles.builders import gpu
from tests.unit.engine.bookings.worlds import HOUR, Booked

STOPPABLE = {"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}


def notice_of(world: Booked, name: str) -> Notice | None:
    """The notice that a job has, and that was not called off."""
    (task,) = world.state.work.round_of(world.job(name))
    return task.notice if task.notice is not None and task.notice.stands else None


def falls_ill(world: Booked, node: str, number: int) -> None:
    gpus = [gpu(f"{node}-{i}") for i in range(world.size[node])]
    gpus[number] = gpu(f"{node}-{number}", health=Health.SICK)
    world.report(node, *gpus)


@pytest.fixture
def told() -> Booked:
    """Two nodes of four GPUs, with a job each; the younger one was told to leave for the booking of a whole node."""
    world = Booked()
    world.up("n1", 4)
    world.up("n2", 4)
    world.book()
    world.run("old", gpus=4, **STOPPABLE)
    world.go(1800)
    world.run("young", gpus=2, **STOPPABLE)
    world.go(1800 - 75)
    world.run("waits", gpus=5)  # so offers are held
    world.go(10)
    assert notice_of(world, "young")
    assert not notice_of(world, "old")
    return world


def left_behind(world: Booked) -> str:
    """The node that the booking has."""
    (place,) = world.booking().places
    return str(place.agent_id)


def test_job_on_a_node_that_a_booking_has_left_goes_on_and_the_one_on_its_new_node_is_told(
    told: Booked,
) -> None:
    left = left_behind(told)
    held = told.on("young")
    free = next(i for i in range(4) if f"{left}-{i}" not in held)
    falls_ill(told, left, free)
    told.go(2)
    assert left_behind(told) != left
    assert not notice_of(told, "young")
    assert told.job("young").message == "it goes on: booking exam has other nodes"
    assert notice_of(told, "old")
    told.go(120)
    assert told.on("young") == held
    assert told.booking().is_active


def test_job_on_a_node_that_nothing_replaces_goes_on_too(told: Booked) -> None:
    other = {"n1": "n2", "n2": "n1"}[left_behind(told)]
    told.feed(ev.AgentLost(AgentId(other)))
    falls_ill(told, left_behind(told), next(i for i in range(4) if f"n2-{i}" not in told.on("young")))
    told.go(2)
    assert not told.booking().places
    assert not notice_of(told, "young")


def test_job_that_is_on_the_new_gpus_as_well_is_told_once() -> None:
    world = Booked()
    world.up("n1", 5)
    world.book()
    world.run("stoppable", gpus=2, **STOPPABLE)
    world.go(HOUR - 65)
    first = notice_of(world, "stoppable")
    assert first
    (place,) = world.booking().places
    falls_ill(world, "n1", next(int(g[-1]) for g in place.gpus if str(g) not in world.on("stoppable")))
    world.go(2)
    assert world.booking().places not in ((), (place,))
    assert notice_of(world, "stoppable") == first


def test_notice_for_two_bookings_is_withdrawn_when_neither_needs_the_job() -> None:
    world = Booked()
    world.up("n1", 4)
    world.book("first", lasts_s=60)
    world.book("second", begins="13:01")
    world.run("stoppable", gpus=4, preemptible=True, notice_s=600.0)
    world.go(HOUR - 500)
    assert {each.state for each in world.state.calendar.bookings.values()} == {BookingState.PREPARING}
    told = notice_of(world, "stoppable")
    assert told
    world.feed(ev.BookingCancelled("first"))
    assert notice_of(world, "stoppable") == told
    world.feed(ev.BookingCancelled("second"))
    assert not notice_of(world, "stoppable")


@pytest.mark.parametrize("how", ["cancelled", "over", "unused"])
def test_late_notice_is_withdrawn_when_the_booking_ends_first(how: str) -> None:
    world = Booked()
    world.up("n1", 4)
    world.run("other", gpus=4, preemptible=True, notice_s=600.0)
    world.book(begins="12:01", lasts_s=120, purge_after_s=60 if how == "unused" else 0)
    world.go(70)
    assert world.booking().is_active
    assert notice_of(world, "other")
    if how == "cancelled":
        world.feed(ev.BookingCancelled("exam"))
    else:
        world.go(120)
    assert world.booking().state.ended
    assert not notice_of(world, "other")
    world.go(900)
    assert world.on("other")


def test_notice_of_a_booking_end_is_withdrawn_when_it_is_extended() -> None:
    world = Booked()
    world.up("n1", 4)
    world.book()
    world.go(HOUR + 1)
    world.run("named", queue="exam", booking="exam", gpus=2, **STOPPABLE)
    world.run("magnetic", queue="exam", gpus=2, **STOPPABLE)
    world.go(HOUR - 65)
    assert notice_of(world, "named")
    assert notice_of(world, "magnetic")
    spec = world.booking().spec
    world.feed(ev.BookingChanged("exam", replace(spec, lasts_s=HOUR + 4)))
    assert notice_of(world, "named"), "it is to end all the same"
    world.feed(ev.BookingChanged("exam", replace(spec, lasts_s=HOUR + 4, overrun=True)))
    assert notice_of(world, "named"), "it goes nowhere else"
    assert not notice_of(world, "magnetic")
    world.feed(ev.BookingChanged("exam", replace(spec, lasts_s=2 * HOUR)))
    assert not notice_of(world, "named")
    world.go(HOUR)
    assert world.job("named").launches == 1
    assert notice_of(world, "named"), "it is told again before the new end"
