"""Lists of the master's tasks: each entry is looked at by itself, and says what the state does not know."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.tasks.unknown import Listed
from tests.doubles.builders import World, gpu
from tests.unit.engine.tasks.test_engine_unknown import doubtful, listed


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def unlabelled(task_id: str, agent: str = "a1") -> Listed:
    return replace(listed(), task_id=TaskId(task_id), agent_id=AgentId(agent), label=None)


def holding(name: str, gpu_id: str) -> Listed:
    """A listed task that holds another card than those of `listed`."""
    told = listed(name)
    assert told.label is not None
    return replace(told, label=replace(told.label, gpus=(GpuId(gpu_id),)))


def test_listed_monitors_covers_and_ended_tasks_hide_none_that_follow(world: World) -> None:
    first = [
        unlabelled("gpu-monitor.a1.7.1"),
        unlabelled("gpu-cover.7.g9"),
        listed("ended", state="TASK_FINISHED"),
        listed("one"),
        holding("two", "g2"),
    ]
    world.feed(ev.TasksListed(tuple(first)))
    assert {"one.1", "two.1"} <= {*world.state.work.unknown}
    assert "ended.1" not in world.state.work.unknown
    assert "gpu-monitor.a1.7.1" not in world.state.work.tasks
    world.feed(ev.TasksListed((listed("one"), holding("three", "g3"))))
    assert "three.1" in world.state.work.unknown, "one that is known hides none either"


def test_listed_task_has_the_name_of_its_host_from_the_list(world: World) -> None:
    world.feed(ev.TasksListed((listed("one"),)))
    task = world.state.work.tasks[TaskId("one.1")]
    assert (task.hostname, task.agent_url) == ("h1", "http://h1:5051")


def test_listed_task_of_a_node_that_is_known_has_its_name_from_there(world: World) -> None:
    world.node("a1", gpu("g7"))
    world.feed(ev.TasksListed((listed("one"),)))
    task = world.state.work.tasks[TaskId("one.1")]
    assert (task.hostname, task.agent_url) == ("a1.example", "http://a1:5051")


@pytest.mark.parametrize(("launched_at", "wanted"), [(900.0, 900.0), (0.0, 1000.0)])
def test_listed_task_was_launched_when_its_label_says_or_when_it_was_seen(
    world: World, launched_at: float, wanted: float
) -> None:
    told = listed("one")
    assert told.label is not None
    world.feed(ev.TasksListed((replace(told, label=replace(told.label, launched_at=launched_at)),)))
    assert world.state.work.tasks[TaskId("one.1")].launched_at == wanted


def test_listed_task_without_labels_is_held_under_its_own_id() -> None:
    world = doubtful()
    world.feed(ev.TasksListed((unlabelled("stranger.1"),)))
    task = world.state.work.tasks[TaskId("stranger.1")]
    assert (task.job_id, task.gpus, task.hostname) == ("stranger.1", (), "h1")


def test_task_that_the_master_does_not_list_is_forgotten(world: World) -> None:
    world.status("ghost.1", "TASK_RUNNING")
    assert "ghost.1" in world.state.work.unknown
    world.feed(ev.TasksListed((listed("one"),)))
    assert {*world.state.work.unknown} == {"one.1"}
