"""Deployments to a definition that instances run already: these instances are kept."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.apps.app import App, GpuOptions
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from tests.doubles.builders import World, saved_of
from tests.unit.engine.apps.test_engine_apps import WEB, instances, running, serve, settled, want

CHECKED = replace(WEB, instances=3, health_checks=(HealthCheck(Protocol.TCP, port=80),))
BAD = replace(CHECKED, cmd="broken")


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def ids(world: World, app: str = "/web") -> set[str]:
    return {job.id for job in instances(world, app)}


def healthy(world: World) -> None:
    """Let the checks of all instances but those of a broken command pass."""
    for job in [job for of_app in world.state.apps.instances for job in instances(world, of_app)]:
        if job.task_id is not None and job.started_at is not None:
            world.feed(ev.HealthFound(job.task_id, "broken" not in (job.spec.command or "")))


def up(world: World, *apps: App, id: str = "up") -> None:
    want(world, *apps, id=id, force=True)
    for _ in range(40):
        serve(world)
        healthy(world)
        if not world.state.apps.deployments:
            return
    raise AssertionError(f"still under way: {world.state.apps.deployments}")


def half_done(world: World, *apps: App, id: str = "bad") -> None:
    """Begin an update whose instances never become healthy."""
    world.now += 1
    want(world, *apps, id=id)
    for _ in range(3):
        serve(world)
        healthy(world)
    assert world.state.apps.deployments


def test_forced_return_to_the_old_definition_keeps_its_instances(world: World) -> None:
    up(world, CHECKED)
    old, version = ids(world), world.state.apps.catalog.versions["/web"]
    half_done(world, BAD)
    assert old < ids(world), "new ones run beside them"
    world.now += 1
    up(world, CHECKED, id="back")
    assert ids(world) == old
    info = world.state.apps.catalog.versions["/web"]
    assert info.last_config_change_at == version.last_config_change_at
    assert info.version > version.version, "it is a change of its own all the same"


def test_return_after_a_forced_stop_keeps_instances_after_a_restart_of_the_scheduler(world: World) -> None:
    up(world, CHECKED)
    old = ids(world)
    half_done(world, BAD)
    world.feed(ev.DeploymentDeleted("bad", "none", force=True))
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    up(world, replace(CHECKED, constraints=()), id="back")
    assert ids(world) == old


def test_definition_of_another_size_keeps_the_instances_that_there_are(world: World) -> None:
    up(world, CHECKED)
    old = ids(world)
    half_done(world, BAD)
    up(world, replace(CHECKED, instances=5), id="back")
    assert old < ids(world)
    assert len(ids(world)) == 5


def test_restart_replaces_instances_of_the_same_definition(world: World) -> None:
    up(world, CHECKED)
    old = ids(world)
    want(world, CHECKED, id="again", restarts=frozenset(["/web"]))
    up(world, CHECKED, id="none")
    assert not old & ids(world)


def test_deployment_keeps_instances_of_an_app_that_it_has_not_come_to(world: World) -> None:
    db = replace(CHECKED, id="/db", instances=1)
    web = replace(CHECKED, dependencies=("/db",))
    up(world, db, web)
    old = ids(world)
    half_done(world, replace(db, cmd="broken"), replace(BAD, dependencies=("/db",)))
    assert ids(world) == old, "the update has not come to it"
    stuck = replace(db, cmd="broken too")
    half_done_again = want(world, stuck, web, id="back", force=True)
    assert half_done_again
    for _ in range(5):
        serve(world)
        healthy(world)
        assert ids(world) == old, "it runs what it is to run, although /db is not up"
    up(world, db, web, id="whole")
    assert ids(world) == old


def test_instances_that_are_ending_or_of_another_definition_are_not_taken_up(world: World) -> None:
    up(world, CHECKED)
    before = world.state.apps.catalog.versions["/web"].last_config_change_at
    half_done(world, BAD)
    for job in instances(world):
        world.feed(ev.KillRequested(job.id))
    world.now += 1
    want(world, CHECKED, id="back", force=True)
    assert world.state.apps.catalog.versions["/web"].last_config_change_at > before


def test_terms_of_deployments_alone_replace_no_instance(world: World) -> None:
    running(world, WEB)
    old = ids(world)
    for gpu in (GpuOptions(), GpuOptions(progress_deadline_s=60), GpuOptions(auto_revert=True), None):
        world.now += 1
        want(world, replace(WEB, gpu=gpu), id=f"terms {gpu}")
        settled(world)
        assert ids(world) == old
    want(world, replace(WEB, gpu=GpuOptions(queue="other")), id="queue")
    settled(world)
    assert not old & ids(world)
