"""Who is guaranteed GPUs gets them from borrowers: on real nodes, at the least loss, and from nobody who has a seat."""

import pytest

from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import MinRuntime
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    return world


def test_what_was_borrowed_goes_back_to_whom_it_is_guaranteed(world: Tenants) -> None:
    world.agents(2, 4)
    world.document(dev=queue(shapes(1, 4)), prod=queue(shapes(1, 4)))
    for i in range(4):
        world.runs(f"dev{i}", "dev", 2)
    assert [world.seat_of(f"dev{i}") for i in range(4)] == ["dev", "dev", None, None]
    world.submit("prod", queue="prod", gpus=4)
    assert world.passes(5) == {"dev2", "dev3"}, "the two that borrow; the others have seats"
    world.obeys()
    world.starts()
    assert world.job("prod").state is JobState.RUNNING
    assert world.seat_of("prod") == "prod"
    assert {name: world.job(name).state for name in ("dev0", "dev1", "dev2", "dev3")} == {
        "dev0": JobState.RUNNING, "dev1": JobState.RUNNING, "dev2": JobState.PENDING, "dev3": JobState.PENDING,
    }  # fmt: skip
    assert not world.passes(60), "nobody is stopped for those that were"
    world.ends("prod")
    world.starts()
    assert world.job("dev2").state is world.job("dev3").state is JobState.RUNNING


def test_nobody_with_a_seat_is_stopped_though_gpus_are_guaranteed_twice(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue(4))
    world.runs("dev0", "dev", 4)
    world.submit("prod", queue="prod", gpus=2, priority=99)
    assert not world.passes(30)


def test_priority_counts_in_a_queue_and_not_beyond_it(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue())
    world.runs("dev0", "dev", 2)
    world.runs("dev1", "dev", 2)
    world.submit("alien", queue="prod", gpus=2, priority=99)
    assert not world.passes(30)
    world.submit("urgent", queue="dev", gpus=2, priority=9)
    stopped = world.passes(10)
    assert len(stopped) == 1, [(t.id, t.evicted) for t in world.state.tasks.values()]


def test_a_gang_of_two_nodes_gets_the_nodes_that_it_is_guaranteed(world: Tenants) -> None:
    world.agents(3, 4)
    world.document(dev=queue(shapes(1, 4)), prod=queue(shapes(2, 4)))
    for i in range(12):
        world.runs(f"dev{i}", "dev", 1)
    world.submit("gang", queue="prod", gpus=4, tasks=2)
    assert world.passes(8) == {f"dev{i}" for i in range(4, 12)}
    world.obeys()
    assert world.job("gang").state is JobState.STARTING


def test_a_borrower_is_left_alone_for_its_minimum_run_time(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(min_runtime_s=MinRuntime(60.0, 600.0)), prod=queue(4))
    world.runs("dev0", "dev", 4)
    started = world.now
    world.submit("prod", queue="prod", gpus=4)
    assert not world.passes(started + 59 - world.now)
    assert world.passes(3) == {"dev0"}
    assert world.job("dev0").stopped == 0, "not before it has ended"
