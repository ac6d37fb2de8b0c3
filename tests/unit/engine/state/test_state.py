"""Indexes that the state derives from jobs and tasks with each change, against a look at all of them."""

import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from mesos_gpu.engine.indexes.memory import Use
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owners
from mesos_gpu.model.nodes.drain import Card, Reset
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tasks.unknown import Unknown
from tests.doubles.builders import saved_of, spec

HALF = Share(500, 1000, 1000, Method.TURNS)
USERS = "ann", "bob", ""


def made_job(number: int, state: JobState) -> Job:
    """A job; each third is an app's instance."""
    of_app = number % 3 == 0
    wanted = spec(queue="pq"[number % 2], user="root", app="/web" if of_app else None)
    return Job(
        JobId(f"j{number}"), wanted, 0.0, 100 - number, state,
        task_id=TaskId(f"j{number}.1"), owner=USERS[number % 3 - 1], app_version=1.0 if of_app else None,
    )  # fmt: skip


def made_task(number: int, state: TaskState) -> Task:
    """A task with a card of its own: whole, a share of it, or covered."""
    id, gpus = TaskId(f"j{number}.1"), (GpuId(f"g{number}"),)
    task = Task(id, AgentId(f"a{number % 2}"), id, JobId(f"j{number}"), state, 1.0)
    match number % 3:
        case 0:
            return replace(task, gpus=gpus)
        case 1:
            return replace(task, gpus=(*gpus, GpuId("both")), share=HALF)
        case _:
            return replace(task, covers=gpus[0], unknown=Unknown(1.0) if number % 2 else None)


def check(state: State) -> None:
    """Hold each index against what it is made of."""
    jobs, live = (
        list(state.work.jobs.values()),
        [task for task in state.work.tasks.values() if not task.ended],
    )
    pending = [job for job in jobs if job.state is JobState.PENDING]
    assert state.work.queue == sorted((job.sequence, job.id) for job in pending)
    assert set(state.work.ended) == {job.id for job in jobs if job.state.ended}
    here = [job for job in jobs if job.spec.app and not job.state.ended]
    assert {app: set(ids) for app, ids in state.apps.instances.items()} == (
        {"/web": {job.id for job in here}} if here else {}
    )
    uses = dict[tuple[str, str], Use]()
    for job in jobs:
        if job.app_version is None:
            size = len(msgspec.json.encode(job.spec))
            for key in owners(job.spec, job.owner):
                use = uses.setdefault(key, Use())
                use.size, use.pending = use.size + size, use.pending + (job.state is JobState.PENDING)
    assert state.quota.uses == uses
    assert set(state.work.live) == {task.id for task in live}
    assert set(state.work.unknown) == {task.id for task in live if task.unknown}
    assert state.gpus.holders == {gpu: task.id for task in live if task.share is None for gpu in task.gpus}
    shared = {gpu for task in live if task.share for gpu in task.gpus}
    assert state.gpus.sharers == {
        gpu: {task.id: task.share for task in live if task.share and gpu in task.gpus} for gpu in shared
    }
    assert state.gpus.covers == {task.covers: task.id for task in live if task.covers}
    assert {job_id: set(ids) for job_id, ids in state.work.launches.items()} == {
        task.job_id: {task.id} for task in state.work.tasks.values()
    }
    assert all(
        known.keys() <= set(state.work.live)
        for known in (state.work.released, state.work.notified, state.apps.healths)
    )


@pytest.mark.parametrize("seed", range(4))
def test_indexes_of_jobs_and_tasks_equal_a_look_at_all_of_them(seed: int) -> None:
    chance, state, acts = random.Random(seed), State(0.0), Counter[str]()
    for _ in range(300):
        number, act = chance.randrange(9), chance.choice(["job", "job", "task", "task", "forget"])
        job_id, task_id = JobId(f"j{number}"), TaskId(f"j{number}.1")
        known, task = state.work.jobs.get(job_id), state.work.tasks.get(task_id)
        match act:
            case "job" if known is None or not known.state.ended:
                state.put(made_job(number, chance.choice(list(JobState))))
            case "task" if task is None or not task.ended:
                state.put(
                    made_task(number, chance.choice([each for each in TaskState if each.value != "absent"]))
                )
                if task_id in state.work.live:
                    (
                        state.work.released[task_id],
                        state.work.notified[task_id],
                        state.apps.healths[task_id],
                    ) = (
                        1.0,
                        (1, 1.0),
                        True,
                    )
            case "forget" if known is not None and known.state.ended and (task is None or task.ended):
                state.forget_job(job_id)
                assert task_id not in state.work.tasks
            case "forget" if known is None and task is not None and task.ended:
                state.work.forget_task(task)
            case _:
                continue
        acts[act] += 1
        check(state)
    assert acts["forget"] > 10
    again = State.restored(0.0, saved_of(state))
    check(again)
    assert again.work.next_sequence == state.work.next_sequence
    assert list(again.work.live) == state.work.restless.in_order(state.work.live)
    assert replace(again.work.restless, numbers={}) == replace(state.work.restless, numbers={})
    assert again.apps.ended_instances == []


def test_resets_are_those_of_the_cards() -> None:
    state, asked = State(0.0), Card(GpuId("g0"), reset=Reset("r", "why", "", 1.0))
    for card, resets in ((Card(GpuId("g1")), []), (asked, ["g0"]), (asked, ["g0"]), (Card(GpuId("g0")), [])):
        state.put(card)
        assert list(state.gpus.resets) == resets


def test_task_that_is_forgotten_leaves_the_other_launches_of_its_job() -> None:
    state, task = State(0.0), made_task(0, TaskState.FAILED)
    others = [replace(task, id=TaskId(f"j0.{number}")) for number in (2, 3)]
    for each in (task, *others):
        state.put(each)
    state.work.forget_task(task)
    assert state.work.tasks_of(JobId("j0")) == others
    state.put(replace(task, job_id=None, id=TaskId("m")))
    state.work.forget_task(state.work.tasks[TaskId("m")])
    assert list(state.work.tasks) == ["j0.2", "j0.3"]
