"""Services in the engine: they are kept, and only tasks that are fit serve."""

from dataclasses import replace
from itertools import product

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.apps.splits import serving
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.app import PortDefinition, ReadinessCheck
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Readiness
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.saves import ForgetSplit, SaveSplit
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import World, only, saved_of, spec
from tests.unit.engine.apps.test_engine_apps import WEB, instances, running, serve, want

CHECKED = replace(WEB, health_checks=(HealthCheck(port=80), HealthCheck(port=81)))
SPLIT = TrafficSplit("web", {"/web": 9, "/gone": 1})


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def served(world: World) -> set[str]:
    return {task.id for task in serving(world.state, "/web")}


def test_service_weights_are_saved_until_the_service_is_removed(world: World) -> None:
    assert only(world.feed(ev.SplitSet(SPLIT)), SaveSplit).split == SPLIT
    other = replace(SPLIT, weights={"/web": 1})
    world.feed(ev.SplitSet(other))
    assert State.restored(0.0, saved_of(world.state)).apps.splits == {"web": other}
    assert only(world.feed(ev.SplitDropped("web")), ForgetSplit).name == "web"
    with pytest.raises(NotFound):
        world.feed(ev.SplitDropped("web"))


def test_running_instance_serves_until_it_is_asked_to_end(world: World) -> None:
    want(world, WEB)
    world.tick(1)
    assert served(world) == set()
    serve(world, 2)
    assert served(world) == {job.task_id for job in instances(world)}
    assert len(served(world)) == 2
    world.feed(ev.KillRequested(instances(world)[0].id))
    assert served(world) == {instances(world)[1].task_id}


def test_healthy_instance_serves_after_a_restart_until_a_check_fails(world: World) -> None:
    want(world, CHECKED)
    serve(world, 3)
    one, two = (world.state.work.tasks[job.task_id] for job in instances(world) if job.task_id)
    assert served(world) == set()
    world.feed(ev.HealthFound(one.id, None))
    assert served(world) == set()
    world.feed(ev.HealthFound(one.id, True), ev.HealthFound(two.id, True))
    world.state = State.restored(world.now, saved_of(world.state))
    assert served(world) == {one.id, two.id}
    world.feed(ev.HealthFound(one.id, None))  # one of two checks was made
    assert served(world) == {one.id, two.id}
    world.feed(ev.HealthFound(one.id, False))
    assert served(world) == {two.id}


def test_instance_with_a_readiness_check_serves_once_it_is_ready(world: World) -> None:
    ports = (PortDefinition(0, "http-api"),)
    want(world, replace(WEB, instances=1, port_definitions=ports, readiness_checks=(ReadinessCheck(),)))
    serve(world, 3)
    (job,) = instances(world)
    assert job.task_id is not None
    assert served(world) == set()
    world.feed(ev.ReadinessFound(job.task_id, Readiness("readinessCheck", True)))
    assert served(world) == {job.task_id}


def test_service_of_an_unknown_app_has_no_instances(world: World) -> None:
    running(world, WEB)
    assert serving(world.state, "/gone") == []


def test_instance_serves_if_it_runs_is_ready_and_is_well_by_who_checks_it() -> None:
    both, verdicts = (False, True), (None, False, True)
    states = product((JobState.RUNNING, JobState.STARTING), (TaskState.RUNNING, TaskState.STARTING))
    flags = product(both, both, both, both, both, verdicts, verdicts)
    state, expected = State(0.0), set[str]()
    for number, ((shown, runs), (killed, proves, ready, checked, by_executor, healthy, verdict)) in enumerate(
        product(states, flags)
    ):
        id, task_id = JobId(f"j{number}"), TaskId(f"t{number}")
        checks = (HealthCheck(port=80),) if by_executor else ()
        state.put(
            Job(
                id, spec(app="/web", health_checks=checks), 0.0, number, shown, task_id=task_id, app_version=1.0,
                kill_requested=bool(killed), checked=bool(checked), proves_ready=bool(proves),
            )
        )  # fmt: skip
        state.put(Task(task_id, AgentId("a1"), task_id, id, runs, 0.0, ready=bool(ready), healthy=healthy))
        if verdict is not None:
            state.apps.healths[task_id] = verdict
        is_well = not (checked or by_executor) or (healthy is True and verdict is not False)
        is_running = (shown, runs, killed) == (JobState.RUNNING, TaskState.RUNNING, False)
        if is_running and (ready or not proves) and is_well:
            expected.add(task_id)
    assert {task.id for task in serving(state, "/web")} == expected
    assert expected
