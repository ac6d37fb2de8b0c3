"""The roll of monitors, by the state of each node."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.gpus.rolling import Rolling, on_tick, outdated, rolling
from mesos_gpu.engine.indexes.memory import Reconciliation
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Program
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.roll import MonitorReplacement
from mesos_gpu.model.nodes.wires import WIRE
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import every, gpu

SETTINGS = Settings.of("executor", "monitor")
NOW = 1000.0
A1, OLD, NEW = AgentId("a1"), TaskId("m.1"), TaskId("m.2")
ROLL = MonitorReplacement(OLD, NOW - 30, NOW - 5, 7, (GpuId("g0"),))


def inventory(*gpus: Gpu, **program: str) -> Inventory:
    return Inventory(gpus, "simulated", program=Program("1", WIRE, WIRE, **program))


def monitor(
    name: TaskId, launched_at: float, *, made_by: str = SETTINGS.programs.monitor_made_by, **fields: Any
) -> Task:
    task = Task(name, A1, name, None, TaskState.RUNNING, launched_at, made_by=made_by)
    return replace(task, **fields)


def state_of(
    node: dict[str, Any], task: Task | None = None, roll: MonitorReplacement | None = None, **fields: Any
) -> State:
    """Return a state of one node with that monitor, which is being replaced if there is a roll."""
    state = State(0.0)
    known = Node(A1, "h1", monitor=None if task is None else task.id, monitor_launches=8, reported_at=NOW - 1)
    state.put(replace(known, **{"inventory": inventory(gpu("g0")), **node}))
    if task is not None:
        state.put(task)
    if roll is not None:
        state.cluster.rolls.under_way[A1] = replace(roll)
    for name, value in fields.items():
        setattr(state.part_with(name), name, value)
    return state


WELL = monitor(NEW, NOW - 20)
EARLIER = "it was started by an earlier scheduler, or with other settings"
SICK = replace(gpu("g0"), health=Health.UNKNOWN, reason="no driver")


@pytest.mark.parametrize(
    ("node", "task", "roll", "problem"),
    [
        ({}, monitor(OLD, 0.0), {}, ""),
        ({}, monitor(OLD, 0.0), {"since": NOW - 60.0}, ""),
        ({}, monitor(OLD, 0.0), {"since": NOW - 60.1}, "its monitor does not end"),
        ({}, None, {"since": NOW - 60.0}, ""),
        ({}, None, {"since": NOW - 60.1}, "no new monitor runs there"),
        ({}, None, {"since": NOW - 60.1, "failed": "boom"}, "no new monitor runs there: its last message: boom"),
        ({"monitor_launches": 10}, None, {}, ""),
        ({"monitor_launches": 11}, None, {}, "no new monitor runs there"),
        ({"reported_at": None}, WELL, {"since": NOW - 61}, "its new monitor has not reported"),
        ({"reported_at": NOW - 20}, WELL, {"since": NOW - 61}, "its new monitor has not reported"),
        ({"inventory": inventory(gpu("g1"))}, WELL, {"since": NOW - 61},
            "its new monitor does not find g0, which was healthy"),
        ({"inventory": inventory(SICK)}, WELL, {"since": NOW - 61},
            "its new monitor cannot read g0, which was healthy: no driver"),
    ],
)  # fmt: skip
def test_roll_has_a_problem_when_a_monitor_is_late_or_fails_too_often(
    node: dict[str, Any], task: Task | None, roll: dict[str, Any], problem: str
) -> None:
    state = state_of(node, task, replace(ROLL, **roll))
    assert rolling(state, SETTINGS, NOW) == Rolling((), (A1,), 0, ((A1, problem),) if problem else ())


@pytest.mark.parametrize(
    ("node", "task", "why"),
    [
        ({}, WELL, ""),
        ({}, None, ""),
        ({"monitor": TaskId("gone")}, None, ""),
        ({}, monitor(NEW, 0.0, made_by="x"), EARLIER),
        ({"inventory": None}, WELL, ""),
        ({"inventory": Inventory((), "simulated")}, WELL, ""),
        ({"inventory": inventory(replaced="x")}, WELL, "its program on the host was replaced"),
    ],
)
def test_monitor_is_outdated_if_another_one_would_be_started(
    node: dict[str, Any], task: Task | None, why: str
) -> None:
    state = state_of(node, task)
    assert outdated(state, state.cluster.nodes[A1], SETTINGS.programs.monitor_made_by) == why
    assert rolling(state, SETTINGS, NOW).outdated == (((A1, why),) if why else ())


PAST = monitor(OLD, NOW - 10, made_by="x")


@pytest.mark.parametrize(
    ("node", "task", "fields", "begins"),
    [
        ({}, PAST, {}, True),
        ({}, WELL, {}, False),
        ({}, monitor(OLD, NOW - 9.9, made_by="x"), {}, False),
        ({}, replace(PAST, state=TaskState.STARTING), {}, False),
        ({"lost_at": NOW}, PAST, {}, False),
        ({"reported_at": None}, PAST, {}, False),
        ({"reported_at": NOW - 30}, PAST, {}, True),
        ({"reported_at": NOW - 30.1}, PAST, {}, False),
        ({}, PAST, {"doubtful": True}, False),
        ({}, PAST, {"reconciliation": Reconciliation(1.0, 1.0)}, False),
    ],
)
def test_roll_begins_with_a_monitor_that_runs_well(
    node: dict[str, Any], task: Task, fields: dict[str, Any], begins: bool
) -> None:
    state = state_of(
        {**node, "inventory": inventory(gpu("g0"), gpu("g1", health=Health.SICK))}, task, **fields
    )
    for looked_at, looks in ((NOW - 1.9, False), (NOW - 2.0, True)):
        state.cluster.rolls.looked_at = looked_at
        turn = Turn(state, SETTINGS, NOW)
        on_tick(turn)
        assert every(turn.effects, fx.Kill) == ([fx.Kill(OLD, A1)] if begins and looks else [])
        assert state.cluster.rolls.under_way == (
            {A1: MonitorReplacement(OLD, NOW, NOW, 8, (GpuId("g0"),))} if begins and looks else {}
        )
        assert state.cluster.rolls.looked_at == (NOW if looks else looked_at)


@pytest.mark.parametrize(
    ("done", "nodes", "begun"), [(0, 350, 1), (1, 350, 3), (1, 99, 1), (1, 100, 1), (1, 200, 2)]
)
def test_roll_goes_on_with_one_of_a_hundred_nodes_at_a_time(done: int, nodes: int, begun: int) -> None:
    state = State(0.0)
    for number in range(nodes):
        name, agent = TaskId(f"m{number:03}"), AgentId(f"a{number:03}")
        state.put(Node(agent, f"h{nodes - number:03}", monitor=name, reported_at=NOW))
        state.put(monitor(name, 0.0, made_by="x", agent_id=agent))
    state.cluster.rolls.done = done
    on_tick(Turn(state, SETTINGS, NOW))
    first = [AgentId(f"a{nodes - 1 - number:03}") for number in range(begun)]
    assert list(state.cluster.rolls.under_way) == first, "by host name"
    state.cluster.rolls.looked_at = 0.0
    on_tick(Turn(state, SETTINGS, NOW + 1))
    assert list(state.cluster.rolls.under_way) == first, "no more at a time"
    lost = state.cluster.nodes[first[0]]
    state.put(replace(lost, lost_at=NOW))
    state.cluster.rolls.looked_at = 0.0
    on_tick(Turn(state, SETTINGS, NOW + 2))
    assert len(state.cluster.rolls.under_way) == begun
    assert first[0] not in state.cluster.rolls.under_way


@pytest.mark.parametrize(
    ("node", "task", "roll", "then", "kills"),
    [
        ({}, monitor(OLD, 0.0), {"asked_at": NOW - 9.9}, {}, []),
        ({}, monitor(OLD, 0.0), {"asked_at": NOW - 10}, {"asked_at": NOW}, [OLD]),
        ({}, None, {}, {}, []),
        ({}, WELL, {}, None, []),
        ({"reported_at": NOW - 20}, WELL, {}, {}, []),
        ({"reported_at": NOW - 19.9}, WELL, {}, None, []),
        ({"inventory": inventory(SICK)}, WELL, {"well": ()}, None, []),
        ({"lost_at": 5.0}, None, {}, None, []),
        ({"reported_at": None}, WELL, {}, {}, []),
        ({"reported_at": None}, monitor(NEW, NOW - 10, made_by="x"), {"failed": "boom"},
            {"old": NEW, "since": NOW, "asked_at": NOW, "launches": 8}, [NEW]),
        ({"reported_at": None}, monitor(NEW, NOW - 9.9, made_by="x"), {}, {}, []),
    ],
)  # fmt: skip
def test_roll_follows_a_monitor_until_the_next_one_is_well(
    node: dict[str, Any],
    task: Task | None,
    roll: dict[str, Any],
    then: dict[str, Any] | None,
    kills: list[TaskId],
) -> None:
    state = state_of(node, task, begun := replace(ROLL, **roll))
    state.cluster.rolls.looked_at = NOW
    turn = Turn(state, SETTINGS, NOW)
    on_tick(turn)
    assert [kill.task_id for kill in every(turn.effects, fx.Kill)] == kills
    known = None if then is None else replace(begun, **{**({"failed": ""} if kills == [NEW] else {}), **then})
    assert state.cluster.rolls.under_way == ({} if known is None else {A1: known})
    assert state.cluster.rolls.done == (then is None and "lost_at" not in node)
