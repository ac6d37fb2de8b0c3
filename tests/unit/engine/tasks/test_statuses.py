"""Status updates of a task: executors that outlive what Mesos knows of their tasks."""

from typing import Any

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState
from tests.doubles.builders import World, every, offer, only


def running() -> World:
    """A world with seals, and a job whose task runs."""
    world = World(settings=Settings.of("executor", "monitor", sealed=True))
    world.register()
    world.submit("j1")
    world.offers(offer("o1", gpus=0))
    say(world, "TASK_RUNNING", source="SOURCE_EXECUTOR", proof=1)
    assert world.job().state is JobState.RUNNING
    return world


def say(world: World, state: str, **more: Any) -> list[fx.Effect]:
    told = Status(TaskId("j1.1"), state, **{"agent_id": AgentId("a1"), **more})
    return world.feed(ev.StatusArrived(told))


def forgotten(world: World) -> list[fx.Effect]:
    """Have the master answer that it does not know the task."""
    return say(world, "TASK_GONE", source="SOURCE_MASTER", reason="REASON_RECONCILIATION", uuid=None)


def test_executor_of_a_running_task_that_mesos_forgot_is_shut_down() -> None:
    effects = forgotten(running())
    assert only(effects, fx.Shutdown) == fx.Shutdown(AgentId("a1"), TaskId("j1.1"))


def test_executor_of_an_ended_task_that_mesos_forgot_is_left_alone() -> None:
    world = running()
    say(world, "TASK_FINISHED", source="SOURCE_EXECUTOR", proof=2)
    assert world.state.work.tasks[TaskId("j1.1")].state is TaskState.FINISHED
    assert every(forgotten(world), fx.Shutdown) == []
    assert world.job().state is JobState.FINISHED
