"""Jobs that ask for a booking and wait: at a limit of their queue, or for the GPUs that are booked."""

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from tests.unit.engine.bookings.worlds import HOUR, Booked
from tests.unit.engine.tenancy.worlds import most


@pytest.mark.parametrize("wait_s", [0, HOUR + 10], ids=["to begin", "active"])
def test_booking_makes_no_job_end_for_a_job_that_waits_at_a_limit(wait_s: int) -> None:
    world = Booked()
    queues = {"exam": QueueSpec(limit_gpus=most(2)), "rest": QueueSpec()}
    world.feed(ev.QueuesChanged(QueueDocument(queues=queues), 0))
    world.up("a", 4)
    world.up("b", 4)
    world.book()
    for name in ("one", "two"):
        assert world.run(name, queue="exam", priority=-5, preemptible=True).state is JobState.RUNNING
    world.go(wait_s)
    world.submit("asks", queue="exam", gpus=1, booking="exam", priority=5, cpus=0.1)
    world.go(40)
    assert world.job("asks").state is JobState.PENDING
    assert {str(task.preempted_for) for task in world.state.work.tasks.values()} == {"None"}


def test_booking_whose_gpus_are_in_use_is_what_a_job_waits_for_beside_free_nodes() -> None:
    world = Booked()
    world.feed(ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec()}), 0))
    world.up("a", 4)
    world.up("b", 4)
    world.book()
    world.go(HOUR + 10)
    assert world.run("first", queue="exam", gpus=4, booking="exam").state is JobState.RUNNING
    world.submit("second", queue="exam", gpus=1, booking="exam", cpus=0.1)
    world.go(5)
    assert world.job("second").state is JobState.PENDING
    told = why_of(world.state, world.settings, world.now, world.job("second"))
    assert told.summary == "waits: it runs on the GPUs of booking exam alone, and they are in use"
    assert told.funnel[-1].reason is Stage.BOOKING
    world.feed(ev.KillRequested(JobId("first")))
    world.go(20)
    assert world.runs("second")
