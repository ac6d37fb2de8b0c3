"""Each moment that the state has, when the clock is set back: none is in the future that has passed, and what comes
comes as soon."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mesos_gpu.engine import set_back
from mesos_gpu.engine.books import Books
from mesos_gpu.engine.indexes.memory import Capacity, Reconciliation, SecretRead, Unreserved
from mesos_gpu.engine.parts.match import MatchPart
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.parts.work import WorkPart
from mesos_gpu.engine.set_back import latest
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Card, Drain, Reset, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.roll import MonitorReplacement
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.served import Served
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.resize import Resizing
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.queueing.launch_window import Window
from tests.doubles.builders import offer, spec

BEFORE, NOW = 1000.0, 500.0  # by the clock
#: A moment, what is made of it if it is one since which something is, and if something lasts until then.
MOMENTS = [
    (400.0, 400.0, 400.0),
    (500.0, 500.0, 500.0),
    (700.0, 500.0, 500.0),
    (1000.0, 500.0, 500.0),
    (1100.0, 500.0, 600.0),
]
SHARE = Share(500, 1000, 1000, Method.TURNS)
A1, G0 = AgentId("a1"), GpuId("g0")


def nouns(since: float, until: float, made_at: float) -> dict[str, Any]:
    """Return all that is saved, with those moments; `made_at`: of room that was made for a job."""
    notice = Notice(1, NoticeReason.DRAIN, "why", since, until)
    task = Task(
        TaskId("j.1"), A1, "j.1", JobId("j"), TaskState.UNREACHABLE, since,
        started_at=since, heard_at=since, unreachable_since=since, kill_sent_at=since, notice=notice,
        resize=Resizing(1, SHARE, SHARE, since, sent_at=since),
    )  # fmt: skip
    gone = replace(task, id=TaskId("j.0"), state=TaskState.LOST, ended_at=since)
    job = Job(
        JobId("j"), spec(), since, 1, JobState.RUNNING, task_id=task.id, started_at=since, in_line_since=since,
        checkpoint_at=since, room_made_at=made_at, not_before=until, spared_until=until, served=Served(7, since),
    )  # fmt: skip
    node = Node(A1, "a1", reported_at=since, lost_at=since, monitor_not_before=until, launch_not_before=until)
    return {
        "tasks": [gone, task],
        "jobs": [job],
        "nodes": [node],
        "drains": [Drain(Target.GPU, "g0", "why", "ann", since, until)],
        "cards": [Card(G0, reset=Reset("r", "why", "", since, since))],
        "idlenesses": [Idleness(JobId("j"), since=since, known_at=since)],
    }


def memory(since: float, until: float) -> dict[str, Any]:
    """Return all that only memory has, with those moments, by the name of its field."""
    seen = MonitorReplacement(TaskId("m"), since, since, 3)
    return {
        **dict.fromkeys(
            (
                "registered_at", "swept_at", "matched_at", "reconciled_at", "listing_at", "tokens_swept_at",
                "past_uses_swept_at", "looked_at_apps", "idle_since",
            ),
            since,
        ),
        "reserve_from": until,
        **{name: {name: since} for name in ("idle", "uncovered", "released")},
        "contested": {G0: until},
        "keeper_failures": {A1: (3, until)},
        "backoffs": {("/a", 7.0): (3, until)},
        "notified": {TaskId("t"): (3, since)},
        "capacities": {A1: Capacity(since, NOTHING, NOTHING)},
        "windows": {A1: Window(7.0, since, 2, since, since)},
        "unreserved": {A1: Unreserved((), 3, until)},
        "secrets": {"s": SecretRead(since, True, since, next_at=until)},
        "rolls": SimpleNamespace(looked_at=since, under_way={A1: seen}),
        "offers": {held.id: held for held in [replace(offer("o1"), received_at=since)]},
    }  # fmt: skip


def filled(since: float, until: float) -> State:
    """A state with those moments, at which all tasks were looked at last before the clock was set."""
    state = State(0.0, work=WorkPart(tended_at=BEFORE))
    for values in nouns(since, until, since).values():
        for value in values:
            state.put(value)
    for name, value in memory(since, until).items():
        if name == "offers":
            for each in value.values():
                state.cluster.hold_offer(each)
        elif name == "rolls":
            state.cluster.rolls.looked_at, state.cluster.rolls.under_way = value.looked_at, value.under_way
        else:
            setattr(state.part_with(name), name, value)
    return state


@pytest.mark.parametrize(("at", "since", "until"), MOMENTS)
def test_moment_is_moved_if_the_clock_was_set_back_over_it(at: float, since: float, until: float) -> None:
    state = filled(at, at)
    set_back.on_tick(Turn(state, Settings.of("executor", "monitor"), NOW))
    made_at = at if at > BEFORE else since  # hours change then, by the clock
    for plural, values in nouns(since, until, made_at).items():
        known = list(getattr(state.part_with(plural), plural).values())
        shown = [replace(each, version=1) for each in known] if plural == "jobs" else known
        assert shown == values
    for name, value in memory(since, until).items():
        known = getattr(state.part_with(name), name)
        assert (
            (vars(value) == {key: getattr(known, key) for key in vars(value)})
            if name == "rolls"
            else (known == value)
        )
    assert state.work.tended_at == NOW
    told = state.work.restless.told[A1]
    assert told == {TaskId("j.1"): since}


def test_clock_set_back_saves_only_what_moved() -> None:
    for at, count in ((NOW, 0), (BEFORE, 8)):
        turn = Turn(filled(at, at), Settings.of("executor", "monitor"), NOW)
        set_back.on_tick(turn)
        assert len(turn.effects) == count, turn.effects


@pytest.mark.parametrize(
    ("created_at", "used_at", "expires_at"), [(400.0, None, 2000.0), (900.0, 950.0, 1600.0)]
)
def test_token_keeps_its_time_from_when_it_was_made(
    created_at: float, used_at: float | None, expires_at: float
) -> None:
    state = State(0.0, work=WorkPart(tended_at=BEFORE))
    state.put(Token("t", "ann", "", "", created_at, 2000.0, used_at=used_at))
    turn = Turn(state, Settings.of("executor", "monitor"), NOW)
    set_back.on_tick(turn)
    used_at = None if used_at is None else NOW
    assert state.rights.tokens["t"] == Token(
        "t", "ann", "", "", min(created_at, NOW), expires_at, used_at=used_at
    )
    assert len(turn.effects) == (created_at > NOW)


def test_clock_set_back_leaves_what_is_over() -> None:
    state, over = (
        State(0.0, work=WorkPart(tended_at=BEFORE)),
        Job(JobId("j"), spec(), 900.0, 1, JobState.FAILED),
    )
    task = Task(TaskId("j.1"), A1, "j.1", JobId("j"), TaskState.FAILED, 900.0, heard_at=900.0, ended_at=900.0)
    recalled = Notice(2, NoticeReason.DRAIN, "why", 900.0, 1900.0, recalled_at=950.0)
    runs = Task(TaskId("x"), A1, "x", None, TaskState.RUNNING, 400.0, notice=recalled)
    for each in (over, task, runs):
        state.put(each)
    turn = Turn(state, Settings.of("executor", "monitor"), NOW)
    set_back.on_tick(turn)
    assert (state.work.jobs[over.id], state.work.tasks[task.id], state.work.tasks[runs.id]) == (
        over,
        task,
        runs,
    )
    assert turn.effects == []


def test_clock_set_back_begins_what_is_worked_out_again() -> None:
    state = State(
        0.0,
        work=WorkPart(tended_at=BEFORE),
        mesos=MesosPart(reconciliation=Reconciliation(900.0, 950.0, 4)),
        match=MatchPart(unmatched=False),
    )
    state.cluster.table = state.quota.leaves = cast("Any", object())
    state.quota.made_books, state.quota.moved_jobs = Books(), {JobId("j")}
    set_back.on_tick(Turn(state, Settings.of("executor", "monitor"), NOW))
    assert state.mesos.reconciliation == Reconciliation(NOW, NOW)
    assert [state.cluster.table, state.quota.leaves, state.quota.made_books] == [None, None, None]
    assert state.quota.moved_jobs == set()
    assert state.match.unmatched
    assert state.mesos.idle_since is None


# --- without a clock set back


@pytest.mark.parametrize(
    ("passed_s", "state", "since", "then"),
    [
        (5.0, TaskState.UNREACHABLE, 950.0, 950.0),
        (5.1, TaskState.UNREACHABLE, 950.0, 955.1),
        (60.0, TaskState.UNREACHABLE, 950.0, 1010.0),
        (60.0, TaskState.UNREACHABLE, 1040.0, 1060.0),
        (60.0, TaskState.UNREACHABLE, 1060.0, 1060.0),
        (60.0, TaskState.ABANDONED, 950.0, 950.0),
        (60.0, TaskState.RUNNING, None, None),
    ],
)
def test_task_is_cut_off_for_less_by_a_time_in_which_nothing_was_done(
    passed_s: float, state: TaskState, since: float | None, then: float | None
) -> None:
    known = State(0.0, work=WorkPart(tended_at=BEFORE))
    task = Task(TaskId("t"), A1, "t", None, state, 900.0, unreachable_since=since)
    known.put(task)
    turn = Turn(known, Settings.of("executor", "monitor"), BEFORE + passed_s)
    set_back.on_tick(turn)
    assert known.work.tasks[task.id] == replace(task, unreachable_since=then)
    assert len(turn.effects) == (since != then)


@pytest.mark.parametrize(
    "field", ["launched_at", "heard_at", "kill_sent_at", "unreachable_since", "submitted_at", "reported_at"]
)
def test_latest_moment_is_of_what_runs_waits_or_reports(field: str) -> None:
    state, names = State(0.0), {"kill_sent_at", "unreachable_since", "heard_at"}
    assert latest(state) == 0.0
    task = Task(TaskId("t"), A1, "t", None, TaskState.RUNNING, 7.0 if field == "launched_at" else 1.0)
    state.put(replace(task, **{field: 7.0}) if field in names else task)  # type: ignore[arg-type]
    state.put(Job(JobId("j"), spec(), 7.0 if field == "submitted_at" else 1.0, 1))
    state.put(Node(A1, "a1", reported_at=7.0 if field == "reported_at" else None))
    state.put(replace(task, id=TaskId("over"), state=TaskState.FAILED, heard_at=9.0))
    assert latest(state) == 7.0
