"""Reports of monitors of their cards, and monitors that end."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.statuses import on_status
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.roll import MonitorReplacement
from mesos_gpu.model.saves import ForgetTask
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos import assignment, report
from tests.doubles.builders import every, gpu, spec

NOW = 1000.0
A1, A2, MONITOR = AgentId("a1"), AgentId("a2"), TaskId("m.1")
G0 = GpuId("g0")
SAID = Inventory((gpu("g0"),), "simulated")


def watched(node: dict[str, Any] | None = None, task: dict[str, Any] | None = None) -> Turn:
    """A node whose monitor runs since 900, with those changes."""
    state = State(0.0, mesos=MesosPart(connected=True))
    known = Node(A1, "h1", monitor=MONITOR, monitor_launches=4)
    if node is not None:
        state.put(replace(known, **node))
    state.put(replace(Task(MONITOR, A1, "e", None, TaskState.RUNNING, 900.0), **(task or {})))
    return Turn(state, Settings.of("executor", "monitor"), NOW)


def say(turn: Turn, state: str, data: bytes = b"", **more: Any) -> None:
    on_status(turn, Status(MONITOR, state, A1, data=data, **more))


# --- reports


@pytest.mark.parametrize(
    ("data", "inventory"),
    [
        (report.encode(SAID), SAID),
        (b"{", Inventory((), source="none")),
    ],
)
def test_first_report_of_a_node_is_taken_in_be_it_readable_or_not(data: bytes, inventory: Inventory) -> None:
    turn = watched({"lost_at": 5.0})
    say(turn, "TASK_RUNNING", data)
    node = turn.state.cluster.nodes[A1]
    assert (node.inventory, node.reported_at, node.lost_at) == (inventory, NOW, None)
    assert every(turn.effects, fx.Disbelieve) == []


def test_unreadable_report_leaves_cards_that_are_unknown_since_then() -> None:
    turn = watched(
        {"inventory": replace(SAID, gpus=(gpu("g0"), replace(gpu("g1", health=Health.UNKNOWN), since=7.0)))}
    )
    say(turn, "TASK_RUNNING", b"{")
    inventory = turn.state.cluster.nodes[A1].inventory
    assert inventory is not None
    assert inventory.source == "simulated"
    shown = [(card.id, card.health, card.reason[:17], card.since) for card in inventory.gpus]
    assert shown == [
        ("g0", Health.UNKNOWN, "unreadable report", NOW),
        ("g1", Health.UNKNOWN, "unreadable report", 7.0),
    ]


def test_report_of_another_monitor_than_the_node_has_is_not_believed() -> None:
    for monitor, words in ((TaskId("m.2"), "m.2"), (None, "none")):
        turn = watched({"monitor": monitor})
        say(turn, "TASK_RUNNING", report.encode(SAID))
        assert [each.why for each in every(turn.effects, fx.Disbelieve)] == [f"the monitor of h1 is {words}"]
        assert (turn.state.cluster.nodes[A1].inventory, turn.state.mesos.disbelieved) == (None, 1)


def test_report_of_a_monitor_without_a_node_is_of_nothing() -> None:
    turn = watched()
    say(turn, "TASK_RUNNING", report.encode(SAID))
    assert (turn.state.cluster.nodes, turn.state.mesos.disbelieved) == ({}, 0)


@pytest.mark.parametrize(
    ("other", "is_believed"),
    [
        ({}, False),
        ({"reported_at": NOW - 29.9}, False),
        ({"reported_at": NOW - 30.0}, True),
        ({"reported_at": None}, True),
        ({"lost_at": 5.0}, True),
        ({"inventory": Inventory((gpu("g7"),), "simulated")}, True),
    ],
)
def test_report_that_names_a_card_of_another_agent_is_not_believed(
    other: dict[str, Any], is_believed: bool
) -> None:
    turn = watched({})
    theirs = Node(A2, "h2", inventory=Inventory((gpu("g5"), gpu("g0")), "simulated"), reported_at=NOW - 1)
    turn.state.put(replace(theirs, **other))
    say(turn, "TASK_RUNNING", report.encode(Inventory((gpu("g0"), gpu("g1")), "simulated")))
    assert (turn.state.cluster.nodes[A1].inventory is not None) is is_believed
    words = [] if is_believed else ["it names g0, which is a card of h2 (agent a2)"]
    assert [each.why for each in every(turn.effects, fx.Disbelieve)] == words


# --- monitors that end


@pytest.mark.parametrize(
    ("launched_at", "wait_s"), [(NOW - 10.0, 0.2), (NOW - 9.9, 1.6), (900.0, 0.2)]
)  # four launches in a row: the fourth wait
def test_next_monitor_waits_longer_after_ends_in_a_row(launched_at: float, wait_s: float) -> None:
    turn = watched({}, {"launched_at": launched_at})
    say(turn, "TASK_FAILED")
    node = turn.state.cluster.nodes[A1]
    assert (node.monitor, node.monitor_not_before) == (None, NOW + wait_s)
    assert (turn.state.work.tasks, every(turn.effects, ForgetTask)) == ({}, [ForgetTask(MONITOR)])


@pytest.mark.parametrize("node", [None, {"monitor": TaskId("m.2")}, {"monitor": None}])
def test_end_of_an_earlier_monitor_leaves_the_node_alone(node: dict[str, Any] | None) -> None:
    turn = watched(node)
    before = dict(turn.state.cluster.nodes)
    say(turn, "TASK_FAILED")
    assert (turn.state.work.tasks, turn.state.cluster.nodes) == ({}, before)


@pytest.mark.parametrize(("old", "failed"), [("m.0", "boom"), ("m.1", "")])
def test_roll_remembers_why_the_new_monitor_ended(old: str, failed: str) -> None:
    turn = watched({})
    turn.state.cluster.rolls.under_way[A1] = MonitorReplacement(TaskId(old), 950.0, 950.0, 3)
    say(turn, "TASK_FAILED", message="boom")
    assert turn.state.cluster.rolls.under_way[A1].failed == failed


def test_monitor_that_is_cut_off_stays_with_its_node() -> None:
    turn = watched({})
    say(turn, "TASK_UNREACHABLE")
    assert (turn.state.cluster.nodes[A1].monitor, turn.state.work.tasks[MONITOR].state) == (
        MONITOR,
        TaskState.UNREACHABLE,
    )


# --- tasks on cards that are broken


@pytest.mark.parametrize(
    ("cards", "is_lost"),
    [
        ((gpu("g0"), gpu("g1")), False),
        ((gpu("g0", health=Health.SICK), gpu("g1")), True),
        ((gpu("g0"), gpu("g1", health=Health.SICK)), True),
        ((gpu("g1", health=Health.LOST),), True),
        ((gpu("g0"), gpu("g1"), gpu("g2", health=Health.SICK)), False),
        (None, False),
    ],
)
def test_failure_on_a_broken_card_is_no_attempt_of_the_job(cards: Any, is_lost: bool) -> None:
    turn, job = watched(None), Job(JobId("j"), spec(gpus=2), 0.0, 1, JobState.RUNNING, task_id=MONITOR)
    turn.state.put(job)
    turn.state.put(replace(turn.state.work.tasks.pop(MONITOR), job_id=job.id, gpus=(G0, GpuId("g1"))))
    if cards is not None:
        turn.state.put(Node(A1, "h1", inventory=Inventory(cards, "simulated")))
    say(turn, "TASK_FAILED", assignment.encode(Outcome(1)))
    assert turn.state.work.tasks[MONITOR].state is (TaskState.LOST if is_lost else TaskState.FAILED)
    assert turn.state.work.jobs[job.id].attempts == (not is_lost)


@pytest.mark.parametrize(
    ("at", "reason", "ended_at"),
    [
        (950.0, "", 950.0),
        (880.0, "", 920.0),
        (1100.0, "", 1000.0),
        (None, "", 1000.0),
        (950.0, "REASON_RECONCILIATION", 1000.0),
    ],
)
def test_task_ended_when_its_host_says_within_what_can_be(
    at: float | None, reason: str, ended_at: float
) -> None:
    turn = watched({}, {"job_id": JobId("j"), "started_at": 920.0})
    turn.state.put(Job(JobId("j"), spec(), 0.0, 1, JobState.RUNNING, task_id=MONITOR))
    say(turn, "TASK_KILLED" if not reason else "TASK_LOST", at=at, reason=reason)
    assert turn.state.work.tasks[MONITOR].ended_at == ended_at
