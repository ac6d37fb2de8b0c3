"""Explanations of arrays, and of those of their tasks that are no jobs yet."""

from dataclasses import replace
from typing import Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.arrays import job_in, running_in, why_in_array
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Why
from tests.doubles.builders import World, offer, spec

ID: Final = JobId("sweep-0a1b2c3d")


def world(array: str, cpus: float) -> World:
    """Make an engine with an array whose tasks take half a processor each, and a job that stands before it."""
    made = World()
    made.register()
    made.submit("first", cpus=64)
    made.feed(ev.JobSubmitted(ID, spec(name="sweep", array=array, cpus=0.49)))
    made.offers(offer("o1", cpus=cpus))
    return made


def told(made: World, job_id: str) -> Why:
    return why_in_array(made.state, made.settings, made.now, JobId(job_id))


def member(index: int) -> JobId:
    return JobId(f"sweep.{index}-0a1b2c3d")


def of_head(made: World, index: int) -> Why:
    return why_of(made.state, made.settings, made.now, made.job(member(index)))


@pytest.mark.parametrize(("array", "cpus"), [("0-9", 1.0), ("0-9%3", 1.0)])
def test_array_waits_for_what_its_first_waiting_task_waits_for(array: str, cpus: float) -> None:
    made = world(array, cpus)
    assert running_in(made.state, made.state.work.arrays[ID]) == 2
    head = of_head(made, 2)
    assert head.queue_position == 1
    assert head.estimate is not None
    assert told(made, ID) == replace(head, job_id=ID)
    job = job_in(made.state, ID)
    assert (job.id, job.state) == (ID, JobState.RUNNING)
    assert job_in(made.state, member(2)) == made.job(member(2))


@pytest.mark.parametrize(("index", "before"), [(3, 1), (7, 5), (9, 7)])
def test_task_of_an_array_that_is_no_job_yet_stands_behind_the_others(index: int, before: int) -> None:
    made = world("0-9", 1.0)
    head = of_head(made, 2)
    assert head.queue_position is not None
    assert told(made, member(index)) == replace(
        head,
        job_id=member(index),
        queue_position=head.queue_position + before,
        summary=f"{before} tasks of its array come before it, and the first of them {head.summary}",
        estimate=None,
    )


@pytest.mark.parametrize("index", [0, 2, 99])
def test_task_of_an_array_behind_no_other_waits_as_the_first(index: int) -> None:
    made = world("0-9", 1.0)
    assert told(made, member(index)) == replace(of_head(made, 2), job_id=member(index))


def test_array_at_its_limit_waits_for_its_own_tasks() -> None:
    made = world("0-9%2", 4.0)
    said = "2 tasks of its array run, which is its limit"
    assert told(made, ID) == Why(ID, JobState.PENDING, said, 0, can_ever_run=True)
    behind = Why(member(7), JobState.PENDING, f"{said}; 5 of them come before this one", 5, can_ever_run=True)
    assert told(made, member(7)) == behind


def test_array_whose_tasks_have_begun_or_ended_waits_for_nothing() -> None:
    made = world("0-1", 4.0)
    begun = Why(ID, JobState.RUNNING, "all its tasks have started: 2 running", None, can_ever_run=True)
    assert told(made, ID) == begun
    for index, state in enumerate(("TASK_FINISHED", "TASK_FAILED")):
        task_id = made.job(member(index)).task_id
        assert task_id is not None
        made.status(task_id, state)
    ended = Why(ID, JobState.FAILED, "has ended: 1 finished, 1 failed", None, can_ever_run=True)
    assert told(made, ID) == ended


def test_job_and_array_that_are_not_there_are_not_found() -> None:
    made = world("0-1", 4.0)
    for name in ("none", "other.3-0a1b2c3d"):
        with pytest.raises(NotFound, match=f"there is no job {name}"):
            told(made, name)
        with pytest.raises(NotFound, match=f"there is no job {name}"):
            job_in(made.state, JobId(name))
