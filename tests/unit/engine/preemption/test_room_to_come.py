"""Room that comes of itself: jobs that end for reasons of their own spare others."""

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.tenancy import Stop
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    """Two borrowers of two queues, a node each, of which the one that would be stopped first has lost most."""
    world = Tenants()
    world.register()
    world.agents(2, 4)
    world.document(far=queue(notice_s=30.0), dev=queue(), ops=queue(shapes(1, 4)))
    world.runs("far", "far", 4)
    world.now += 3600
    world.runs("dev", "dev", 4)
    return world


def test_reclaim_waits_for_a_queue_that_is_drained(world: Tenants) -> None:
    world.document(far=queue(notice_s=30.0, stop=Stop.DRAIN), dev=queue(), ops=queue(shapes(1, 4)))
    assert not world.passes(1)
    world.submit("owner", queue="ops", gpus=4)
    assert world.passes(40) == {"far"}
    world.obeys()
    world.starts()
    assert world.job("owner").state is world.job("dev").state is JobState.RUNNING


def test_reclaim_waits_for_a_job_at_the_end_of_its_time(world: Tenants) -> None:
    world.document(far=queue(notice_s=30.0), dev=queue(notice_s=30.0), ops=queue(shapes(1, 4)))
    world.ends("dev")
    world.runs("short", "dev", 4, timeout_s=60.0, notice_s=30.0)
    world.passes(35)
    world.submit("owner", queue="ops", gpus=4)
    assert not world.passes(20)
    told = {name: world.state.work.round_of(world.job(name))[0].notice for name in ("short", "far")}
    assert told["short"] is not None
    assert told["far"] is None
    world.ends("short", "TASK_FINISHED")
    world.starts()
    assert world.job("owner").state is world.job("far").state is JobState.RUNNING


def test_reclaim_stops_other_jobs_when_a_drain_is_called_off(world: Tenants) -> None:
    world.document(far=queue(notice_s=30.0, stop=Stop.DRAIN), dev=queue(), ops=queue(shapes(1, 4)))
    world.submit("owner", queue="ops", gpus=4)
    assert not world.passes(10)
    world.document(far=queue(notice_s=30.0), dev=queue(), ops=queue(shapes(1, 4)))
    assert world.passes(20) == {"dev"}, "that loses less"


def test_reclaim_counts_no_drained_node_as_room(world: Tenants) -> None:
    host = next(iter(world.state.work.round_of(world.job("far")))).hostname
    world.feed(ev.DrainRequested(Target.NODE, host, "fan", "ann", 20.0))
    world.passes(1)
    world.submit("owner", queue="ops", gpus=4)
    assert "dev" in world.passes(15), "far leaves nothing to anybody"
    world.feed(ev.KillRequested(JobId("owner")))
