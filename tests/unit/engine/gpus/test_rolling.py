"""Node monitors of an earlier release: replaced one after the other; where no wire is common, nothing is launched."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.gpus.rolling import MAX_STARTS, outdated, rolling
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Program
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.wires import OLDEST, WIRE
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.wire.hosts.program import encode_program
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, gpu, offer, only, saved_of

OURS = Program("0.1.0", WIRE, OLDEST, "ab" * 32)
FUTURE = Program("9.9", WIRE + 5, WIRE + 1)
LATER = Settings.of("executor", "a later monitor")


def cluster(*agents: str) -> World:
    world = World()
    world.register()
    for agent in agents:
        world.node(agent, gpu(f"g{agent}"))
    world.tick(15.0)
    report_all(world)
    return world


def report_all(world: World) -> None:
    for node in list(world.state.cluster.nodes.values()):
        if node.monitor is not None:
            world.report(node.id, gpu(f"g{node.id}"))


def node(world: World, agent: str) -> Node:
    return world.state.cluster.nodes[AgentId(agent)]


def monitor(world: World, agent: str) -> TaskId:
    task_id = node(world, agent).monitor
    assert task_id is not None
    return task_id


def with_settings(world: World, settings: Settings = LATER) -> list[fx.Effect]:
    """The scheduler goes on with other settings, as after an upgrade."""
    world.settings = settings
    return world.tick(3.0)


def ended_and_replaced(world: World, agent: str) -> TaskId:
    """The monitor ends as it was asked to, and the offer of what it held starts another."""
    world.status(monitor(world, agent), "TASK_KILLED", agent=agent)
    world.tick(1.0)
    world.serial += 1
    launch = only(world.offers(offer(f"r{world.serial}", agent, gpus=0, cpus=1)), fx.Launch)
    world.tick(1.0)
    return launch.tasks[0].task.id


def killed(effects: list[fx.Effect]) -> list[str]:
    return [str(kill.task_id) for kill in every(effects, fx.Kill)]


def say(world: World, agent: str, program: Program | None, *gpus: Gpu) -> None:
    data = report.encode(Inventory(gpus, "simulated", program=program))
    world.status(monitor(world, agent), "TASK_RUNNING", agent=agent, data=data)


def test_roll_leaves_monitors_of_the_present_settings_alone() -> None:
    world = cluster("a1", "a2")
    for _ in range(5):
        assert killed(world.tick(5.0)) == []
        report_all(world)
    assert rolling(world.state, world.settings, world.now).outdated == ()


def test_monitors_are_replaced_one_after_the_other() -> None:
    world = cluster("a1", "a2", "a3")
    old = {agent: monitor(world, agent) for agent in ("a1", "a2", "a3")}
    assert killed(with_settings(world)) == [old["a1"]]
    seen = rolling(world.state, world.settings, world.now)
    assert [agent for agent, _ in seen.outdated] == ["a1", "a2", "a3"]
    assert seen.under_way == ("a1",)
    for agent, following in (("a1", ["a2"]), ("a2", ["a3"]), ("a3", [])):
        new = ended_and_replaced(world, agent)
        assert new not in old.values()
        assert killed(world.tick(3.0)) == [], "the new one has not reported yet"
        report_all(world)
        assert killed(world.tick(3.0)) == [old[each] for each in following]
    seen = rolling(world.state, world.settings, world.now)
    assert (seen.outdated, seen.under_way, seen.done, seen.problems) == ((), (), 3, ())


def test_tasks_run_on_and_start_while_a_monitor_is_replaced() -> None:
    world = cluster("a1", "a2")
    world.submit("j1", gpus=1)
    world.offers(offer("o", "a1", gpus=1))
    world.status("j1.1", "TASK_RUNNING")
    assert killed(with_settings(world)) == [monitor(world, "a1")]
    ended_and_replaced(world, "a1")
    report_all(world)
    world.tick(3.0)
    assert world.job("j1").state is JobState.RUNNING
    assert world.state.work.tasks[TaskId("j1.1")].state is TaskState.RUNNING


def test_roll_asks_a_monitor_that_does_not_hear_again() -> None:
    world = cluster("a1")
    old = monitor(world, "a1")
    assert killed(with_settings(world)) == [old]
    assert killed(world.tick(world.settings.tasks.kill_resend_s + 1)) == [old]
    world.tick(world.settings.tasks.roll_timeout_s)
    problems = rolling(world.state, world.settings, world.now).problems
    assert problems == (("a1", "its monitor does not end"),)


def test_roll_stops_at_a_new_monitor_that_does_not_report_until_it_does() -> None:
    world = cluster("a1", "a2")
    with_settings(world)
    ended_and_replaced(world, "a1")
    for _ in range(8):
        assert killed(world.tick(10.0)) == []
        world.report("a2", gpu("ga2"))
    ((host, why),) = rolling(world.state, world.settings, world.now).problems
    assert (host, why) == ("a1", "its new monitor has not reported")
    report_all(world)
    assert killed(world.tick(3.0)) == [monitor(world, "a2")]


def test_roll_stops_at_a_new_monitor_that_keeps_ending_and_quotes_it() -> None:
    world = cluster("a1", "a2")
    with_settings(world)
    ended_and_replaced(world, "a1")
    for _ in range(MAX_STARTS):
        world.status(monitor(world, "a1"), "TASK_FAILED", agent="a1", message="no such program")
        world.tick(31.0)
        world.serial += 1
        world.offers(offer(f"again{world.serial}", "a1", gpus=0, cpus=1))
        world.report("a2", gpu("ga2"))
    world.status(monitor(world, "a1"), "TASK_FAILED", agent="a1", message="no such program")
    ((_, why),) = rolling(world.state, world.settings, world.now).problems
    assert why == "no new monitor runs there: its last message: no such program"
    assert killed(world.tick(3.0)) == []


@pytest.mark.parametrize(
    ("cards", "why"),
    [
        ((), "does not find ga1, which was healthy"),
        (("unknown",), "cannot read ga1, which was healthy: the driver hangs"),
    ],
)
def test_roll_stops_at_a_new_monitor_that_sees_fewer_cards(cards: tuple[str, ...], why: str) -> None:
    world = cluster("a1", "a2")
    with_settings(world)
    ended_and_replaced(world, "a1")
    seen = [replace(gpu("ga1"), health=Health(each), reason="the driver hangs") for each in cards]
    world.tick(world.settings.tasks.roll_timeout_s + 1)
    world.report("a1", *seen)
    ((_, words),) = rolling(world.state, world.settings, world.now).problems
    assert why in words


def test_roll_tries_the_next_program_where_a_new_monitor_fails() -> None:
    world = cluster("a1", "a2")
    old = monitor(world, "a2")
    with_settings(world)
    new = ended_and_replaced(world, "a1")
    world.tick(15.0)
    for replaced in ("", "cd" * 32):
        world.report("a2", gpu("ga2"))
        say(world, "a1", replace(FUTURE, digest="ab" * 32, replaced=replaced))
        assert killed(world.tick(3.0)) == ([new] if replaced else [])
    ended_and_replaced(world, "a1")
    report_all(world)
    assert killed(world.tick(3.0)) == [old]


def test_roll_does_not_blame_a_new_monitor_for_a_card_that_broke_meanwhile() -> None:
    world = cluster("a1")
    with_settings(world)
    ended_and_replaced(world, "a1")
    world.report("a1", gpu("ga1", health=Health.SICK))
    world.tick(1.0)
    assert rolling(world.state, world.settings, world.now).done == 1


def test_roll_goes_on_without_a_node_that_is_lost_meanwhile() -> None:
    world = cluster("a1", "a2")
    with_settings(world)
    node_now = node(world, "a1")
    world.state.cluster.set_node(replace(node_now, lost_at=world.now))
    assert killed(world.tick(3.0)) == [monitor(world, "a2")]


def test_roll_replaces_one_monitor_in_a_hundred_at_once_after_the_first() -> None:
    world = cluster("a1", "a2", "a3", "a4")
    for number in range(196):  # hosts without GPUs, which have no monitors
        world.state.cluster.set_node(Node(AgentId(f"cpu{number}"), f"cpu{number}.example"))
    assert len(killed(with_settings(world))) == 1
    first = next(iter(world.state.cluster.rolls.under_way))
    ended_and_replaced(world, first)
    report_all(world)
    assert len(killed(world.tick(3.0))) == 2


def test_roll_starts_another_program_at_the_same_place_too() -> None:
    world = cluster("a1")
    say(world, "a1", OURS, gpu("ga1"))
    assert killed(world.tick(3.0)) == []
    say(world, "a1", replace(OURS, replaced="cd" * 32), gpu("ga1"))
    assert "was replaced" in outdated(world.state, node(world, "a1"), world.settings.programs.monitor_made_by)
    assert killed(world.tick(3.0)) == [monitor(world, "a1")]


def test_roll_does_not_replace_a_young_or_silent_monitor() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("ga1"))
    assert killed(with_settings(world)) == [], "it has just begun"
    silent = cluster("a1")
    silent.tick(silent.settings.programs.report_stale_s + 1)
    assert killed(with_settings(silent)) == []
    report_all(silent)
    assert killed(silent.tick(3.0)) == [monitor(silent, "a1")]


def test_monitor_of_a_state_of_an_earlier_release_is_replaced() -> None:
    world = cluster("a1")
    task = world.state.work.tasks[monitor(world, "a1")]
    world.state.work.tasks[task.id] = replace(task, made_by="")
    again = World(state=State.restored(world.now, saved_of(world.state)), now=world.now + 1)
    again.register()
    again.report("a1", gpu("ga1"))
    assert killed(again.tick(5.0)) == [task.id]


def test_node_without_a_common_wire_takes_no_launch_and_why_reports_it() -> None:
    world = cluster("a1")
    body: dict[str, Any] = json.loads(report.encode(Inventory(program=FUTURE))) | {"version": 7, "gpus": 3}
    world.status(monitor(world, "a1"), "TASK_RUNNING", data=json.dumps(body).encode())
    world.submit("gpu", gpus=1)
    world.submit("cpu")
    assert every(world.offers(offer("o1", "a1", gpus=1)), fx.Launch) == []
    for name in ("gpu", "cpu"):
        (reasons,) = why_of(world.state, world.settings, world.now, world.job(name)).nodes
        assert f"release 9.9) speaks wires {WIRE + 1} to {WIRE + 5}" in reasons.reasons[0]
        assert "start a newer scheduler" in reasons.reasons[0]
    assert node(world, "a1").gpus[0].health is Health.UNKNOWN
    say(world, "a1", OURS, gpu("ga1"))
    world.tick(3.0)
    assert {world.job(name).state for name in ("gpu", "cpu")} == {JobState.STARTING}


def test_launch_is_written_in_the_newest_wire_of_both() -> None:
    world = cluster("a1", "a2")
    say(world, "a1", None, gpu("ga1"))
    say(world, "a2", OURS, gpu("ga2"))
    for agent in ("a1", "a2"):
        world.submit(f"on-{agent}", gpus=1)
        launch = only(world.offers(offer(f"o-{agent}", agent, gpus=1)), fx.Launch)
        assert launch.tasks[0].wire == {"a1": 1, "a2": WIRE}[agent]


@pytest.mark.parametrize("first", ["TASK_STARTING", "TASK_RUNNING"])
def test_program_of_an_executor_is_kept_with_its_task(first: str) -> None:
    world = cluster("a1")
    world.submit("j1", gpus=1)
    world.offers(offer("o", "a1", gpus=1))
    world.status("j1.1", first, data=encode_program("0.1.0"))
    world.status("j1.1", "TASK_RUNNING")
    assert world.state.work.tasks[TaskId("j1.1")].program == Program("0.1.0", WIRE, OLDEST)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"program":3}', b'{"program":{"wire":1}}'])
def test_executor_that_does_not_report_its_program_starts_too(data: bytes) -> None:
    world = cluster("a1")
    world.submit("j1", gpus=1)
    world.offers(offer("o", "a1", gpus=1))
    world.status("j1.1", "TASK_STARTING", data=data)
    task = world.state.work.tasks[TaskId("j1.1")]
    assert (task.state, task.program) == (TaskState.STARTING, None)
