"""Instances that the scheduler checks, and instances that users choose to end."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.apps.deploying import on_health_found, on_readiness_found
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.apps.app import UnreachableStrategy
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import CheckHealth, HealthCheck, Readiness
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.saves import SaveJob, SaveTask
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import World, every, spec
from tests.unit.engine.apps.test_engine_apps import WEB, cut_off, instances, running, settled, want

NOW = 1000.0
TASK = TaskId("j.1")
CHECKS = (CheckHealth(),)


def made(job: dict[str, Any], task: dict[str, Any], *, by_executor: bool = False) -> Turn:
    """An instance that runs, with those changes."""
    state = State(0.0)
    checks = (HealthCheck(port=80),) if by_executor else ()
    known = Job(
        JobId("j"), spec(app="/web", health_checks=checks), 0.0, 1, JobState.RUNNING, task_id=TASK, app_version=1.0
    )  # fmt: skip
    state.put(replace(known, **job))
    state.put(replace(Task(TASK, AgentId("a1"), TASK, known.id, TaskState.RUNNING, 0.0), **task))
    state.apps.changed_apps.clear()
    return Turn(state, Settings.of("executor", "monitor"), NOW)


NOBODYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"app_version": None}, {}),
    ({}, {"state": TaskState.FAILED}),
    ({"task_id": TaskId("j.2")}, {}),
    ({}, {"id": TaskId("other")}),
    ({}, {"job_id": None}),
]


@pytest.mark.parametrize(("job", "task"), NOBODYS)
def test_health_of_no_running_instance_is_not_kept(job: dict[str, Any], task: dict[str, Any]) -> None:
    turn = made(job, task)
    on_health_found(turn, ev.HealthFound(TASK, False, "no answer", CHECKS))
    assert (turn.state.apps.healths, turn.state.apps.check_results, turn.effects) == ({}, {}, [])
    assert turn.state.apps.changed_apps == set()


@pytest.mark.parametrize("was", [None, False, True])
@pytest.mark.parametrize("verdict", [None, False, True])
@pytest.mark.parametrize("by_executor", [False, True])
def test_health_that_was_found_is_shown_unless_an_executor_says_it(
    was: bool | None, verdict: bool | None, by_executor: bool
) -> None:
    turn = made({}, {"healthy": was}, by_executor=by_executor)
    on_health_found(turn, ev.HealthFound(TASK, verdict, "", CHECKS))
    assert (turn.state.apps.healths, turn.state.apps.check_results) == ({TASK: verdict}, {TASK: CHECKS})
    assert turn.state.apps.changed_apps == {"/web"}
    shown = was if by_executor or verdict is None else verdict
    assert turn.state.work.tasks[TASK].healthy is shown
    saved = [] if shown is was else [SaveTask, SaveJob, fx.Publish]
    assert [type(effect) for effect in turn.effects] == saved


@pytest.mark.parametrize(
    ("state", "killed", "ends"),
    [
        (TaskState.RUNNING, False, True),
        (TaskState.RUNNING, True, False),
        (TaskState.STARTING, False, False),
        (TaskState.UNREACHABLE, False, False),
    ],
)
def test_unhealthy_instance_is_ended_if_it_runs(state: TaskState, killed: bool, ends: bool) -> None:
    turn = made({"kill_requested": killed}, {"state": state})
    on_health_found(turn, ev.HealthFound(TASK, False, "no answer"))
    task, job = turn.state.work.tasks[TASK], turn.state.work.jobs[JobId("j")]
    assert task.unhealthy == ("no answer" if ends else "")
    assert [kill.task_id for kill in every(turn.effects, fx.Kill)] == ([TASK] if ends else [])
    assert (job.kill_requested, job.message) == (killed or ends, "unhealthy: no answer" if ends else "")


@pytest.mark.parametrize(("job", "task"), [*NOBODYS[1:], ({}, {"ready": True})])
def test_readiness_of_no_running_instance_is_not_kept(job: dict[str, Any], task: dict[str, Any]) -> None:
    turn = made(job, task)
    on_readiness_found(turn, ev.ReadinessFound(TASK, Readiness("check", True)))
    assert (turn.state.apps.readiness, turn.effects, turn.state.apps.changed_apps) == ({}, [], set())


@pytest.mark.parametrize("ready", [False, True])
def test_readiness_that_was_found_is_kept_and_shown_once(ready: bool) -> None:
    turn, answer = made({}, {}), Readiness("check", ready)
    on_readiness_found(turn, ev.ReadinessFound(TASK, answer))
    assert (turn.state.apps.readiness, turn.state.apps.changed_apps) == ({TASK: answer}, {"/web"})
    assert turn.state.work.tasks[TASK].ready is ready
    assert [type(effect) for effect in turn.effects] == ([SaveTask, SaveJob, fx.Publish] if ready else [])


# --- instances that a user chooses


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def size_without(world: World, *ids: str, instances: int = 2, **fields: Any) -> int:
    """The size of the app after those of its instances are chosen to end."""
    want(world, replace(WEB, instances=instances, **fields), id=f"k{world.now}", kill={"/web": ids})
    return next(iter(world.state.apps.catalog.root.all_apps())).instances


@pytest.mark.parametrize(("away_s", "size"), [(0, 1), (150, 1), (250, 2)])
def test_chosen_instance_that_is_cut_off_counts_until_another_takes_its_place(
    world: World, away_s: int, size: int
) -> None:
    strategy = UnreachableStrategy(inactive_after_s=200, expunge_after_s=4000)
    job = cut_off(world, strategy)
    world.tick(away_s)
    assert size_without(world, job.id, unreachable_strategy=strategy) == size


def test_chosen_instances_count_once_each(world: World) -> None:
    running(world, replace(WEB, instances=3))
    one, two, three = instances(world)
    world.feed(ev.KillRequested(three.id))
    assert size_without(world, one.id, three.id, "unknown", instances=3) == 2, "one was being killed before"
    world.tick(1)
    assert world.job(one.id).kill_requested
    assert not world.job(two.id).kill_requested


def test_chosen_instance_of_an_app_that_goes_ends_with_it(world: World) -> None:
    running(world, WEB)
    one, _ = instances(world)
    world.feed(
        ev.AppsChanged(
            "d9", replace(world.state.apps.catalog.root, apps=()), kill={"/web": (one.id,), "/no": ("x",)}
        )
    )
    world.tick(1)
    assert {job.kill_requested for job in instances(world)} == {True}


# --- which apps are looked at


def test_apps_are_looked_at_when_they_change_and_all_of_them_now_and_then(world: World) -> None:
    apps = tuple(replace(WEB, id=name) for name in ("/api", "/web"))
    running(world, *apps)
    state, wider = world.state, tuple(replace(app, instances=3) for app in apps)
    state.put(replace(state.apps.catalog, root=replace(state.apps.catalog.root, apps=wider)))
    begun_at = state.apps.looked_at_apps = world.now
    sizes = []
    for after_s, changed in ((0.5, {"/web"}), (1.0, set[str]()), (1.7, set()), (2.0, set())):
        world.now, state.apps.changed_apps = begun_at + after_s, changed
        world.feed(ev.Tick())
        sizes.append([len(instances(world, app.id)) for app in apps])
    assert sizes == [[2, 3], [2, 3], [2, 3], [3, 3]]
    assert state.apps.looked_at_apps == begun_at + 2.0


def test_instances_without_an_app_end(world: World) -> None:
    running(world, WEB)
    world.state.put(replace(world.state.apps.catalog, root=replace(world.state.apps.catalog.root, apps=())))
    world.state.apps.changed_apps = {"/web"}
    world.tick(1)
    assert {job.kill_requested for job in instances(world)} == {True}
    settled(world)
