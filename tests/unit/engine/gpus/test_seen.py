"""The most of an agent that was seen of late, and what Mesos' roles let it have; cards that are reset."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.events import ResetRequested
from mesos_gpu.engine.gpus import cards
from mesos_gpu.engine.gpus.role import is_asked, is_for_others, most_seen, reserved_for_others, waits_for_role
from mesos_gpu.engine.indexes.memory import Capacity
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Card, Reset
from mesos_gpu.model.nodes.gpu import Health, Inventory, Transition
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.nodes.role import GPUS, Role
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import every, gpu, offer, spec

NOW, A1, G0 = 1000.0, AgentId("a1"), GpuId("g0")
SETTINGS = Settings.of("executor", "monitor", role="gpu")
NODE = Node(A1, "h1", inventory=Inventory((gpu("g0"), gpu("g1"))), monitor=TaskId("m"))


def role(limit: float, used: float, name: str = "gpu") -> Role:
    return Role(name, limits={GPUS: limit}, used={GPUS: used})


def cpus(number: float, gpus: int = 0) -> Resources:
    return Resources(cpus=number, gpus=gpus)


# --- capacities


@pytest.mark.parametrize(
    ("old", "seen", "new"),
    [
        (None, cpus(4), Capacity(NOW, cpus(4), cpus(4))),
        (Capacity(NOW - 60.1, cpus(8), cpus(9)), cpus(4), Capacity(NOW, cpus(4), cpus(4))),
        (Capacity(NOW - 60.0, cpus(8), cpus(9)), cpus(4), Capacity(NOW, cpus(4), cpus(8))),
        (Capacity(NOW - 30.1, cpus(8), cpus(9)), cpus(4), Capacity(NOW, cpus(4), cpus(8))),
        (Capacity(NOW - 30.0, cpus(8), cpus(9)), cpus(4), Capacity(NOW - 30.0, cpus(8), cpus(9))),
        (Capacity(NOW - 30.0, cpus(8), cpus(9)), cpus(10), Capacity(NOW - 30.0, cpus(10), cpus(9))),
    ],
)
def test_most_that_was_seen_is_of_two_spans(old: Capacity | None, seen: Resources, new: Capacity) -> None:
    for reading in (True, False):
        state = State(0.0)
        before = {} if old is None else {A1: old}
        state.cluster.capacities = dict(before)
        most = most_seen(state, SETTINGS, NOW, NODE, seen, reading=reading)
        assert most == new.latest.most(new.before)
        assert state.cluster.capacities == (before if reading else {A1: new})


@pytest.mark.parametrize(("left", "gpus"), [(1, 2), (2, 0), (3, 0)])
def test_agent_has_what_its_host_reports_while_its_role_may_have_less(left: int, gpus: int) -> None:
    state = State(0.0)
    state.mesos.roles.known = {"other": role(9, 0, "other"), "gpu": role(4, 4 - left)}
    assert most_seen(state, SETTINGS, NOW, NODE, cpus(4), reading=True) == cpus(4, gpus)


# --- roles


@pytest.mark.parametrize(
    ("known", "job", "why"),
    [
        ({}, {"gpus": 9}, ""),
        ({"gpu": role(4, 3)}, {"gpus": 1}, ""),
        ({"gpu": role(4, 3)}, {"gpus": 2}, "by Mesos' quota the role gpu may have 4 GPUs, and 3 are used"),
        (
            {"gpu": role(4, 3)},
            {"gpus": 1, "tasks": 2},
            "by Mesos' quota the role gpu may have 4 GPUs, and 3 are used",
        ),
        ({"gpu": role(4, 4)}, {"gpus": 1, "gpu_milli": 500}, ""),
        ({"other": role(4, 4)}, {"gpus": 2}, ""),
    ],
)
def test_job_waits_if_the_quota_of_its_role_leaves_too_few_gpus(
    known: dict[str, Role], job: dict[str, Any], why: str
) -> None:
    state = State(0.0, mesos=MesosPart(connected=True))
    state.mesos.roles.known = known
    assert waits_for_role(state, SETTINGS, Job(JobId("j"), spec(**job), 0.0, 1)) == why


@pytest.mark.parametrize(
    ("offered", "connected", "suppressed", "asked", "waits"),
    [
        ("lab", True, False, None, False),
        ("", True, False, None, True),
        ("gpu", True, False, None, True),
        (None, True, False, ("lab",), True),
        (None, True, False, ("gpu",), False),
        (None, False, False, None, False),
        (None, True, True, None, False),
    ],
)
def test_job_waits_for_offers_to_its_queues_role(
    offered: str | None, connected: bool, suppressed: bool, asked: tuple[str, ...] | None, waits: bool
) -> None:
    state = State(0.0, mesos=MesosPart(connected=connected, suppressed=suppressed))
    state.mesos.roles.asked = asked
    if offered is not None:
        state.cluster.hold_offer(replace(offer("o1"), role=offered))
    settings = SETTINGS.changed(role_of={"lab": "lab"})
    job = Job(JobId("j"), spec(queue="lab/a"), 0.0, 1)
    assert waits_for_role(state, settings, job) == (
        "Mesos offers nothing to its queue's role lab" if waits else ""
    )
    assert is_asked(state, "lab") is (connected and not suppressed and asked in (None, ("lab",)))


def reserved(name: str, amount: float, to: str | None) -> Scalar:
    return Scalar(name, amount, "{}" if to is None else json.dumps({"role": to}))


@pytest.mark.parametrize(
    ("scalars", "gpus", "others", "count"),
    [
        ([], 1, False, 0),
        ([reserved("gpus", 2, None)], 1, False, 0),
        ([reserved("gpus", 2, "other")], 1, True, 2),
        ([reserved("gpus", 2, "gpu")], 1, False, 0),
        ([reserved("gpus", 2, "other"), reserved("gpus", 1, "gpu")], 1, False, 2),
        ([reserved("gpus", 2, "other"), reserved("cpus", 1, None)], 1, True, 2),
        ([reserved("gpus", 2, "other"), reserved("cpus", 1, None)], 0, False, 2),
        ([reserved("cpus", 2, "other")], 0, True, 0),
        ([reserved("cpus", 2, "other")], 1, False, 0),
    ],
)
def test_gpus_that_are_reserved_for_other_roles_are_not_for_a_job(
    scalars: list[Scalar], gpus: int, others: bool, count: int
) -> None:
    state = State(0.0)
    state.cluster.hold_offer(replace(offer("o1", "a1"), resources=tuple(scalars)))
    state.cluster.hold_offer(replace(offer("o2", "a2"), resources=(reserved("gpus", 5, "x"),)))
    assert is_for_others(state, SETTINGS, Job(JobId("j"), spec(gpus=gpus), 0.0, 1), A1) is others
    assert reserved_for_others(state, "gpu", A1) == count


# --- resets of cards


def resetting(*, node: dict[str, Any] | None, **reset: Any) -> Turn:
    state = State(0.0, mesos=MesosPart(connected=True))
    state.put(Task(TaskId("m"), A1, "e", None, TaskState.RUNNING, 900.0))
    if node is not None:
        state.put(replace(NODE, **node))
    state.put(Card(G0, reset=Reset("r1", "stuck", "ann", **{"since": NOW - 10, "sent_at": NOW - 3, **reset})))
    return Turn(state, SETTINGS, NOW)


@pytest.mark.parametrize(
    ("node", "reset", "is_asked"),
    [
        ({}, {}, True),
        ({}, {"sent_at": None}, True),
        ({}, {"sent_at": NOW - 2.9}, False),
        ({"monitor": None}, {}, False),
        ({"monitor": TaskId("gone")}, {}, False),
        (None, {}, False),
        ({"inventory": Inventory((gpu("g1"),))}, {}, False),
    ],
)
def test_reset_is_asked_for_of_the_node_that_has_the_card(
    node: dict[str, Any] | None, reset: dict[str, Any], is_asked: bool
) -> None:
    turn = resetting(node=node, **reset)
    before = turn.state.gpus.cards[G0].reset
    assert before is not None
    cards.on_tick(turn)
    assert every(turn.effects, fx.AskReset) == ([fx.AskReset(A1, "e", G0, "r1")] if is_asked else [])
    assert turn.state.gpus.cards[G0].reset == (replace(before, sent_at=NOW) if is_asked else before)


@pytest.mark.parametrize(
    ("node", "health"),
    [({"inventory": Inventory((gpu("g0", health=Health.SICK),))}, Health.SICK), (None, Health.UNKNOWN)],
)
def test_reset_without_an_answer_ends_with_a_note(node: dict[str, Any] | None, health: Health) -> None:
    turn = resetting(node=node, since=NOW - 60)
    cards.on_tick(turn)
    words = "reset r1: the node did not answer within 60 s"
    assert turn.state.gpus.cards[G0] == Card(G0, (Transition(NOW, health, health, words),))


@pytest.mark.parametrize(
    ("history", "reason", "is_answered"),
    [((), "after r1", True), (("r1 is done",), "", True), (("r2",), "", False)],
)
def test_reset_is_answered_by_a_report_that_names_it(
    history: tuple[str, ...], reason: str, is_answered: bool
) -> None:
    turn = resetting(node={})
    changes = tuple(Transition(NOW - 1, Health.OK, Health.SICK, words) for words in history)
    cards.on_reported(turn, replace(gpu("g0"), history=changes, reason=reason))
    card = turn.state.gpus.cards[G0]
    assert (card.reset is None, card.changes) == (is_answered, changes)


@pytest.mark.parametrize(
    ("tasks", "node", "what"),
    [
        (["x"], {}, "g0 is held by x"),
        (["x", "y"], {}, "g0 is held by x"),
        ([], {"monitor": None}, "g0 cannot be reset: no monitor runs on h1"),
        ([], {"lost_at": 5.0}, "g0 cannot be reset: no monitor runs on h1"),
        ([], {}, "g0 is in reset r1 for 10 s already"),
    ],
)
def test_reset_is_refused_while_a_card_is_held_or_out_of_reach(
    tasks: list[str], node: dict[str, Any], what: str
) -> None:
    turn = resetting(node=node)
    for name in tasks[:1]:
        turn.state.put(Task(TaskId(name), A1, name, None, TaskState.RUNNING, 900.0, gpus=(G0,)))
    with pytest.raises(Conflict) as refused:
        cards.on_reset_requested(turn, ResetRequested(G0, "r2", "again", "bob"))
    assert (refused.value.what, turn.effects) == (what, [])
    with pytest.raises(NotFound):
        cards.on_reset_requested(turn, ResetRequested(GpuId("no"), "r2", "again", "bob"))


@pytest.mark.parametrize(
    ("by", "words"), [("bob", "reset r2 asked for by bob: stuck"), ("", "reset r2 asked for: stuck")]
)
def test_reset_that_is_asked_for_is_kept_and_sent(by: str, words: str) -> None:
    turn = resetting(node={})
    turn.state.put(Card(G0))
    cards.on_reset_requested(turn, ResetRequested(G0, "r2", "stuck", by))
    note = Transition(NOW, Health.OK, Health.OK, words)
    assert turn.state.gpus.cards[G0] == Card(G0, (note,), reset=Reset("r2", "stuck", by, NOW, NOW))
    assert every(turn.effects, fx.AskReset) == [fx.AskReset(A1, "e", G0, "r2")]
