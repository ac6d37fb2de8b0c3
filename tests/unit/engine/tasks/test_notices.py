"""Notices on their way to tasks, and what tasks say of their work."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.events import CheckpointTold
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.notices import (
    ends_in_time,
    happened,
    keep,
    noted,
    on_checkpoint_told,
    on_tick,
    on_told,
    tell,
)
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState, NoticeSignal
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.notice import encode_told
from tests.doubles.builders import every, only, spec

NOW = 1000.0
TASK, JOB = TaskId("j.1"), JobId("j")
NOTICE = Notice(3, NoticeReason.RECLAIM, "why", 990.0, 1060.0)


def made(task: dict[str, Any] | None = None, job: dict[str, Any] | None = None) -> Turn:
    """A job that runs since 900, with those changes."""
    state = State(0.0, mesos=MesosPart(connected=True))
    wanted = spec(queue="ml/a", notice_signal=NoticeSignal.SIGTERM)
    known = Job(JOB, wanted, 0.0, 1, JobState.RUNNING, task_id=TASK, started_at=900.0, owner="ann")
    state.put(replace(known, **(job or {})))
    running = Task(TASK, AgentId("a1"), "e", JOB, TaskState.RUNNING, 890.0, started_at=900.0)
    state.put(replace(running, **(task or {})))
    return Turn(state, Settings.of("executor", "monitor"), NOW)


@pytest.mark.parametrize(
    ("fields", "until", "left_s", "signal"),
    [
        ({}, 1060.0, 60.0, NoticeSignal.SIGTERM),
        ({}, 990.0, 0.0, NoticeSignal.SIGTERM),
        ({"warning": True}, 1060.0, 60.0, NoticeSignal.NONE),
    ],
)
def test_notice_is_sent_with_the_time_that_is_left(
    fields: dict[str, Any], until: float, left_s: float, signal: NoticeSignal
) -> None:
    turn, notice = made(), replace(NOTICE, until=until, **fields)
    tell(turn, turn.state.work.tasks[TASK], notice)
    assert only(turn.effects, fx.GiveNotice) == fx.GiveNotice(
        AgentId("a1"), "e", TASK, notice, left_s, signal
    )
    assert turn.state.work.tasks[TASK].notice == notice
    assert turn.state.work.notified == {TASK: (3, NOW)}


@pytest.mark.parametrize("state", [TaskState.STARTING, TaskState.UNREACHABLE])
def test_notice_waits_until_its_task_can_hear_it(state: TaskState) -> None:
    for turn in (made({"state": state}), made()):
        turn.state.mesos.connected = turn.state.work.tasks[TASK].state is not TaskState.RUNNING
        tell(turn, turn.state.work.tasks[TASK], NOTICE)
        assert (every(turn.effects, fx.GiveNotice), turn.state.work.notified) == ([], {})
        assert turn.state.work.tasks[TASK].notice == NOTICE


@pytest.mark.parametrize(
    ("owner", "queue", "told"),
    [
        ("ann", "ml/b", None),
        ("", "ml/b", None),
        ("bob", "ml/a", "for another job of queue ml/a and queue ml "),
        ("bob", "ml/b", "for another job of its queue and queue ml "),
        ("bob", "hpc", "for another job of queue ml/a and queue ml "),
    ],
)
def test_notice_names_no_job_of_another_owner(owner: str, queue: str, told: str | None) -> None:
    turn = made()
    turn.state.put(Job(JobId("k"), spec(queue=queue), 0.0, 2, owner=owner))
    at = queue if queue == "ml/b" else "ml/a"
    notice = replace(NOTICE, by=JobId("k"), why=f"for job k of queue {at} and queue ml ")
    tell(turn, turn.state.work.tasks[TASK], notice)
    sent = only(turn.effects, fx.GiveNotice).notice
    assert sent == (notice if told is None else replace(notice, by=None, why=told))


@pytest.mark.parametrize(
    ("notice", "task", "notified", "is_sent"),
    [
        (NOTICE, {}, None, True),
        (NOTICE, {}, (2, NOW), True),
        (NOTICE, {}, (3, NOW - 2.4), False),
        (NOTICE, {}, (3, NOW - 2.5), True),
        (replace(NOTICE, at=0.0), {}, (3, NOW - 2.5), False),
        (replace(NOTICE, at=0.0, recalled_at=990.0), {}, (3, NOW - 2.5), True),
        (replace(NOTICE, told=2), {}, None, True),
        (replace(NOTICE, told=3), {}, None, False),
        (NOTICE, {"evicted": "it is over"}, None, False),
        (None, {"kill_sent_at": 990.0}, None, False),
    ],
)
def test_notice_is_sent_again_until_it_is_answered(
    notice: Notice | None, task: dict[str, Any], notified: tuple[int, float] | None, is_sent: bool
) -> None:
    turn = made({**task, "notice": notice})
    other = replace(turn.state.work.tasks[TASK], id=TaskId("z"), job_id=None, notice=NOTICE, evicted="")
    turn.state.put(other)
    if notified is not None:
        turn.state.work.notified[TASK] = notified
    on_tick(turn)
    told = [TASK, other.id] if is_sent else [other.id]
    assert [each.task_id for each in every(turn.effects, fx.GiveNotice)] == told, "of each task by itself"


@pytest.mark.parametrize(
    ("number", "then", "is_sent"),
    [
        (0, NOTICE, False),
        (2, replace(NOTICE, told=2), False),
        (3, replace(NOTICE, told=3), False),
        (4, replace(NOTICE, told=4, number=5), True),
    ],
)
def test_notice_is_told_up_to_the_number_that_is_answered(number: int, then: Notice, is_sent: bool) -> None:
    turn = made({"notice": NOTICE})
    on_told(turn, turn.state.work.tasks[TASK], Status(TASK, "TASK_RUNNING", data=encode_told(number)))
    assert turn.state.work.tasks[TASK].notice == then
    assert len(every(turn.effects, fx.GiveNotice)) == is_sent
    assert bool(turn.effects) is (then != NOTICE)


def test_answer_to_no_notice_or_of_another_format_changes_nothing() -> None:
    turn = made()
    for data in (encode_told(3), b"{", b'{"x":1}'):
        on_told(turn, turn.state.work.tasks[TASK], Status(TASK, "TASK_RUNNING", data=data))
    assert turn.effects == []


@pytest.mark.parametrize(
    ("at", "before", "started_at", "kept_at"),
    [
        (950.0, None, 900.0, 950.0),
        (800.0, None, 900.0, 900.0),
        (800.0, None, None, 890.0),
        (1100.0, None, 900.0, 1000.0),
        (1000.0, 990.0, 900.0, 1000.0),
        (1000.0, 990.1, 900.0, None),
    ],
)
def test_kept_work_is_of_the_time_that_a_task_ran(
    at: float, before: float | None, started_at: float | None, kept_at: float | None
) -> None:
    turn = made({"started_at": started_at}, {"checkpoint_at": before})
    job = turn.state.work.jobs[JOB]
    keep(turn, job, turn.state.work.tasks[TASK], at)
    now = job if kept_at is None else replace(job, checkpoint_at=kept_at, version=job.version + 1)
    assert turn.state.work.jobs[JOB] == now
    assert [event.kind for event in turn.state.work.events] == (
        [] if kept_at is None else [EventKind.CHECKPOINT]
    )


@pytest.mark.parametrize(
    ("job", "task", "is_kept"),
    [
        ({}, {}, True),
        ({"state": JobState.PENDING}, {}, False),
        ({"state": JobState.FINISHED}, {}, False),
        ({}, {"started_at": None}, False),
        ({}, {"state": TaskState.FAILED}, False),
    ],
)
def test_work_of_a_job_that_runs_is_kept_when_somebody_says_so(
    job: dict[str, Any], task: dict[str, Any], is_kept: bool
) -> None:
    turn = made(task, job)
    if is_kept:
        on_checkpoint_told(turn, CheckpointTold(JOB))
        assert turn.state.work.jobs[JOB].checkpoint_at == NOW
        return
    with pytest.raises(Conflict, match="only a running job has checkpoints"):
        on_checkpoint_told(turn, CheckpointTold(JOB))
    with pytest.raises(NotFound):
        on_checkpoint_told(turn, CheckpointTold(JobId("none")))


def test_events_are_numbered_by_their_time_each_one_higher() -> None:
    turn, job = made(), made().state.work.jobs[JOB]
    for now, number in ((1000.0, 1_000_000), (1000.0, 1_000_001), (999.0, 1_000_002), (1001.0, 1_001_000)):
        turn.now = now
        happened(turn, EventKind.CHECKPOINT, job)
        assert turn.state.work.events[-1].number == number


@pytest.mark.parametrize(
    ("notice", "is_in_time"),
    [
        (NOTICE, True),
        (None, False),
        (replace(NOTICE, recalled_at=NOW), False),
        (replace(NOTICE, warning=True), False),
    ],
)
def test_task_that_ends_by_itself_within_its_notice_ends_in_time(
    notice: Notice | None, is_in_time: bool
) -> None:
    task = replace(made().state.work.tasks[TASK], notice=notice)
    assert ends_in_time(task, Status(TASK, "TASK_FINISHED", message="Command exited with 0")) is is_in_time
    assert not ends_in_time(task, Status(TASK, "TASK_FINISHED", message="its time was over"))


def test_task_that_ended_within_its_notice_says_why() -> None:
    task = replace(made().state.work.tasks[TASK], notice=NOTICE)
    assert noted(task).evicted == "why; it ended within its notice"
    assert noted(replace(task, evicted="drained")).evicted == "drained"
