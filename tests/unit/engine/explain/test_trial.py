"""Trial of a document: it names the jobs that would be stopped and changes nothing; what it names comes true."""

import pytest

from mesos_gpu.engine.explain.trial import Trial
from mesos_gpu.model.queue_plan import PlannedReclaim
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from tests.doubles.builders import saved_of
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    """dev has all 8 GPUs of two nodes, guaranteed to it, and prod waits for a node."""
    world = Tenants()
    world.register()
    world.agents(2, 4)
    world.document(dev=queue(shapes(2, 4)), prod=queue())
    for i in range(4):
        world.runs(f"dev{i}", "dev", 2)
    world.submit("prod", queue="prod", gpus=4, preemptible=True)
    assert not world.passes(20)
    return world


def tried(world: Tenants, **queues: QueueSpec) -> tuple[PlannedReclaim, ...]:
    return Trial(world.state, world.settings, QueueDocument(queues=queues), world.now).reclaims()


def test_trial_of_a_document_names_the_jobs_that_are_then_stopped(world: Tenants) -> None:
    before, seats, charges = (
        saved_of(world.state),
        dict(world.state.quota.seats_given),
        world.state.quota.charges,
    )
    (reclaim,) = tried(world, dev=queue(shapes(1, 4)), prod=queue(shapes(1, 4)))
    assert (reclaim.taker, reclaim.queue) == ("prod", "prod")
    (giver,) = reclaim.room.givers
    assert (giver.queue, giver.gpus_milli) == ("dev", 4000)
    assert saved_of(world.state) == before
    assert (dict(world.state.quota.seats_given), world.state.quota.charges) == (seats, charges)
    assert world.seat_of("dev3") == "dev"
    assert not world.passes(20), "it was only tried"
    world.document(0.0, dev=queue(shapes(1, 4)), prod=queue(shapes(1, 4)))
    told = {str(task.job_id) for task in world.state.work.tasks.values() if task.preempted_for == "prod"}
    assert told == set(giver.jobs)


def test_trial_of_a_document_without_reclaims_names_no_jobs(world: Tenants) -> None:
    assert tried(world, dev=queue(shapes(2, 4)), prod=queue()) == ()
    assert tried(world, dev=queue(shapes(2, 4), fence=True), prod=queue()) == ()


def test_trial_of_a_document_names_jobs_that_an_earlier_version_spares(world: Tenants) -> None:
    smaller = {"dev": queue(shapes(1, 4)), "prod": queue(shapes(1, 4))}
    world.document(**smaller)
    assert not world.passes(20), "a change stops nobody"
    (reclaim,) = tried(world, **{**smaller, "more": queue()})
    assert reclaim.room.givers[0].queue == "dev"
