"""Disk, from offers to launches: it is counted as cpus and memory are."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.offer import resources_of
from tests.doubles.builders import World, every, offer


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def disks(effects: list[fx.Effect]) -> list[tuple[str, float]]:
    """The agent and the disk of each launch."""
    tasks = [item for launch in every(effects, fx.Launch) for item in launch.tasks]
    return sorted((item.task.agent_id, resources_of(item.resources).disk_mib) for item in tasks)


def runs(world: World, name: str, agent: str, disk_mib: float, **fields: object) -> None:
    """Run a job that has all of an agent's disk."""
    world.submit(name, disk_mib=disk_mib, **fields)
    world.offers(offer(f"of-{name}", agent, disk=disk_mib))
    task_id = world.job(name).task_id
    assert task_id is not None
    world.status(task_id, "TASK_RUNNING", agent=agent)


def test_job_with_a_disk_goes_where_it_fits_and_takes_it(world: World) -> None:
    world.submit(disk_mib=100)
    effects = world.offers(offer("o1", "a1", disk=99), offer("o2", "a2", disk=100), offer("o3", "a3"))
    assert disks(effects) == [("a2", 100.0)]


def test_disk_is_given_once_in_one_match(world: World) -> None:
    for name in ("j1", "j2", "j3"):
        world.submit(name, disk_mib=100)
    assert disks(world.offers(offer("o1", disk=250))) == [("a1", 100.0)] * 2
    assert world.job("j3").state is JobState.PENDING


def test_explanation_names_the_disk_that_is_lacking(world: World) -> None:
    world.submit(disk_mib=100)
    world.offers(offer("o1", disk=60))
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    assert [(row.reason, row.example) for row in why.funnel] == [
        (Stage.DISK, "a1.example lacks 40 MiB of disk")
    ]
    assert "100 MiB of disk" in why.summary


@pytest.mark.parametrize(("disk_mib", "passes"), [(0, True), (50, True), (51, False)])
def test_disk_kept_for_the_first_job_in_line_is_left_alone(world: World, disk_mib: int, passes: bool) -> None:
    runs(world, "j1", "a1", 100, timeout_s=60.0)
    world.submit("first", disk_mib=150, timeout_s=60.0)
    world.offers(offer("o2", "a1", disk=100))
    world.submit("later", disk_mib=disk_mib)
    assert (world.job("later").state is JobState.STARTING) == passes


def test_gang_is_spread_by_its_disk(world: World) -> None:
    world.submit(disk_mib=100, tasks=3)
    assert disks(world.offers(offer("o1", "a1", disk=199))) == []
    effects = world.offers(offer("o2", "a2", disk=200))
    assert disks(effects) == [("a1", 100.0), ("a2", 100.0), ("a2", 100.0)]


def test_disk_of_jobs_of_lower_priority_is_preempted(world: World) -> None:
    runs(world, "small", "a1", 50, preemptible=True)
    runs(world, "large", "a2", 100, preemptible=True)
    world.submit("first", disk_mib=80, priority=10)
    for agent in ("a1", "a2"):
        world.offers(offer(f"left-{agent}", agent))
    assert {kill.task_id for kill in every(world.tick(5), fx.Kill)} == {world.job("large").task_id}


def test_disk_is_given_back_at_the_end_of_a_job(world: World) -> None:
    runs(world, "j1", "a1", 100)
    world.submit("j2", disk_mib=100)
    world.offers(offer("o2", "a1"))
    nearest = explain_job(View(world.state, world.settings, world.now), JobId("j2")).nearest
    assert nearest is not None
    assert nearest.hostname == "a1.example"
    world.status(world.job("j1").task_id or "", "TASK_FINISHED")
    assert disks(world.feed(ev.OffersArrived((offer("o3", "a1", disk=100),)))) == [(AgentId("a1"), 100.0)]
