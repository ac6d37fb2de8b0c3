"""Jobs whose tasks change or end: their states, their messages, and how they go on."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.gangs import release
from mesos_gpu.engine.tasks.statuses import on_status
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos import assignment
from tests.doubles.builders import every, spec

NOW, A1, TASK, JOB = 1000.0, AgentId("a1"), TaskId("j.1"), JobId("j")
NOTICE = Notice(1, NoticeReason.RECLAIM, "reclaimed", 990.0, 1060.0)


def made(task: dict[str, Any] | None = None, job: dict[str, Any] | None = None) -> Turn:
    """A job whose task was launched at 900, with those changes."""
    state = State(0.0, mesos=MesosPart(connected=True))
    known = Job(JOB, spec(max_attempts=2), 0.0, 1, JobState.STARTING, task_id=TASK, launches=1)
    state.put(replace(known, **(job or {})))
    state.put(replace(Task(TASK, A1, TASK, JOB, TaskState.STARTING, 900.0, hostname="h1"), **(task or {})))
    return Turn(state, Settings.of("executor", "monitor"), NOW)


def say(turn: Turn, state: str, *, outcome: Outcome | None = None, **more: Any) -> Job:
    data = assignment.encode(outcome) if outcome else b""
    on_status(turn, Status(TASK, state, A1, data=data, **more))
    return turn.state.work.jobs[JOB]


@pytest.mark.parametrize(
    ("task", "said", "message"),
    [
        ({}, "it runs", "it runs"),
        ({}, "", "running"),
        ({"evicted": "drained"}, "it runs", "drained"),
        ({"evicted": "drained"}, "", "drained"),
    ],
)
def test_job_of_one_task_tells_each_word_of_it(task: dict[str, Any], said: str, message: str) -> None:
    job = say(made(task), "TASK_RUNNING", message=said)
    assert (job.state, job.message, job.started_at) == (JobState.RUNNING, message, NOW)


@pytest.mark.parametrize(
    ("state", "task", "keeps"),
    [
        ("TASK_RUNNING", {}, False),
        ("TASK_RUNNING", {"preempted_for": JobId("k")}, True),
        ("TASK_RUNNING", {"notice": NOTICE}, True),
        ("TASK_RUNNING", {"notice": replace(NOTICE, recalled_at=995.0)}, False),
        ("TASK_STARTING", {"state": TaskState.LAUNCHED}, True),
    ],
)
@pytest.mark.parametrize("room", [{"room_made_at": 950.0}, {"room_on": (A1,)}, {"room_made_at": 0.0}])
def test_room_is_kept_for_a_job_until_it_runs_for_good(
    state: str, task: dict[str, Any], room: dict[str, Any], keeps: bool
) -> None:
    job = say(made(task, dict(room)), state)
    has = {"room_made_at": None, "room_on": (), **(room if keeps else {})}
    assert {"room_made_at": job.room_made_at, "room_on": job.room_on} == has


ENDS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("TASK_FINISHED", {}, {}, {"message": "done"},
        {"state": JobState.FINISHED, "message": "done", "exit_code": 0}),
    ("TASK_FINISHED", {}, {}, {}, {"state": JobState.FINISHED, "message": "TASK_FINISHED", "exit_code": 0}),
    ("TASK_FINISHED", {}, {}, {"reason": "R"}, {"state": JobState.FINISHED, "message": "TASK_FINISHED R"}),
    ("TASK_FINISHED", {}, {"app_version": 1.0}, {"message": "done"},
        {"message": "done; an app must keep running, so a new instance starts"}),
    ("TASK_FAILED", {}, {}, {"message": "bad", "outcome": Outcome(3)},
        {"state": JobState.PENDING, "attempts": 1, "exit_code": 3, "not_before": NOW + 1,
         "message": "attempt 1 of 2: bad; next in 1 s", "infrastructure_failures": 0}),
    ("TASK_FAILED", {}, {"attempts": 1}, {"message": "bad", "outcome": Outcome(3)},
        {"state": JobState.FAILED, "attempts": 2, "exit_code": 3, "message": "bad", "ended_at": NOW}),
    ("TASK_FAILED", {"unhealthy": "no answer"}, {"attempts": 1}, {"message": "bad"},
        {"state": JobState.FAILED, "message": "unhealthy: no answer"}),
    ("TASK_FAILED", {"excess": "much", "kill_sent_at": 950.0}, {"attempts": 1}, {"message": "bad"},
        {"state": JobState.FAILED, "message": "ended beyond its share: much"}),
    ("TASK_FAILED", {"excess": "much"}, {"attempts": 1}, {"message": "bad"},
        {"state": JobState.FAILED, "message": "bad"}),
    ("TASK_LOST", {}, {}, {"message": "gone"},
        {"state": JobState.PENDING, "attempts": 0, "infrastructure_failures": 1, "not_before": NOW + 0.1,
         "message": "gone", "started_at": None}),
    ("TASK_LOST", {"evicted": "drained"}, {}, {"message": "gone"},
        {"state": JobState.PENDING, "infrastructure_failures": 1, "message": "drained"}),
    ("TASK_LOST", {}, {"infrastructure_failures": 49}, {"message": "gone"}, {"state": JobState.PENDING}),
    ("TASK_LOST", {}, {"infrastructure_failures": 50}, {"message": "gone"},
        {"state": JobState.FAILED, "infrastructure_failures": 51, "ended_at": NOW,
         "message": "gave up after 51 launches lost to the infrastructure; the last: gone"}),
    ("TASK_LOST", {}, {"kill_requested": True, "state": JobState.KILLING}, {"message": "gone"},
        {"state": JobState.KILLED, "message": "gone"}),
    ("TASK_LOST", {"evicted": "drained"}, {"kill_requested": True, "state": JobState.KILLING}, {"message": "gone"},
        {"state": JobState.KILLED, "message": "gone"}),
    ("TASK_LOST", {"evicted": "for k", "preempted_for": JobId("k")}, {"stopped": 4}, {"message": "gone"},
        {"state": JobState.PENDING, "stopped": 5, "message": "for k", "infrastructure_failures": 0, "not_before": 0.0}),
    ("TASK_LOST", {"evicted": "budget", "notice": NOTICE}, {"stopped": 4}, {"message": "gone"},
        {"state": JobState.PENDING, "stopped": 4, "message": "budget", "infrastructure_failures": 0}),
    ("TASK_LOST", {"evicted": "", "notice": NOTICE}, {}, {"message": "gone"},
        {"state": JobState.PENDING, "message": "gone", "infrastructure_failures": 0}),
    ("TASK_LOST", {"evicted": "", "notice": replace(NOTICE, recalled_at=995.0)}, {}, {"message": "gone"},
        {"state": JobState.PENDING, "infrastructure_failures": 1}),
    ("TASK_LOST", {"evicted": "time", "notice": replace(NOTICE, final=True)}, {}, {"message": "gone"},
        {"state": JobState.KILLED, "message": "time"}),
    ("TASK_LOST", {"notice": replace(NOTICE, final=True)}, {}, {"message": "gone"},
        {"state": JobState.KILLED, "message": "reclaimed"}),
    ("TASK_LOST", {"notice": replace(NOTICE, final=True, recalled_at=995.0)}, {}, {"message": "gone"},
        {"state": JobState.PENDING, "infrastructure_failures": 1}),
    ("TASK_LOST", {}, {"adopted": True}, {"message": "gone"},
        {"state": JobState.FAILED, "infrastructure_failures": 0}),
    ("TASK_LOST", {"preempted_for": JobId("k"), "evicted": "for k"}, {"adopted": True}, {"message": "gone"},
        {"state": JobState.FAILED, "infrastructure_failures": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("state", "task", "job", "said", "then"), ENDS)
def test_job_goes_on_by_how_its_task_ended(
    state: str, task: dict[str, Any], job: dict[str, Any], said: dict[str, Any], then: dict[str, Any]
) -> None:
    turn = made({"state": TaskState.RUNNING, "started_at": 910.0, **task}, {"state": JobState.RUNNING, **job})
    known = say(turn, state, **said)
    assert {name: getattr(known, name) for name in then} == then


NEEDS = Outcome(None, None, True, min_driver="550", needs="CUDA 12")


@pytest.mark.parametrize(
    ("task", "job", "outcome", "driver", "then"),
    [
        ({}, {}, NEEDS, None, ("550", "CUDA 12", 0)),
        ({}, {}, NEEDS, "540", ("550", "CUDA 12", 0)),
        ({}, {}, NEEDS, "550", ("550", "CUDA 12", 1)),
        ({}, {"learnt_min_driver": "560", "image_needs": "CUDA 13"}, NEEDS,
            None, ("560", "CUDA 13", 0)),
        ({}, {"image_needs": "CUDA 13"}, Outcome(None, None, True, min_driver="550"), None, ("550", "CUDA 13", 0)),
        ({"evicted": "drained"}, {}, NEEDS, None, (None, "", 1)),
        ({}, {}, Outcome(None, None, True), None, (None, "", 1)),
    ],
)  # fmt: skip
def test_job_learns_what_driver_its_image_needs(
    task: dict[str, Any],
    job: dict[str, Any],
    outcome: Outcome,
    driver: str | None,
    then: tuple[str | None, str, int],
) -> None:
    turn = made({"state": TaskState.RUNNING, **task}, {"state": JobState.RUNNING, **job})
    if driver is not None:
        turn.state.put(Node(A1, "h1", inventory=Inventory((), "simulated", driver)))
    known = say(turn, "TASK_FAILED", outcome=outcome)
    assert (known.learnt_min_driver, known.image_needs, known.infrastructure_failures) == then


# --- gangs


def gang(*states: TaskState, job: dict[str, Any] | None = None, **fields: Any) -> Turn:
    """A job of as many tasks in those states."""
    state = State(0.0, mesos=MesosPart(connected=True))
    known = Job(JOB, spec(tasks=len(states)), 0.0, 1, JobState.STARTING, task_id=TaskId("j.0"), launches=1)
    state.put(replace(known, **(job or {})))
    for rank, each in enumerate(states):
        id = TaskId(f"j.{rank}")
        member = Task(id, A1, f"e{rank}", JOB, each, 900.0, launch=1, rank=rank)
        state.put(replace(member, **(fields if rank == 1 else {})))
    return Turn(state, Settings.of("executor", "monitor"), NOW)


S, R, F, L = TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED, TaskState.LAUNCHED


@pytest.mark.parametrize(
    ("states", "job", "fields", "told"),
    [
        ((S, S), {}, {}, ["j.0", "j.1"]),
        ((S, R, F), {}, {}, ["j.0"]),
        ((S, L), {}, {}, []),
        ((S, TaskState.FAILED), {}, {}, []),
        ((S, S), {"kill_requested": True}, {}, []),
        ((S, S), {}, {"evicted": "drained"}, []),
        ((R, R), {}, {}, []),
    ],
)
def test_members_start_when_all_have_their_places(
    states: tuple[TaskState, ...], job: dict[str, Any], fields: dict[str, Any], told: list[str]
) -> None:
    turn = gang(*states, job=job, **fields)
    release(turn, turn.state.work.jobs[JOB])
    assert [start.task_id for start in every(turn.effects, fx.Start)] == told
    assert turn.state.work.released == dict.fromkeys(map(TaskId, told), NOW)
