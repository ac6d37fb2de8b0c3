"""Queues with `order: las`: jobs with less GPU time come first, and running ones give way to them."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.offer import resources_of
from mesos_gpu.model.served import Served
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tenancy import QueueDocument, QueueOrder, QueueSpec
from tests.doubles.builders import World, every, gpu, offer, saved_of

HOUR_S = 3600.0


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    queues = {"las": QueueSpec(order=QueueOrder.LAS), "other": QueueSpec()}
    world.feed(ev.QueuesChanged(QueueDocument(queues=queues, by="me"), 0))
    world.node("a1", *(gpu(f"g{i}") for i in range(4)), cpus=32)
    return world


def _submit(world: World, name: str, gpus: int = 4, **more: object) -> set[str]:
    """Submit a job, and return the tasks that are ended within its first seconds."""
    world.submit(name, **{"gpus": gpus, "queue": "las", "preemptible": True, **more})
    return _pass(world, 5.0)


def _pass(world: World, seconds: float) -> set[str]:
    """Let time pass, offer what is free, and return the tasks that are ended meanwhile."""
    world.now += seconds
    effects = world.report("a1", *world.state.cluster.nodes["a1"].gpus)  # type: ignore[index]
    effects += world.tick(1.0)
    held = sum(len(task.gpus) for task in world.state.work.tasks.values() if not task.ended)
    offered = sum(resources_of(each.resources).gpus for each in world.state.cluster.offers.values())
    if held + offered < 4:
        world.serial += 1
        effects += world.offers(offer(f"r{world.serial}", "a1", gpus=4 - held - offered, cpus=16))
    for task in [
        task for task in world.state.work.tasks.values() if task.job_id and task.state is TaskState.LAUNCHED
    ]:
        world.status(task.id, "TASK_STARTING")
        world.status(task.id, "TASK_RUNNING")
    return {kill.task_id for kill in every(effects, fx.Kill)}


def _ends(world: World, task: str) -> None:
    world.status(task, "TASK_KILLED")
    _pass(world, 1.0)


def test_las_job_that_has_had_an_hour_gives_way_to_a_new_one(world: World) -> None:
    _submit(world, "old")
    assert world.job("old").state is JobState.RUNNING
    assert _submit(world, "new") == set(), "both are on the first level"
    assert _pass(world, 800.0) == set(), "four GPUs have had less than an hour"
    assert _pass(world, 200.0) == {"old.1"}
    assert world.job("old").message.startswith(
        "makes room for job new, which has had less GPU time in queue las"
    )
    _ends(world, "old.1")
    old = world.job("old")
    assert (old.state, world.job("new").state) == (JobState.PENDING, JobState.RUNNING)
    assert old.served is not None
    assert 1000 * 3600 * 1000 <= old.served.milli_ms < 1.2 * 1000 * 3600 * 1000
    assert old.attempts == 0
    world.status("new.1", "TASK_FINISHED")
    _pass(world, 1.0)
    assert world.job("old").state is JobState.RUNNING


def test_las_service_is_the_same_after_a_restart(world: World) -> None:
    _submit(world, "old")
    _pass(world, 1000.0)
    _submit(world, "new")
    _pass(world, 5.0)
    _ends(world, "old.1")
    restored = State.restored(world.now, saved_of(world.state))
    assert restored.work.jobs == world.state.work.jobs
    assert world.job("old").served != Served()


def test_las_spares_jobs_of_other_queues_and_those_not_preemptible(world: World) -> None:
    _submit(world, "old", preemptible=False)
    assert _submit(world, "new") == set()
    assert _pass(world, 10 * HOUR_S) == set()
    world.status("old.1", "TASK_FINISHED")
    _pass(world, 1.0)
    _pass(world, 10 * HOUR_S)
    assert _submit(world, "stranger", queue="other") == set()
    assert _pass(world, HOUR_S) == set()
    world.feed(ev.KillRequested(JobId("stranger")))  # what is kept for it is nobody else's
    assert _submit(world, "newer", 1) == {"new.1"}


def test_las_victims_make_room_for_the_whole_job_and_no_more(world: World) -> None:
    for name in ("a", "b", "c", "d"):
        _submit(world, name, 1)
        _pass(world, 1.0)
    assert [world.job(name).state for name in "abcd"] == [JobState.RUNNING] * 4
    _pass(world, 2 * HOUR_S)
    assert len(_submit(world, "pair", 2)) == 2


def test_las_level_puts_a_smaller_job_before_a_larger_one_that_runs(world: World) -> None:
    _submit(world, "wide")
    assert _submit(world, "wider") == set()
    assert _submit(world, "small", 1) == {"wide.1"}


def test_las_keeps_no_node_idle_for_a_job_blocked_a_short_time(world: World) -> None:
    _submit(world, "runs", 3, preemptible=False)
    _submit(world, "wide", preemptible=False)
    _submit(world, "late", 1, priority=-1)
    assert world.job("late").state is JobState.RUNNING
    world.status("late.1", "TASK_FINISHED")
    _pass(world, 30 * 24 * HOUR_S)
    _submit(world, "later", 1)
    assert world.job("later").state is JobState.PENDING, "the last GPU is kept for the one that waits so long"
    world.status("runs.1", "TASK_FINISHED")
    _pass(world, 1.0)
    assert world.job("wide").state is JobState.RUNNING
    assert world.job("wide").served == Served(lifted=True)


def test_las_order_starts_with_the_job_that_has_had_less(world: World) -> None:
    _submit(world, "runs", preemptible=False)
    for name, gpus in (("wide", 4), ("small", 1), ("two", 2)):
        _submit(world, name, gpus)
    world.status("runs.1", "TASK_FINISHED")
    _pass(world, 1.0)
    states = {name: world.job(name).state for name in ("wide", "small", "two")}
    assert states == {"wide": JobState.PENDING, "small": JobState.RUNNING, "two": JobState.RUNNING}


def test_las_moves_no_job_without_a_queue_of_that_order() -> None:
    world = World()
    world.register()
    world.node("a1", *(gpu(f"g{i}") for i in range(4)), cpus=32)
    _submit(world, "old")
    assert _submit(world, "new") == set()
    assert _pass(world, 10 * HOUR_S) == set()
