"""Changed trees of queues: no job is stopped, unless a time is given for borrowers to give back."""

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.errors import Conflict
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import QueueDocument
from tests.unit.engine.tenancy.lending import Tenants, queue


@pytest.fixture
def world() -> Tenants:
    """Two jobs of one queue hold all that there is, and are guaranteed it; one of another queue waits."""
    world = Tenants()
    world.register()
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue())
    world.runs("dev0", "dev", 2)
    world.runs("dev1", "dev", 2)
    return world


def change(world: Tenants, after_s: float | None = None) -> None:
    """Half of it is guaranteed to the other queue from now on."""
    world.document(after_s, dev=queue(2), prod=queue(2))


def test_job_that_lost_its_seat_to_a_new_tree_runs_to_its_end(world: Tenants) -> None:
    change(world)
    world.submit("prod0", queue="prod", gpus=2)
    assert not world.passes(60)
    assert [world.seat_of(name) for name in ("dev0", "dev1")] == ["dev", None]
    world.ends("dev1")
    world.starts()
    assert world.job("prod0").state is JobState.RUNNING


def test_job_spared_by_a_new_tree_gives_back_after_the_time_given(world: Tenants) -> None:
    change(world, 30.0)
    world.submit("prod0", queue="prod", gpus=2)
    assert not world.passes(28)
    assert world.passes(5) == {"dev1"}


def test_reclaim_time_may_be_given_later_for_the_same_tree(world: Tenants) -> None:
    change(world)
    world.submit("prod0", queue="prod", gpus=2)
    assert not world.passes(10)
    before = world.state.quota.queues.version
    change(world)
    assert world.state.quota.queues.version == before, "it says what the latest says"
    change(world, 0.0)
    assert world.state.quota.queues.version == before + 1
    assert world.passes(30) == {"dev1"}


def test_job_spared_by_a_new_tree_is_spared_no_longer_once_it_restarts(world: Tenants) -> None:
    change(world)
    world.passes(3)
    assert world.job("dev1").spared_until
    for task in world.state.work.round_of(world.job("dev1")):
        world.status(task.id, "TASK_LOST", agent=task.agent_id)
    assert not world.job("dev1").spared_until


def test_tree_that_leaves_out_a_queue_with_jobs_is_refused(world: Tenants) -> None:
    version = world.state.quota.queues.version
    with pytest.raises(Conflict, match=r"dev \(2: dev0, dev1\)"):
        world.feed(ev.QueuesChanged(QueueDocument(queues={"prod": queue()}), version))
    assert world.state.quota.queues.version == version
