"""Apps in the engine: instances are jobs, deployments bring them from what they are to what they shall be."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import AppLocked, NotFound
from mesos_gpu.model.app import App, GpuOptions, Group, PortDefinition, UpgradeStrategy
from mesos_gpu.model.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.job import Job, JobState
from mesos_gpu.testing.builders import World, every, gpu, offer, saved_of

WEB = App("/web", cmd="serve", instances=2, cpus=0.1, mem_mib=32, port_definitions=())


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def want(world: World, *apps: App, id: str = "d1", **how: object) -> list[fx.Effect]:
    return world.feed(ev.AppsChanged(id, Group("/", apps), **how))  # type: ignore[arg-type]


def instances(world: World, app: str = "/web") -> list[Job]:
    return [world.state.jobs[job_id] for job_id in world.state.instances.get(app, ())]


def serve(world: World, seconds: int = 1) -> None:
    """All that is launched runs, what is killed ends, and what is free is offered."""
    for _ in range(seconds):
        world.serial += 1
        world.offers(offer(f"s{world.serial}", cpus=100, mem=1e5))
        world.tick(1)
        for task_id in list(world.state.live):
            task = world.state.tasks[task_id]
            if task.job_id is None:
                continue
            killed = world.state.jobs[task.job_id].kill_requested
            world.status(task.id, "TASK_KILLED" if killed else "TASK_RUNNING", agent=task.agent_id)


def settled(world: World, limit: int = 30) -> None:
    for _ in range(limit):
        serve(world)
        if not world.state.deployments:
            return
    raise AssertionError(f"still under way: {world.state.deployments}")


def running(world: World, *apps: App) -> None:
    want(world, *apps)
    settled(world)


def test_instances_are_started_and_kept_up(world: World) -> None:
    running(world, WEB)
    found = instances(world)
    assert [job.state for job in found] == [JobState.RUNNING] * 2
    assert all(job.id.startswith("web.instance-") and job.id.endswith("._app") for job in found)
    assert found[0].spec.env["MARATHON_APP_ID"] == "/web"
    world.status(f"{found[0].id}.1", "TASK_FAILED", agent="a1")
    assert len(instances(world)) == 1
    serve(world, 4)
    assert [job.state for job in instances(world)] == [JobState.RUNNING] * 2
    assert found[0].id not in {job.id for job in instances(world)}


def test_a_failing_app_waits_longer_each_time(world: World) -> None:
    want(world, replace(WEB, instances=1, backoff_s=4, backoff_factor=2.0))
    starts = []
    for second in range(40):
        effects = world.offers(offer(f"f{second}", cpus=100, mem=1e5)) + world.tick(1)
        for effect in every(effects, fx.Launch):
            for item in effect.tasks:
                starts.append(second)
                world.status(item.task.id, "TASK_FAILED", agent="a1")
    gaps = [b - a for a, b in pairwise(starts)]
    assert gaps[:3] == sorted(gaps[:3])
    assert gaps[0] >= 4
    assert gaps[1] >= 8


def test_scaling_up_and_down(world: World) -> None:
    running(world, WEB)
    before = {job.id for job in instances(world)}
    want(world, replace(WEB, instances=4), id="up")
    settled(world)
    assert before < {job.id for job in instances(world)}
    assert len(instances(world)) == 4
    want(world, replace(WEB, instances=1), id="down")
    settled(world)
    assert next(job.id for job in instances(world)) in before, "the oldest stays"
    want(world, id="gone")
    settled(world)
    assert not instances(world)


def test_an_update_replaces_all_and_never_has_too_few_or_too_many(world: World) -> None:
    strategy = UpgradeStrategy(minimum_health_capacity=0.5, maximum_over_capacity=0.0)
    app = replace(WEB, instances=4, upgrade_strategy=strategy)
    running(world, app)
    old = {job.id for job in instances(world)}
    want(world, replace(app, cmd="serve --better"), id="update")
    for _ in range(40):
        found = instances(world)
        serving = [job for job in found if job.state is JobState.RUNNING and not job.kill_requested]
        assert len(serving) >= 2
        assert len(found) <= 4
        serve(world)
        if not world.state.deployments:
            break
    assert not world.state.deployments
    assert not old & {job.id for job in instances(world)}
    assert {job.spec.command for job in instances(world)} == {"serve --better"}


def test_dependencies_come_first(world: World) -> None:
    db = replace(WEB, id="/db", instances=1)
    want(world, replace(WEB, dependencies=("/db",)), db)
    world.tick(3)
    assert instances(world, "/db")
    assert not instances(world), "it waits for /db"
    settled(world)
    assert len(instances(world)) == 2


def test_an_app_is_locked_while_it_changes(world: World) -> None:
    want(world, WEB)
    before = saved_of(world.state)
    with pytest.raises(AppLocked) as locked:
        want(world, replace(WEB, instances=3), id="d2")
    assert locked.value.deployments == ("d1",)
    assert saved_of(world.state) == before
    want(world, WEB, replace(WEB, id="/other"), id="d3")
    assert set(world.state.deployments) == {"d1", "d3"}
    want(world, replace(WEB, instances=3), id="d4", force=True)
    assert set(world.state.deployments) == {"d4"}
    settled(world)
    assert len(instances(world)) == 3
    assert not instances(world, "/other")


def test_a_deployment_is_undone(world: World) -> None:
    running(world, WEB)
    old = {job.id for job in instances(world)}
    want(world, replace(WEB, cmd="broken"), id="bad")
    world.tick(1)
    world.feed(ev.DeploymentDeleted("bad", "back"))
    assert set(world.state.deployments) == {"back"}
    settled(world)
    assert {job.id for job in instances(world)} == old, "they still run from the version that is back"
    assert world.state.services.root.apps == (WEB,)
    with pytest.raises(NotFound):
        world.feed(ev.DeploymentDeleted("bad", "again"))


def test_a_restart_in_the_middle_goes_on(world: World) -> None:
    running(world, WEB)
    want(world, replace(WEB, cmd="new"), id="update")
    serve(world, 2)
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    settled(world)
    assert {job.spec.command for job in instances(world)} == {"new"}
    assert len(instances(world)) == 2


def test_versions_are_remembered(world: World) -> None:
    running(world, WEB)
    world.now += 1
    want(world, replace(WEB, instances=3), id="scale")
    settled(world)
    found = world.state.app_versions["/web"]
    assert [version.app.instances for version in found] == [2, 3]
    info = world.state.services.versions["/web"]
    assert info.last_config_change_at < info.last_scaling_at == info.version


def test_all_gpus_in_use_an_update_in_place_ends_an_old_one_first(world: World) -> None:
    app = App("/gpu", cmd="serve", gpus=1, instances=2, cpus=0.1, mem_mib=32, port_definitions=())
    world.node("a1", gpu("g0"), gpu("g1"), cpus=100)
    want(world, app)

    def go(until: Callable[[], bool]) -> None:
        for _ in range(60):
            if until():
                return
            free = 2 - len(world.state.holders)
            world.serial += 1
            world.offers(offer(f"g{world.serial}", cpus=50, gpus=free))
            world.report("a1", gpu("g0"), gpu("g1"))
            world.tick(1)
            for task_id in list(world.state.live):
                task = world.state.tasks[task_id]
                if task.job_id is not None:
                    killed = world.state.jobs[task.job_id].kill_requested
                    world.status(task.id, "TASK_KILLED" if killed else "TASK_RUNNING")
        raise AssertionError(f"{world.state.deployments} {[j.message for j in instances(world, '/gpu')]}")

    go(lambda: not world.state.deployments)
    want(world, replace(app, cmd="new"), id="stuck")
    for _ in range(5):
        world.report("a1", gpu("g0"), gpu("g1"))
        world.tick(2)
    assert "to be placed" in world.state.deployments["stuck"].waiting["/gpu"]
    strategy = UpgradeStrategy(0.5, 0.0)
    in_place = replace(app, cmd="new", gpu=GpuOptions(in_place=True), upgrade_strategy=strategy)
    want(world, in_place, id="in place", force=True)
    go(lambda: not world.state.deployments)
    assert {job.spec.command for job in instances(world, "/gpu")} == {"new"}


def test_what_is_taken_up_again_is_no_new_version(world: World) -> None:
    running(world, WEB)
    world.now += 1
    want(world, replace(WEB, cmd="bad"), id="bad")
    world.feed(ev.DeploymentDeleted("bad", "back"))
    versions = [found.version for found in world.state.app_versions["/web"]]
    assert len(versions) == len(set(versions)) == 2
    assert world.state.app_versions["/web"][-1].app == WEB


def test_an_end_by_force_leaves_things_as_they_are(world: World) -> None:
    want(world, WEB)
    world.feed(ev.DeploymentDeleted("d1", "none", force=True))
    assert not world.state.deployments
    serve(world, 4)
    assert len(instances(world)) == 2, "the app is there, and is kept up"


HTTP = HealthCheck(Protocol.HTTP, port_index=0)


def test_an_instance_is_healthy_when_its_checks_say_so(world: World) -> None:
    app = replace(WEB, health_checks=(HTTP,), port_definitions=(PortDefinition(),))
    want(world, app)
    serve(world, 6)
    assert "to become healthy" in world.state.deployments["d1"].waiting["/web"]
    for job in instances(world):
        world.feed(ev.HealthFound(world.state.round_of(job)[0].id, True))
    settled(world)
    sick, well = instances(world)
    world.feed(ev.HealthFound(world.state.round_of(sick)[0].id, False))
    assert not world.job(sick.id).kill_requested
    effects = world.feed(ev.HealthFound(world.state.round_of(sick)[0].id, False, "HTTP check failed 3 times"))
    assert len(every(effects, fx.Kill)) == 1
    assert "unhealthy: HTTP check failed 3 times" in world.job(sick.id).message
    serve(world, 6)
    assert len(instances(world)) == 2
    assert sick.id not in {job.id for job in instances(world)}
    assert well.id in {job.id for job in instances(world)}


def test_one_that_is_cut_off_is_not_ended_for_its_health(world: World) -> None:
    running(world, WEB)
    (task,) = world.state.round_of(instances(world)[0])
    world.status(task.id, "TASK_UNREACHABLE", agent="a1")
    assert not every(world.feed(ev.HealthFound(task.id, False, "no answer")), fx.Kill)
