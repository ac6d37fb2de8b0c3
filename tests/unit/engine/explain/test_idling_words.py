"""Words about idle GPUs: of a job that has them, and of one that may get them."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from mesos_gpu.engine.explain.idling import with_idle
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Idle, IdlePolicy, QueueSpec, Reclaim
from tests.doubles.builders import World, gpu, spec
from tests.unit.engine.tenancy.worlds import tree_world

NOW: Final = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
RULES: Final = {
    policy: Idle(warn_after_s=600.0, return_after_s=1800.0, policy=policy) for policy in IdlePolicy
}
NOTICE: Final = Notice(1, NoticeReason.IDLE, "why", NOW, NOW + 120)


@pytest.fixture
def world() -> World:
    """Two nodes, each with a card of a model of its own, and a queue for each kind of rules."""
    queues = {policy.value: QueueSpec(idle=rules) for policy, rules in RULES.items()}
    made = tree_world(
        {
            **queues,
            "never": QueueSpec(reclaim=Reclaim.NEVER),
            "fenced": QueueSpec(fence=True),
            "ops": QueueSpec(),
        }
    )
    made.now = NOW
    for name, model in (("a", "A100"), ("t", "T4")):
        made.state.put(Node(AgentId(name), name, inventory=Inventory((gpu(f"{name}0", model),))))
    return made


def runs(
    world: World, state: IdleState, idle_s: float, *, name: str = "j", queue: str = "pressure", agent: str = "a",
    notice: Notice | None = None, **fields: Any,
) -> Job:  # fmt: skip
    """Let a job run whose GPUs have done nothing for so many seconds, and stand there for three minutes."""
    made = spec(queue=queue, gpus=1, priority=0, preemptible=True)
    job = Job(JobId(name), made, 0.0, 1, state=JobState.RUNNING, task_id=TaskId(name), launches=1)
    card = world.state.cluster.nodes[AgentId(agent)].gpus[0].id
    task = Task(
        TaskId(name), AgentId(agent), name, job.id, TaskState.RUNNING, 0.0, gpus=(card,), notice=notice
    )
    world.state.put(job)
    world.state.put(task)
    known = Idleness(job.id, 1, state, NOW - 180, round(idle_s * 1000))
    world.state.work.idlenesses[job.id] = replace(known, **fields)
    return job


def told(world: World, job: Job) -> str:
    answer = Why(job.id, job.state, "as it was", None, can_ever_run=True)
    made = with_idle(answer, world.state, world.settings, job, NOW)
    assert replace(made, summary="as it was") == answer
    return made.summary


NOTHING: Final = "its GPUs have done nothing for"


@pytest.mark.parametrize(
    ("queue", "state", "idle_s", "words"),
    [
        ("pressure", IdleState.SUSPECT, 240, f"as it was; {NOTHING} 240 s; if they stay so it is warned at 12:06Z, "
         "and ends at 12:26Z at the earliest if waited for"),
        ("always", IdleState.SUSPECT, 240, f"as it was; {NOTHING} 240 s; if they stay so it is warned at 12:06Z, "
         "and ends at 12:26Z at the earliest"),
        ("always", IdleState.SUSPECT, 2400, f"as it was; {NOTHING} 2400 s; if they stay so it is warned at 12:00Z, "
         "and ends at 12:00Z at the earliest"),
        ("report", IdleState.SUSPECT, 240, f"as it was; {NOTHING} 240 s; that is only reported"),
        ("report", IdleState.WARNED, 700, f"it is running; {NOTHING} 700 s; that is only reported"),
        ("always", IdleState.WARNED, 900, f"it is running; {NOTHING} 900 s; it was warned at 11:57Z, and ends at "
         "12:15Z at the earliest"),
        ("pressure", IdleState.WARNED, 900, f"it is running; {NOTHING} 900 s; it was warned at 11:57Z, and ends at "
         "12:15Z at the earliest if waited for"),
        ("always", IdleState.NOTICE, 1800, f"it is running; {NOTHING} 1800 s; it was given notice at 11:57Z, and ends "
         "if they stay so"),
        ("always", IdleState.RETURNED, 1800, f"it is running; {NOTHING} 1800 s, and it is being ended for that since "
         "11:57Z"),
        ("always", IdleState.ACTIVE, 240, "as it was"),
    ],
)  # fmt: skip
def test_job_with_idle_gpus_is_told_what_comes(
    world: World, queue: str, state: IdleState, idle_s: float, words: str
) -> None:
    said = told(world, runs(world, state, idle_s, queue=queue))
    assert re.sub(r"if \w+ \w+ needs them$", "if waited for", said) == words


@pytest.mark.parametrize(
    ("notice", "ends"),
    [(NOTICE, "ends at 12:02Z if"), (replace(NOTICE, recalled_at=NOW), "ends if"), (None, "ends if")],
)
def test_job_that_was_given_notice_is_told_when_it_ends(
    world: World, notice: Notice | None, ends: str
) -> None:
    job = runs(world, IdleState.NOTICE, 1800, queue="always", notice=notice)
    assert told(world, job) == (
        f"it is running; {NOTHING} 1800 s; it was given notice at 11:57Z, and {ends} they stay so"
    )


@pytest.mark.parametrize(("by", "who"), [("ann", " by ann"), ("", "")])
def test_job_that_is_kept_is_told_by_whom_and_until_when(world: World, by: str, who: str) -> None:
    job = runs(world, IdleState.WARNED, 900, keep_until=NOW + 600, kept_by=by)
    assert told(world, job) == f"it is running; kept{who} from being ended for idle GPUs until 12:10Z"


def test_job_that_has_ended_is_told_nothing_of_idle_gpus(world: World) -> None:
    job = replace(runs(world, IdleState.RETURNED, 900), state=JobState.KILLED)
    assert told(world, job) == "as it was"


def waits(**fields: Any) -> Job:
    return Job(JobId("w"), spec(**{"queue": "ops", "gpus": 1, "priority": 0, **fields}), NOW, 2)


ONE: Final = "as it was; 1 job was warned for its idle GPUs, and may be ended for it"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, f"{ONE} from 12:15Z on"),
        ({"gpu_model": ("A100", "K80")}, f"{ONE} from 12:15Z on"),
        ({"gpu_model": ("T4",)}, "as it was"),
        ({"gpus": 0}, "as it was"),
        ({"queue": "never"}, "as it was"),
        ({"queue": "fenced"}, "as it was"),
    ],
)
def test_job_that_waits_is_told_of_idle_gpus_that_would_serve_it(
    world: World, fields: dict[str, Any], words: str
) -> None:
    runs(world, IdleState.WARNED, 900)
    assert told(world, waits(**fields)) == words


@pytest.mark.parametrize(
    ("queue", "state", "counts"),
    [
        ("pressure", IdleState.WARNED, True),
        ("pressure", IdleState.SUSPECT, False),
        ("pressure", IdleState.NOTICE, False),
        ("always", IdleState.WARNED, False),
        ("report", IdleState.WARNED, False),
    ],
)
def test_job_that_waits_is_told_of_those_that_end_for_it_alone(
    world: World, queue: str, state: IdleState, counts: bool
) -> None:
    runs(world, state, 900, queue=queue)
    assert (told(world, waits()) != "as it was") is counts


def test_job_that_waits_is_told_when_the_first_may_be_ended(world: World) -> None:
    runs(world, IdleState.WARNED, 900)
    runs(world, IdleState.WARNED, 1200, name="k", agent="t")
    two = "as it was; 2 jobs were warned for their idle GPUs, and may be ended for it"
    assert told(world, waits()) == f"{two} from 12:10Z on"
    assert told(world, waits(gpu_model=("A100",))) == f"{ONE} from 12:15Z on"
    runs(world, IdleState.WARNED, 1800, name="k", agent="t")
    assert told(world, waits()) == two
    world.settings = world.settings.changed(preemption=False)
    assert told(world, waits()) == "as it was"


def test_job_that_waits_is_told_nothing_of_gpus_that_are_gone(world: World) -> None:
    job = runs(world, IdleState.WARNED, 900)
    task = world.state.work.tasks[TaskId("j")]
    del world.state.cluster.nodes[AgentId("a")]
    assert told(world, waits()) == "as it was"
    world.state.put(Node(AgentId("a"), "a", inventory=Inventory((gpu("a1"),))))
    assert told(world, waits()) == "as it was", "another card"
    world.state.put(replace(task, state=TaskState.FINISHED))
    assert told(world, waits()) == "as it was"
    assert job.state is JobState.RUNNING
