"""The ground of bookings: the GPUs that are sound, and the times of all that is booked."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.bookings.ground import booked_items, ground_of
from mesos_gpu.model.bookings.booking import DAY_S, Repeat
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tenancy import DEFAULT_POOL, Pool, QueueDocument, QueueSpec
from tests.doubles.builders import gpu
from tests.unit.engine.bookings.worlds import HOUR, NOON, Booked


@pytest.fixture
def world() -> Booked:
    made = Booked()
    made.up("n1", 4)
    made.up("n2", 2, "T4")
    return made


def begins(world: Booked, **fields: object) -> list[tuple[str, float]]:
    items = booked_items(world.state, world.now, **fields)  # type: ignore[arg-type]
    return [(item.booking, (item.begins - NOON) / HOUR) for item in items]


def test_booked_times_are_all_of_a_booking_that_repeats(world: Booked) -> None:
    world.book("once")
    world.book("daily", gpus=2, begins="15:00", repeat=Repeat.DAILY)
    days = 40
    wanted = [("daily", 3.0 + 24 * day) for day in range(days)]
    assert begins(world, until=NOON + days * DAY_S) == [("once", 1.0), *wanted]


def test_booked_times_end_with_those_that_begin_before_the_asked_time(world: Booked) -> None:
    world.book("daily", gpus=2, begins="15:00", repeat=Repeat.DAILY)
    at = NOON + 27 * HOUR
    assert begins(world, until=at) == [("daily", 3.0)]
    assert begins(world, until=at + 1) == [("daily", 3.0), ("daily", 27.0)]


def test_booked_times_leave_one_booking_and_those_that_are_over_out(world: Booked) -> None:
    world.book("first")
    world.book("second", gpus=2, begins="15:00")
    assert begins(world) == [("first", 1.0), ("second", 3.0)]
    assert begins(world, without="first") == [("second", 3.0)]
    world.go(2.5 * HOUR)
    assert world.booking("first").state.ended
    assert begins(world) == [("second", 3.0)]


def bins(world: Booked) -> list[tuple[str, str, int]]:
    return sorted((each.node, each.model, each.gpus) for each in ground_of(world.state).bins)


def test_ground_has_the_gpus_that_are_sound(world: Booked) -> None:
    assert bins(world) == [("n1", "A100", 4), ("n2", "T4", 2)]
    cards = [gpu(f"n1-{i}") for i in range(4)]
    world.report(
        "n1", replace(cards[0], health=Health.UNKNOWN), replace(cards[1], health=Health.SICK), *cards[2:]
    )
    assert bins(world) == [("n1", "A100", 2), ("n2", "T4", 2)]
    world.feed(ev.AgentLost(AgentId("n2")))
    assert bins(world) == [("n1", "A100", 2)]


def test_ground_has_the_pool_and_the_cost_of_each_node(world: Booked) -> None:
    document = QueueDocument(
        queues={"exam": QueueSpec()}, gpu_cost={"A100": 3}, pools=(Pool("old", models=("T4",)),)
    )
    places = {each.node: (each.pool, each.cost) for each in ground_of(world.state, document).bins}
    assert places == {"n1": (DEFAULT_POOL, 3), "n2": ("old", 1)}
    assert {each.cost for each in ground_of(world.state).bins} == {1}, "without a tree all cost the same"
