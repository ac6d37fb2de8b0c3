"""Delays of apps whose instances fail: what counts as a failure in a row, and how long the next launch waits."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.apps.delays import (
    ends_of,
    is_crashing,
    last_failures,
    launch_delay_s,
    launch_delays,
    was_steady,
)
from mesos_gpu.errors import NotFound
from mesos_gpu.model.jobs.job import Job
from tests.doubles.builders import World
from tests.unit.engine.apps.test_engine_apps import WEB, instances, running, serve, want

APP = replace(WEB, instances=1, backoff_s=8, backoff_factor=2.0, max_launch_delay_s=20)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    running(world, APP)
    return world


def runs(world: World) -> Job:
    """The app's one instance, as soon as it runs."""
    for _ in range(60):
        started = [job for job in instances(world) if job.started_at is not None]
        if started:
            return started[0]
        serve(world)
    raise AssertionError("no instance runs")


def ends(world: World, state: str = "TASK_FAILED", after_s: float = 1.0) -> Job:
    job = runs(world)
    world.now += after_s
    assert job.task_id is not None
    world.status(job.task_id, state)
    world.feed(ev.Tick())
    return job


def row(world: World) -> int:
    known = ends_of(world.state, [APP.id], world.now).get(APP.id)
    return 0 if known is None else known.in_a_row


@pytest.mark.parametrize(("ran_s", "steady"), [(59.9, False), (60.0, True), (61.0, True)])
def test_instance_is_steady_after_a_minute(world: World, ran_s: float, steady: bool) -> None:
    job = runs(world)
    assert job.started_at is not None
    assert was_steady(job, job.started_at + ran_s) is steady
    assert not was_steady(replace(job, started_at=None), 1e9)


@pytest.mark.parametrize(("failures", "wait_s"), [(0, 0.0), (1, 8.0), (2, 16.0), (3, 20.0), (99, 20.0)])
def test_delay_grows_by_the_factor_of_the_app_up_to_its_longest(failures: int, wait_s: float) -> None:
    assert launch_delay_s(APP, failures) == wait_s


def test_delay_is_shown_with_the_instances_that_are_missing_and_its_begin(world: World) -> None:
    assert launch_delays(world.state, world.now) == {}
    ends(world)
    at = world.now
    delay = launch_delays(world.state, at)[APP.id]
    assert (delay.missing, delay.since, delay.until) == (1, at, at + 8.0)
    assert launch_delays(world.state, at + 8.0) == {}, "it is over"
    ends(world)
    delay = launch_delays(world.state, world.now)[APP.id]
    assert (delay.since, delay.until) == (world.now, world.now + 16.0)


def test_delay_holds_until_its_end_for_an_app_that_lacks_instances(world: World) -> None:
    ends(world)
    state, key = world.state, (APP.id, world.state.apps.catalog.versions[APP.id].last_config_change_at)
    until = world.now + 8.0
    assert state.apps.backoffs == {key: (1, until)}
    for at, next_at in ((until - 0.1, until), (until, None)):
        known = ends_of(state, [APP.id], at).get(APP.id)
        assert known is not None
        assert known.next_at == next_at
        assert (APP.id in launch_delays(state, at)) is (next_at is not None)
    runs(world)
    state.apps.backoffs = {key: (1, world.now + 100)}
    assert launch_delays(state, world.now) == {}, "it has all that it wants"


def test_end_of_an_instance_without_a_time_is_now(world: World) -> None:
    first, second = ends(world), ends(world)
    began_at = world.state.work.jobs[first.id].started_at
    assert began_at is not None
    world.state.work.jobs[first.id] = replace(world.state.work.jobs[first.id], ended_at=None)
    assert [row(world), second.id != first.id] == [2, True]
    world.now = began_at + 60.0
    assert row(world) == 1


def test_failures_in_a_row_end_with_an_instance_that_was_steady(world: World) -> None:
    assert row(world) == 0
    for number in 1, 2:
        ends(world)
        assert row(world) == number
    ends(world, after_s=61.0)
    ends(world)
    assert row(world) == 1, "those before the steady one are not of it"


def crashes(world: World) -> bool:
    known = ends_of(world.state, [APP.id], world.now).get(APP.id)
    return known is not None and is_crashing(world.state, APP, known, world.now)


def test_crash_is_over_after_one_end_as_soon_as_all_instances_run(world: World) -> None:
    assert not crashes(world)
    ends(world)
    assert crashes(world), "none runs"
    runs(world)
    assert (row(world), crashes(world)) == (1, False)


