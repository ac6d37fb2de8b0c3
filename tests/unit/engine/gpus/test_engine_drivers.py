"""Jobs that need a driver as new as this or that: where they go, and what is learnt of their images."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.saves import SaveJob
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.task import TaskState
from tests.doubles.builders import World, every, gpu, offer, saved_of

TOO_OLD = Outcome(min_driver="550", needs="CUDA 12.4 or newer")
SAYS = (
    "nvidia/cuda cannot run here: the image needs CUDA 12.4 or newer; this host's driver 535.1 runs CUDA 12.2"
)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def two_nodes(world: World) -> None:
    world.node("old", gpu("g0"), driver="535.9-open")
    world.node("new", gpu("g1"), gpu("g2"), driver="550.54.14")


def host(world: World, name: str = "j1") -> str | None:
    job = world.job(name)
    return world.state.work.tasks[job.task_id].agent_id if job.task_id else None


@pytest.mark.parametrize(
    ("gpus", "least", "agent"),
    [
        (1, None, "old"),  # it has least to spare
        (1, "535.9", "old"),
        (1, "535.104", "new"),
        (1, "551", None),
        (0, "535.104", "new"),
        (0, "551", None),
    ],
)
def test_job_goes_where_the_driver_is_as_new(
    world: World, gpus: int, least: str | None, agent: str | None
) -> None:
    two_nodes(world)
    world.offers(offer("o-plain", "plain"))
    world.submit(gpus=gpus, min_driver=least)
    assert host(world) == agent


def test_job_waits_for_a_driver_and_keeps_nobody_up(world: World) -> None:
    two_nodes(world)
    world.submit("first", gpus=1, min_driver="560")
    world.submit("second", gpus=1)
    assert (world.job("first").state, host(world, "second")) == (JobState.PENDING, "old")
    world.report("new", gpu("g1"), gpu("g2"), driver="560.28.03")
    assert host(world, "first") == "new"


def test_unreadable_report_is_no_driver(world: World) -> None:
    two_nodes(world)
    monitor = world.state.cluster.nodes[AgentId("new")].monitor
    assert monitor is not None
    world.status(monitor, "TASK_RUNNING", agent="new", data=b"{}")
    world.submit(min_driver="535.104")
    assert host(world) is None


def test_driver_need_of_an_image_is_learnt_from_its_failure(world: World) -> None:
    two_nodes(world)
    world.submit(gpus=1, image="nvidia/cuda", max_attempts=1)
    assert host(world) == "old"
    effects = world.status("j1.1", "TASK_FAILED", agent="old", outcome=TOO_OLD, message=SAYS)
    job = world.job()
    assert (job.learnt_min_driver, job.image_needs, job.spec.min_driver) == (
        "550",
        "CUDA 12.4 or newer",
        None,
    )
    assert (job.attempts, job.infrastructure_failures) == (0, 0)
    assert (host(world), job.launches) == ("new", 2), "without a back-off: the node was not at fault"
    assert world.state.work.tasks[TaskId("j1.1")].state is TaskState.LOST
    assert every(effects, SaveJob)[0].job.learnt_min_driver == "550"
    assert world.state.gpus.contested == {}


def test_job_with_a_learnt_driver_need_waits_over_a_restart_and_never_goes_back(world: World) -> None:
    world.node("old", gpu("g0"), driver="535.9")
    world.submit(gpus=1)
    world.status("j1.1", "TASK_FAILED", agent="old", outcome=TOO_OLD, message=SAYS)
    assert (world.job().state, world.job().message) == (JobState.PENDING, SAYS)
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    world.offers(offer("o8", "old", gpus=1))
    world.report("old", gpu("g0"), driver="535.9")
    assert every(world.tick(300), fx.Launch) == []
    view = View(world.state, world.settings, world.now)
    why = explain_job(view, JobId("j1"))
    assert why.summary == "the image needs CUDA 12.4 or newer, driver 550; old.example has 535.9"
    assert not why.can_ever_run
    world.report("old", gpu("g0"), driver="550.54.14")  # the host was upgraded
    world.offers(offer("o9", "old", gpus=1))
    assert (host(world), world.job().launches) == ("old", 2)


def test_learnt_driver_need_only_grows(world: World) -> None:
    world.node("old", gpu("g0"), driver="535.9")
    world.submit(gpus=1, min_driver="470")
    world.status("j1.1", "TASK_FAILED", agent="old", outcome=TOO_OLD)
    world.node("new", gpu("g1"), driver="550.54.14")
    less = Outcome(min_driver="535.104", needs="driver 535.104 or newer")
    world.status("j1.2", "TASK_FAILED", agent="new", outcome=less)
    assert (world.job().learnt_min_driver, world.job().image_needs) == ("550", "CUDA 12.4 or newer")


def test_node_that_reports_another_driver_than_its_executor_finds_is_not_asked_for_ever(
    world: World,
) -> None:
    world.settings = Settings.of("e", "m", max_infrastructure_failures=2, requeue_most_s=0.1)
    world.node("new", gpu("g1"), driver="550.54.14")
    world.submit(gpus=1)
    for number in (1, 2, 3):
        world.status(f"j1.{number}", "TASK_FAILED", agent="new", outcome=TOO_OLD)
        world.offers(offer(f"o{number}", "new", gpus=1))
        world.tick(1)
    assert (world.job().state, world.job().attempts) == (JobState.FAILED, 0)
    assert "gave up after 3 launches" in world.job().message


def test_driver_need_that_no_driver_meets_fails_the_job(world: World) -> None:
    world.node("new", gpu("g1"), driver="550.54.14")
    world.submit(gpus=1)
    world.status("j1.1", "TASK_FAILED", agent="new", outcome=Outcome(), message="it cannot run here")
    assert (world.job().state, world.job().message) == (JobState.FAILED, "it cannot run here")


def test_job_that_is_to_be_killed_is_not_queued_again(world: World) -> None:
    world.node("old", gpu("g0"), driver="535.9")
    world.submit(gpus=1)
    world.feed(ev.KillRequested(JobId("j1")))
    world.status("j1.1", "TASK_FAILED", agent="old", outcome=TOO_OLD)
    assert world.job().state is JobState.KILLED
