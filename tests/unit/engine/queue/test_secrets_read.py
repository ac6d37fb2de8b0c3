"""Knowledge of secrets: when they are read, whether they are at hand, and what is said of those that are not."""

from dataclasses import replace
from typing import Final

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.memory import SecretRead
from mesos_gpu.engine.queue import secrets
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import spec

NOW: Final = 1000.0
SUBMITTED: Final = 930.0  # of the job
READ: Final = SecretRead(asked_at=950.0, answered=True, read_at=950.0, next_at=1001.0)
FAILED: Final = replace(READ, read_at=None, problem="the store is sealed", failures=1)


def turn_of(known: SecretRead | None, *, task: Task | None = None) -> tuple[Turn, Job]:
    """Make a state in which this is known of the secret "s/k" of a job, which had this task last."""
    state = State(started_at=0.0)
    job = Job(JobId("j"), spec(secrets=(Secret("A", "s/k"), Secret("B", "s/k"))), SUBMITTED, 1)
    if known is not None:
        state.work.secrets["s/k"] = known
    if task is not None:
        state.work.tasks[task.id] = task
        job = replace(job, task_id=task.id)
    return Turn(state, Settings.of("e", "m", secrets=True), NOW), job


def last_task(ended_at: float | None, heard_at: float) -> Task:
    return Task(
        TaskId("t"),
        AgentId("a"),
        "t",
        JobId("j"),
        TaskState.FAILED,
        900.0,
        ended_at=ended_at,
        heard_at=heard_at,
    )


@pytest.mark.parametrize(
    ("known", "asks", "holds"),
    [
        (None, True, False),
        (SecretRead(asked_at=940.5), False, False),
        (SecretRead(asked_at=940.0), True, False),  # no answer for as long as one is waited for
        (READ, False, True),
        (replace(READ, next_at=NOW), True, True),  # a value that is read again is good meanwhile
        (replace(READ, read_at=940.0), False, True),
        (replace(READ, read_at=939.5), False, False),  # too old
        (replace(READ, read_at=SUBMITTED), False, False),
        (replace(READ, read_at=SUBMITTED - 1), True, False),
        (FAILED, False, False),
        (replace(FAILED, next_at=NOW), True, False),
    ],
)
def test_secret_is_asked_for_and_held_by_what_is_known(
    known: SecretRead | None, asks: bool, holds: bool
) -> None:
    turn, job = turn_of(known)
    assert secrets.at_hand(turn, job) is holds
    assert turn.effects == ([fx.ReadSecrets(("s/k",))] if asks else [])
    before = known or SecretRead()
    assert turn.state.work.secrets["s/k"] == (
        replace(before, asked_at=NOW, answered=False) if asks else before
    )


@pytest.mark.parametrize(
    ("read_at", "ended_at", "heard_at", "holds"),
    [
        (960.0, 960.0, 970.0, True),
        (959.0, 960.0, 950.0, False),
        (960.0, None, 960.0, True),
        (959.0, None, 960.0, False),
    ],
)
def test_secret_of_a_further_launch_is_read_after_the_last_one(
    read_at: float, ended_at: float | None, heard_at: float, holds: bool
) -> None:
    turn, job = turn_of(replace(READ, read_at=read_at), task=last_task(ended_at, heard_at))
    assert secrets.at_hand(turn, job) is holds
    assert bool(turn.effects) is not holds
    assert bool(secrets.problem_of(turn.state, turn.settings, NOW, job)) is not holds


def test_secret_of_a_job_whose_last_task_is_forgotten_is_read_since_its_submission() -> None:
    turn, job = turn_of(READ)
    job = replace(job, task_id=TaskId("gone"))
    assert secrets.at_hand(turn, job)
    assert turn.effects == []


def test_job_without_secrets_asks_for_none() -> None:
    turn, job = turn_of(None)
    job = replace(job, spec=spec())
    assert secrets.at_hand(turn, job)
    assert (turn.effects, turn.state.work.secrets) == ([], {})
    assert secrets.problem_of(turn.state, turn.settings, NOW, job) == ""


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, ""),
        (READ, ""),
        (SecretRead(asked_at=NOW), "secret s/k is being read"),
        (FAILED, "s/k: the store is sealed; tried once, again in 1 s"),
        (
            replace(FAILED, failures=2, next_at=1060.0),
            "s/k: the store is sealed; tried 2 times, again in 60 s",
        ),
        (replace(FAILED, next_at=990.0), "s/k: the store is sealed; tried once, again in 0 s"),
        (replace(FAILED, problem="there is no s/k"), "there is no s/k; tried once, again in 1 s"),
    ],
)
def test_problem_of_a_secret_is_told_in_words(known: SecretRead | None, words: str) -> None:
    turn, job = turn_of(known)
    assert secrets.problem_of(turn.state, turn.settings, NOW, job) == words


def test_problem_that_names_the_path_of_a_secret_is_not_named_again() -> None:
    turn, job = turn_of(None)
    job = replace(job, spec=spec(secrets=(Secret("A", "ok"), Secret("B", "team/x#one"))))
    turn.state.work.secrets.update({"ok": READ, "team/x#one": replace(FAILED, problem="there is no team/x")})
    assert secrets.problem_of(turn.state, turn.settings, NOW, job) == (
        "there is no team/x; tried once, again in 1 s"
    )


@pytest.mark.parametrize(
    ("before", "why", "after"),
    [
        (None, "", SecretRead(answered=True, read_at=-1e12, next_at=NOW + 20)),
        (None, "sealed", SecretRead(answered=True, problem="sealed", failures=1, next_at=NOW + 1)),
        (
            replace(FAILED, failures=2, asked_at=990.0),
            "sealed",
            SecretRead(990.0, answered=True, problem="sealed", failures=3, next_at=NOW + 4),
        ),
        (
            replace(FAILED, failures=9, asked_at=990.0),
            "sealed",
            SecretRead(990.0, answered=True, problem="sealed", failures=10, next_at=NOW + 60),
        ),
        (
            replace(FAILED, failures=3, asked_at=990.0, answered=False),
            "",
            SecretRead(990.0, answered=True, read_at=990.0, next_at=NOW + 20),
        ),
    ],
)
def test_answer_of_the_store_is_noted(before: SecretRead | None, why: str, after: SecretRead) -> None:
    turn, _ = turn_of(before)
    secrets.on_read(turn, ev.SecretsRead({"s/k": why}))
    assert turn.state.work.secrets == {"s/k": after}


@pytest.mark.parametrize(
    ("age_s", "waits", "kept"), [(120.0, False, True), (121.0, False, False), (121.0, True, True)]
)
def test_secret_is_forgotten_when_it_is_old_and_no_job_waits_for_it(
    age_s: float, waits: bool, kept: bool
) -> None:
    turn, job = turn_of(replace(READ, asked_at=NOW - age_s))
    turn.state.work.secrets["old"] = replace(READ, asked_at=NOW - 1000)
    if waits:
        turn.state.work.jobs[job.id] = job
        turn.state.work.queue.append((1, job.id))
    secrets.on_tick(turn)
    assert ("s/k" in turn.state.work.secrets, "old" in turn.state.work.secrets) == (kept, False)
    assert turn.effects == [fx.ForgetSecrets(("old",) if kept else ("s/k", "old"))]


def test_secrets_that_are_wanted_are_not_told_of_as_forgotten() -> None:
    turn, job = turn_of(replace(READ, asked_at=0.0))
    turn.state.work.jobs[job.id] = job
    turn.state.work.queue.append((1, job.id))
    secrets.on_tick(turn)
    assert turn.effects == []
