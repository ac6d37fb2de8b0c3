"""Tasks that use more than their share by the report of their node: reported, ended, or left alone."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.step import step
from mesos_gpu.engine.tasks.excess import on_uses
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.request import OnExcess
from mesos_gpu.model.shares.share import Method
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, only
from tests.unit.engine.tasks.test_resizing import CARD, QUARTER, running

WORDS = "it uses 25000 MiB of g0 on a1.example, and its share is 20000 MiB"


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", CARD)
    return world


def used(looks: int) -> ShareUse:
    return ShareUse(TaskId("j1.1"), GpuId("g0"), 25000, looks=looks)


def say(world: World, looks: int, task: str = "j1.1", **fields: Any) -> list[fx.Effect]:
    """The monitor reports what a task uses."""
    use = ShareUse(
        **{"task_id": TaskId(task), "gpu_id": GpuId("g0"), "memory_mib": 25000, "looks": looks, **fields}
    )
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    assert monitor is not None
    return world.status(
        monitor, "TASK_RUNNING", data=report.encode(Inventory((CARD,), "simulated", uses=(use,)))
    )


def test_excess_is_reported_at_two_looks_and_ends_the_task_at_three(world: World) -> None:
    running(world)
    assert every(say(world, 1), fx.Kill) == []
    before = world.job().version
    assert world.job().message == ""
    assert every(say(world, 2), fx.Kill) == []
    assert world.job().message == f"beyond its share: {WORDS}"
    told = world.job().version
    say(world, 2, memory_mib=25001)
    assert (told > before, world.job().version) == (True, told), "it is told once"
    assert only(say(world, 3), fx.Kill).task_id == "j1.1"
    assert world.job().message == f"ended beyond its share: {WORDS}"
    assert every(say(world, 3), fx.Kill) == [], "it is being ended"
    world.status("j1.1", "TASK_KILLED", message="killed on request")
    job = world.job()
    assert (job.state, job.message, job.attempts) == (JobState.FAILED, f"ended beyond its share: {WORDS}", 1)


def test_kill_for_excess_that_is_lost_is_sent_again(world: World) -> None:
    running(world)
    say(world, 3)
    assert only(world.tick(world.settings.tasks.kill_resend_s + 1), fx.Kill).task_id == "j1.1"


def test_excess_that_is_given_back_is_forgotten(world: World) -> None:
    running(world)
    say(world, 2)
    say(world, 0, memory_mib=100)
    assert world.state.work.tasks[TaskId("j1.1")].excess == ""
    say(world, 2)
    assert world.state.work.tasks[TaskId("j1.1")].excess == WORDS


@pytest.mark.parametrize(("on_excess", "told"), [(OnExcess.WARN, True), (OnExcess.IGNORE, False)])
def test_excess_is_reported_or_ignored_by_setting(on_excess: OnExcess, told: bool) -> None:
    world = World()
    world.settings = world.settings.changed(on_gpu_excess=on_excess)
    world.register()
    world.node("a1", CARD)
    running(world)
    assert every([*say(world, 2), *say(world, 3)], fx.Kill) == []
    assert world.job().message.startswith("beyond its share") is told


def test_excess_leaves_the_end_of_a_task_that_ends_by_itself(world: World) -> None:
    running(world)
    say(world, 2)
    world.status("j1.1", "TASK_FINISHED")
    assert world.job().state is JobState.FINISHED


def test_excess_leaves_the_kill_of_a_user_a_kill(world: World) -> None:
    running(world)
    say(world, 3)
    world.feed(ev.KillRequested(world.job().id))
    world.status("j1.1", "TASK_KILLED")
    assert world.job().state is JobState.KILLED


def test_excess_of_a_hardware_share_or_an_unknown_task_is_left_alone(world: World) -> None:
    running(world, share=replace(QUARTER, method=Method.DMEM_WINDOWS))
    assert every(say(world, 3), fx.Kill) == []
    assert every(say(world, 3, task="nobody.1"), fx.Kill) == []
    assert every(say(world, 3, gpu_id=GpuId("g7")), fx.Kill) == []


def test_excess_report_of_use_alone_begins_no_match(world: World) -> None:
    running(world)
    say(world, 0)
    node = world.state.cluster.nodes[AgentId("a1")]
    assert (node.monitor is not None, node.inventory is not None) == (True, True)
    reported = replace(
        node.inventory or Inventory(), uses=(ShareUse(TaskId("j1.1"), GpuId("g0"), 1, 2, 3, 4, 5),)
    )
    world.state.match.unmatched = False
    status = Status(node.monitor or TaskId(""), "TASK_RUNNING", node.id, data=report.encode(reported))
    step(world.state, ev.StatusArrived(status), world.now, world.settings)
    assert world.state.match.unmatched is False
    assert world.state.cluster.nodes[node.id].inventory == reported


@pytest.mark.parametrize(
    ("changes", "is_left"),
    [
        ({}, False),
        ({"agent_id": AgentId("a2")}, True),
        ({"gpus": (GpuId("g1"),)}, True),
        ({"share": None}, True),
        ({"share": replace(QUARTER, method=Method.MIG)}, True),
        ({"job_id": None}, True),
        ({"evicted": "drained"}, True),
        ({"kill_sent_at": 900.0}, True),
    ],
)
def test_task_beyond_its_share_is_ended_unless_it_is_none_or_ends(
    world: World, changes: dict[str, Any], is_left: bool
) -> None:
    (task,) = running(world)
    del world.state.work.tasks[task.id]
    world.state.gpus.sharers.clear()
    world.state.work.tasks[task.id] = known = replace(task, **changes)
    turn = Turn(world.state, world.settings, world.now)
    on_uses(
        turn, replace(world.state.cluster.nodes[AgentId("a1")], inventory=Inventory((CARD,), uses=(used(3),)))
    )
    assert (world.state.work.tasks[task.id] == known) is is_left
    assert (turn.effects == []) is is_left


@pytest.mark.parametrize(
    "fields", [{"state": JobState.PENDING}, {"task_id": TaskId("j1.2")}, {"kill_requested": True}]
)
def test_task_beyond_its_share_is_left_alone_if_its_job_is_elsewhere_or_ends(
    world: World, fields: dict[str, Any]
) -> None:
    (task,) = running(world)
    world.state.work.jobs[world.job().id] = replace(world.job(), **fields)
    turn = Turn(world.state, world.settings, world.now)
    on_uses(
        turn, replace(world.state.cluster.nodes[AgentId("a1")], inventory=Inventory((CARD,), uses=(used(3),)))
    )
    assert (world.state.work.tasks[task.id], turn.effects) == (task, [])


@pytest.mark.parametrize(
    ("excess", "looks", "kill_sent_at", "then"),
    [
        ("", 0, None, ""), ("told", 0, None, ""), ("told", 1, None, "told"), ("told", 0, 900.0, "told"),
        ("", 1, None, ""), ("", 2, None, WORDS), ("told", 2, None, "told"), ("told", 3, None, WORDS),
        ("told", 3, 900.0, "told"),
    ],
)  # fmt: skip
def test_excess_of_a_task_is_what_it_was_told_of_last(
    world: World, excess: str, looks: int, kill_sent_at: float | None, then: str
) -> None:
    (task,) = running(world)
    world.state.set_task(replace(task, excess=excess, kill_sent_at=kill_sent_at))
    turn = Turn(world.state, world.settings, world.now)
    on_uses(
        turn,
        replace(world.state.cluster.nodes[AgentId("a1")], inventory=Inventory((CARD,), uses=(used(looks),))),
    )
    assert world.state.work.tasks[task.id].excess == then
    assert bool(turn.effects) is (then != excess)


def test_node_that_reports_nothing_has_no_excess(world: World) -> None:
    turn = Turn(world.state, world.settings, world.now)
    on_uses(turn, replace(world.state.cluster.nodes[AgentId("a1")], inventory=None))
    assert turn.effects == []