def test_crash_is_over_after_ends_in_a_row_when_all_instances_are_steady(world: World) -> None:
    for _ in range(2):
        ends(world)
    began_at = runs(world).started_at
    assert began_at is not None
    assert crashes(world), "it runs, as the ones before did"
    world.now = began_at + 59.0
    assert crashes(world)
    world.now = began_at + 60.0
    assert (row(world), crashes(world)) == (2, False)


def test_single_end_long_ago_is_no_crash_of_an_app_that_lacks_an_instance(world: World) -> None:
    ended_at = ends(world).ended_at or world.now
    known = ends_of(world.state, [APP.id], world.now)[APP.id]
    assert known.next_at is not None
    for at, crashing in ((ended_at + 59.0, True), (ended_at + 61.0, False)):
        assert is_crashing(world.state, APP, replace(known, next_at=None), at) is crashing
    assert is_crashing(world.state, APP, known, ended_at + 61.0), "the next launch is still delayed"


def test_ends_of_several_apps_are_those_of_each(world: World) -> None:
    other = replace(APP, id="/other")
    want(world, APP, other, id="d2")
    ends(world)
    for _ in range(60):
        jobs = [job for job in instances(world, "/other") if job.task_id and job.started_at]
        if jobs:
            break
        serve(world)
    world.status(str(jobs[0].task_id), "TASK_FAILED")
    world.feed(ev.Tick())
    both = ends_of(world.state, ["/other", APP.id, "/none"], world.now)
    assert {id: known.last.spec.app for id, known in both.items()} == {"/other": "/other", APP.id: APP.id}
    assert both["/other"].last.id == jobs[0].id


def test_failures_in_a_row_are_of_the_present_configuration(world: World) -> None:
    ends(world)
    assert row(world) == 1
    want(world, replace(APP, cmd="serve better"), id="d2")
    assert row(world) == 0


def test_failures_in_a_row_are_not_what_was_asked_for(world: World) -> None:
    job = runs(world)
    world.feed(ev.KillRequested(job.id))
    world.status(job.task_id or "", "TASK_KILLED")
    assert row(world) == 0
    assert last_failures(world.state, [APP.id]) == {}


def test_last_failure_is_the_latest_of_each_app(world: World) -> None:
    assert last_failures(world.state, [APP.id]) == {}
    first = ends(world)
    assert last_failures(world.state, [APP.id, "/other"]) == {APP.id: world.state.work.jobs[first.id]}
    second = ends(world)
    assert first.id != second.id
    assert last_failures(world.state, [APP.id])[APP.id].id == second.id
    finished = ends(world, "TASK_FINISHED")
    assert last_failures(world.state, [APP.id])[APP.id].id == second.id != finished.id
    assert last_failures(world.state, []) == {}


def test_delay_that_is_reset_is_over_at_once(world: World) -> None:
    with pytest.raises(NotFound):
        world.feed(ev.DelayReset(APP.id))
    ends(world)
    world.feed(ev.DelayReset(APP.id))
    assert launch_delays(world.state, world.now) == {}
    assert not world.state.apps.backoffs
    serve(world, 2)
    assert len(instances(world)) == 1


def test_unhealthy_instance_that_was_ended_is_one_of_the_row(world: World) -> None:
    job = runs(world)
    assert job.task_id is not None
    world.feed(ev.HealthFound(job.task_id, False, "no answer"))
    world.status(job.task_id, "TASK_KILLED")
    assert row(world) == 1
    assert list(last_failures(world.state, [APP.id])) == [APP.id]


@pytest.mark.parametrize(("ran_s", "failures"), [(1.0, 3), (60.0, 1), (61.0, 1)])
def test_failure_of_a_steady_instance_is_the_first_of_a_row(
    world: World, ran_s: float, failures: int
) -> None:
    job, version = runs(world), world.state.apps.catalog.versions[APP.id].last_config_change_at
    world.state.apps.backoffs = {(APP.id, version): (2, 0.0)}
    assert (job.started_at, job.task_id is not None) != (None, False)
    world.now = (job.started_at or 0.0) + ran_s
    world.status(job.task_id or "", "TASK_FAILED")
    world.feed(ev.Tick())
    delay_s = launch_delay_s(APP, failures)
    assert world.state.apps.backoffs == {(APP.id, version): (failures, world.now + delay_s)}


def test_delay_of_a_job_is_only_for_an_app_that_is_known(world: World) -> None:
    job = runs(world)
    world.state.apps.backoffs.clear()
    world.status(job.task_id or "", "TASK_KILLED")
    world.feed(ev.Tick())
    assert world.state.apps.backoffs == {}, "it was killed"
    with pytest.raises(NotFound):
        world.feed(ev.DelayReset("/other"))
