"""Shares of tasks that a state does not know, or knows from before: their executors are asked."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.tasks.resize import Resize
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.wire.mesos.labels import label_of, launch_labels
from tests.doubles.builders import World, every, only, saved_of
from tests.unit.engine.tasks.test_resizing import CARD, QUARTER, answer, ask, counted, granted, running


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", CARD)
    return world


def listed(world: World, **changed: Any) -> Listed:
    """Return what the master lists of the task of j1: what it had when it was launched."""
    task, job = world.state.work.tasks[TaskId("j1.1")], world.job()
    labels = launch_labels(task, 1, replace(job.spec, **changed), None)
    return Listed(task.id, task.agent_id, "TASK_RUNNING", "j1", "a1.example", label=label_of(labels))


def lost(world: World) -> None:
    """The state is gone; the master, the agents and what runs are not."""
    at = world.now
    world.state = State.restored(at, replace(saved_of(State(at)), framework_id="fw-1"))
    world.register()


def taken_up(world: World) -> None:
    """A task runs, the state is lost, and an operator adopts the task."""
    running(world)
    told = listed(world)
    lost(world)
    world.node("a1", CARD)
    world.feed(ev.TasksListed((told,)))
    world.feed(ev.UnknownAdopted(told.task_id))


def asked_what_it_has(world: World) -> fx.AskResize:
    return only(world.tick(2), fx.AskResize)


def test_task_taken_up_by_its_labels_has_what_its_executor_reports(world: World) -> None:
    running(world)
    told = listed(world, isolation=Isolation.STRICT)
    lost(world)
    world.feed(ev.TasksListed((told,)))
    world.feed(ev.UnknownAdopted(told.task_id))
    assert every(world.tick(1), fx.AskResize) == [], "what its card has is not known yet"
    world.node("a1", CARD)
    assert asked_what_it_has(world).resize == Resize(0, 20000, 20000, 250)
    spec = world.job().spec
    assert (spec.gpu_milli, spec.gpu_memory_mib, spec.isolation) == (250, None, Isolation.STRICT)
    answer(world, number=3, memory_mib=30000, memory_max_mib=35000)
    assert granted(world) == counted(world) == (30000, 250)
    spec = world.job().spec
    assert (spec.gpu_memory_mib, spec.gpu_memory_max_mib, spec.gpu_compute_pct) == (30000, 35000, None)
    assert every(world.tick(10), fx.AskResize) == []
    assert only(ask(world, gpu_memory_mib=10000), fx.AskResize).resize.number == 4


def test_job_of_an_adopted_task_requests_the_share_that_its_executor_reports(world: World) -> None:
    running(world)
    told = listed(world)
    lost(world)
    world.node("a1", CARD)
    world.feed(ev.TasksListed((told,)))
    asked_what_it_has(world)
    answer(world, number=3, memory_mib=30000, memory_max_mib=30000)
    world.feed(ev.UnknownAdopted(told.task_id))
    assert granted(world) == (30000, 250)
    assert (world.job().spec.gpu_milli, world.job().spec.gpu_memory_mib) == (250, 30000)
    ask(world, gpu_compute_pct=10)
    answer(world)
    assert granted(world) == (30000, 100), "memory stays as it is"


def test_executor_that_follows_a_lost_resize_is_asked_again(world: World) -> None:
    running(world)
    world.state = State.restored(world.now, replace(saved_of(world.state), doubtful=True))
    world.register()
    world.feed(ev.TasksListed((listed(world),)))
    asked_what_it_has(world)
    answer(world, number=2, memory_mib=30000, memory_max_mib=30000)  # was on its way since
    answer(world, number=3, memory_mib=40000, memory_max_mib=40000)
    assert asked_what_it_has(world).resize == Resize(0, 30000, 30000, 250)
    answer(world, number=3, memory_mib=40000, memory_max_mib=40000)
    assert granted(world) == counted(world) == (40000, 250)
    assert (world.job().spec.gpu_memory_mib, every(world.tick(10), fx.AskResize)) == (40000, [])


def test_executor_that_was_never_resized_keeps_its_share(world: World) -> None:
    taken_up(world)
    before = world.job().spec
    with pytest.raises(Conflict, match="has not reported its share yet"):
        ask(world, gpu_memory_mib=10000)
    asked_what_it_has(world)
    answer(world)
    assert (granted(world), world.job().spec) == ((20000, 250), before)
    assert only(ask(world, gpu_memory_mib=10000), fx.AskResize).resize.number == 1


def test_share_of_a_known_task_counts_no_more_than_its_card_has(world: World) -> None:
    taken_up(world)
    running(world, "j2", share=replace(QUARTER, memory_mib=55000, memory_max_mib=55000))
    asked_what_it_has(world)
    answer(world, number=3, memory_mib=30000, memory_max_mib=30000)
    assert granted(world) == (25000, 250)
    world.status("j2.1", "TASK_FAILED")
    asked_what_it_has(world)
    answer(world, number=3, memory_mib=30000, memory_max_mib=30000)
    assert granted(world) == (30000, 250)
    assert every(world.tick(60), fx.AskResize) == []


def test_state_that_may_be_old_asks_what_its_tasks_have(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000)
    answer(world)
    world.state = State.restored(world.now, replace(saved_of(world.state), doubtful=True))
    world.register()
    world.feed(ev.TasksListed((listed(world),)))
    assert asked_what_it_has(world).resize == Resize(0, 30000, 30000, 250)
    answer(world, number=2, memory_mib=5000, memory_max_mib=5000, compute_milli=100)
    assert granted(world) == (5000, 100)
    assert (world.job().spec.gpu_memory_mib, world.job().spec.gpu_compute_pct) == (5000, 10)


def test_label_of_an_earlier_release_is_completed_by_what_the_task_got(world: World) -> None:
    running(world)
    told = listed(world)
    assert told.label is not None
    burst = replace(QUARTER, memory_max_mib=30000)
    lost(world)
    world.feed(ev.TasksListed((replace(told, label=replace(told.label, asked=None, share=burst)),)))
    world.feed(ev.UnknownAdopted(told.task_id))
    spec = world.job().spec
    assert (spec.gpu_compute_pct, spec.gpu_memory_mib, spec.gpu_memory_max_mib) == (25, 20000, 30000)


def test_resize_of_an_old_state_is_given_up_and_counts_until_the_executor_answers(
    world: World,
) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000)
    world.state = State.restored(world.now, replace(saved_of(world.state), doubtful=True))
    world.register()
    world.feed(ev.TasksListed((listed(world),)))
    assert (granted(world), counted(world)) == ((20000, 250), (30000, 250))
    assert asked_what_it_has(world).resize == Resize(0, 20000, 20000, 250)
    answer(world, number=4, memory_mib=5000, memory_max_mib=5000)
    assert granted(world) == counted(world) == (5000, 250)
    assert world.job().spec.gpu_memory_mib == 5000
