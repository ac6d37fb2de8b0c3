"""Persistent volumes of apps in the engine: who uses them, where they are, and when they are removed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.volumes import resting_volumes
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.apps.app import (
    App,
    Container,
    EngineType,
    Persistent,
    Residency,
    UpgradeStrategy,
    Volume,
    VolumeMode,
)
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Inventory, VolumeRoot
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, offer, saved_of
from tests.unit.engine.apps.test_engine_apps import instances, want

DATA = Volume("data", mode=VolumeMode.RW, persistent=Persistent(100))
ROOT = VolumeRoot()
DB = App(
    "/db",
    cmd="serve",
    cpus=0.1,
    mem_mib=32,
    port_definitions=(),
    container=Container(EngineType.MESOS, volumes=(DATA,)),
    residency=Residency(),
    upgrade_strategy=UpgradeStrategy(0.5, 0.0),
    unreachable_strategy=None,
)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def serve(world: World, *agents: str, seconds: int = 1, root: VolumeRoot | None = ROOT) -> None:
    """Let agents offer, monitors report, launched tasks run and killed ones end."""
    for _ in range(seconds):
        for agent in agents:
            world.serial += 1
            world.offers(offer(f"v{world.serial}", agent, cpus=100, mem=1e5, disk=1e5))
        world.tick(1)
        for task in [world.state.work.tasks[task_id] for task_id in list(world.state.work.live)]:
            if task.agent_id not in agents:
                continue
            if task.job_id is None:
                data = report.encode(Inventory((), "none", volumes=root))
                world.status(task.id, "TASK_RUNNING", agent=task.agent_id, data=data)
            else:
                killed = world.state.work.jobs[task.job_id].kill_requested or task.kill_sent_at is not None
                state = "TASK_KILLED" if killed else "TASK_RUNNING"
                world.status(task.id, state, agent=task.agent_id)


def up(world: World, *apps: App, agents: Sequence[str] = ("a1", "a2"), id: str = "up") -> None:
    world.now += 1
    want(world, *apps, id=id)
    for _ in range(30):
        serve(world, *agents)
        if not world.state.apps.deployments:
            return
    raise AssertionError(f"still under way: {world.state.apps.deployments}")


def volumes(world: World) -> list[PersistentVolume]:
    return list(world.state.work.volumes.values())


def db(world: World) -> Job:
    (job,) = instances(world, "/db")
    return job


def host_of(world: World, job: Job) -> str:
    return world.state.work.round_of(job)[0].hostname


def why(world: World, job: Job) -> str:
    said = explain_job(View(world.state, world.settings, world.now), job.id)
    return " | ".join(
        [said.summary, *[f"{node.hostname}: {each}" for node in said.nodes for each in node.reasons]]
    )


def test_instance_gets_a_volume_on_the_node_of_its_first_launch(world: World) -> None:
    up(world, DB)
    (volume,) = volumes(world)
    assert volume == PersistentVolume(
        volume.id, "data", 100, "/db", db(world).id, host_of(world, db(world)), is_made=True
    )
    assert [mount.source for mount in db(world).spec.mounts] == [volume.id]


def test_volumes_count_as_disk_of_the_task(world: World) -> None:
    up(world, replace(DB, disk_mib=50.0))
    assert db(world).spec.resources.disk_mib == 150
    assert db(world).spec.disk_mib == 50, "the sandbox has its own limit"


@pytest.mark.parametrize("how", ["TASK_FAILED", "TASK_FINISHED", "TASK_LOST"])
def test_instance_that_ends_starts_again_with_its_id_node_and_volume(world: World, how: str) -> None:
    up(world, DB)
    before, (volume,), task = host_of(world, db(world)), volumes(world), str(db(world).task_id)
    world.status(task, how, agent=world.state.work.round_of(db(world))[0].agent_id)
    serve(world, "a1", "a2", seconds=5)
    assert db(world).state is JobState.RUNNING
    assert host_of(world, db(world)) == before
    assert [each.id for each in volumes(world)] == [volume.id]
    assert db(world).task_id == task.removesuffix(".1") + ".2"


def test_update_ends_an_instance_first_and_keeps_its_id_node_and_volume(world: World) -> None:
    up(world, replace(DB, upgrade_strategy=UpgradeStrategy(1.0, 0.0)))
    before, (volume,), old = host_of(world, db(world)), volumes(world), db(world)
    up(world, replace(DB, cmd="other"), id="update")
    assert db(world).spec.command == "other"
    assert (host_of(world, db(world)), [each.id for each in volumes(world)]) == (before, [volume.id])
    assert db(world).id.startswith(old.id)


def test_restart_of_the_scheduler_keeps_volumes_and_their_nodes(world: World) -> None:
    up(world, DB)
    before, task = host_of(world, db(world)), db(world).task_id
    world.feed(ev.KillRequested(db(world).id))
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    serve(world, "a1", "a2", seconds=5)
    assert db(world).state is JobState.RUNNING
    assert db(world).task_id != task
    assert host_of(world, db(world)) == before


def test_executor_is_told_that_the_directory_of_a_used_volume_must_be_there(world: World) -> None:
    up(world, DB)
    world.feed(ev.KillRequested(db(world).id))
    agent = world.state.work.round_of(db(world))[0].agent_id
    world.status(str(db(world).task_id), "TASK_KILLED", agent=agent)
    world.tick(1)
    effects = world.offers(offer("again", agent, cpus=100, mem=1e5, disk=1e5)) + world.tick(1)
    (launched,) = [task for each in every(effects, fx.Launch) for task in each.tasks]
    assert launched.spec is not None
    assert [mount.is_made for mount in launched.spec.mounts] == [True]


def test_instance_waits_for_its_node_and_why_names_it(world: World) -> None:
    up(world, DB)
    host = host_of(world, db(world))
    agent, other = ("a1", "a2") if host == "a1.example" else ("a2", "a1")
    world.feed(ev.AgentLost(AgentId(agent)))
    world.status(str(db(world).task_id), "TASK_LOST", agent=agent)
    serve(world, other, seconds=5)
    assert db(world).state is JobState.PENDING
    said = why(world, db(world))
    assert f"{other}.example: its persistent volume data is on {host}" in said
    serve(world, agent, other, seconds=5)
    assert (db(world).state, host_of(world, db(world))) == (JobState.RUNNING, host)


def test_instance_whose_node_is_drained_waits(world: World) -> None:
    up(world, DB)
    host = host_of(world, db(world))
    world.feed(ev.DrainRequested(Target.NODE, host, reason="disk", deadline_s=0.0))
    serve(world, "a1", "a2", seconds=5)
    assert db(world).state is JobState.PENDING
    assert f"{host}: is drained" in why(world, db(world))


def test_node_without_a_root_gets_no_instance(world: World) -> None:
    want(world, DB)
    serve(world, "a1", seconds=3, root=None)
    assert db(world).state is JobState.PENDING
    assert "MESOS_GPU_PERSISTENT_ROOT" in why(world, db(world))
    serve(world, "a1", seconds=3, root=VolumeRoot(problem="its mode is 0755"))
    assert "its mode is 0755" in why(world, db(world))
    serve(world, "a1", seconds=3)
    assert db(world).state is JobState.RUNNING


def test_scale_down_keeps_volumes_which_scale_up_uses_again(world: World) -> None:
    up(world, replace(DB, instances=3))
    before = {volume.id for volume in volumes(world)}
    assert len(before) == 3
    up(world, replace(DB, instances=1), id="down")
    serve(world, "a1", "a2", seconds=20)
    assert {volume.id for volume in volumes(world) if not volume.unwanted} == before
    up(world, replace(DB, instances=3), id="again")
    assert {job.spec.mounts[0].source for job in instances(world, "/db")} == before


def test_wiped_instance_gets_new_volumes_and_its_old_ones_are_removed(world: World) -> None:
    up(world, DB, agents=("a1",))
    (old,) = volumes(world)
    world.feed(ev.KillRequested(db(world).id, wipe=True))
    serve(world, "a1", seconds=5)
    (new,) = [volume for volume in volumes(world) if volume.id != old.id]
    assert db(world).spec.mounts[0].source == new.id
    asked = removals(world, "a1")
    assert asked == [(old.id,)]
    serve(world, "a1", root=VolumeRoot(removed=(old.id,)))
    assert volumes(world) == [replace(new, job_id=db(world).id, hostname="a1.example", is_made=True)]
    assert removals(world, "a1") == []


def removals(world: World, agent: str, root: VolumeRoot | None = ROOT) -> list[tuple[str, ...]]:
    """Let a monitor report, and return the volumes that it is asked to remove."""
    monitor = world.state.cluster.nodes[AgentId(agent)].monitor
    assert monitor is not None
    data = report.encode(Inventory((), "none", volumes=root))
    effects = world.status(monitor, "TASK_RUNNING", agent=agent, data=data)
    return [each.volumes for each in every(effects, fx.AskRemoval)]


def test_deleted_app_has_its_volumes_removed_when_its_node_is_back(world: World) -> None:
    up(world, DB)
    (volume,) = volumes(world)
    agent = volume.hostname.removesuffix(".example")
    up(world, id="gone")
    serve(world, "a1", "a2", seconds=15)
    assert [each.unwanted for each in volumes(world)] == [True]
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    assert removals(world, "a1" if agent == "a2" else "a2") == []
    assert removals(world, agent) == [(volume.id,)]
    assert removals(world, agent, VolumeRoot(removed=(volume.id,))) == []
    assert volumes(world) == []


def test_deletion_that_is_undone_keeps_the_volumes(world: World) -> None:
    up(world, DB)
    (volume,) = volumes(world)
    world.now += 1
    want(world, id="gone")
    serve(world, seconds=15)
    world.feed(ev.DeploymentDeleted("gone", "back"))
    serve(world, "a1", "a2", seconds=15)
    assert db(world).spec.mounts[0].source == volume.id
    assert [each.unwanted for each in volumes(world)] == [False]


def test_volumes_that_no_node_has_are_forgotten_with_their_app(world: World) -> None:
    want(world, DB)
    serve(world, seconds=5)
    assert len(volumes(world)) == 1
    want(world, id="gone", force=True)
    serve(world, seconds=15)
    assert volumes(world) == []


@pytest.mark.parametrize(
    "changed",
    [(), (replace(DATA, persistent=Persistent(200)),), (DATA, replace(DATA, container_path="more"))],
)
def test_volumes_of_an_app_cannot_change(world: World, changed: tuple[Volume, ...]) -> None:
    up(world, DB)
    with pytest.raises(BadConfiguration, match="/db: its persistent volumes cannot change"):
        want(world, replace(DB, container=Container(EngineType.MESOS, volumes=changed)), id="other")


def test_update_that_is_undone_keeps_the_volume(world: World) -> None:
    up(world, DB)
    (volume,) = volumes(world)
    world.now += 1
    want(world, replace(DB, cmd="broken"), id="bad")
    serve(world, "a1", "a2", seconds=2)
    world.feed(ev.DeploymentDeleted("bad", "back"))
    serve(world, "a1", "a2", seconds=15)
    assert db(world).spec.command == "serve"
    assert [mount.source for mount in db(world).spec.mounts] == [volume.id]
    assert [each.id for each in volumes(world)] == [volume.id]


def test_scheduler_that_restarts_at_every_step_keeps_all_volumes(world: World) -> None:
    def steps(count: int) -> None:
        for _ in range(count):
            world.state = State.restored(world.now, saved_of(world.state))
            world.register()
            serve(world, "a1", "a2")

    want(world, replace(DB, instances=2))
    steps(12)
    before = {job.spec.mounts[0].source for job in instances(world, "/db") if job.state is JobState.RUNNING}
    assert len(before) == 2
    want(world, replace(DB, instances=2, cmd="other"), id="update", force=True)
    steps(20)
    running = [job for job in instances(world, "/db") if job.state is JobState.RUNNING]
    assert {job.spec.command for job in running} == {"other"}
    assert {job.spec.mounts[0].source for job in running} == before
    want(world, id="gone", force=True)
    steps(15)
    assert {volume.id: volume.unwanted for volume in volumes(world)} == dict.fromkeys(before, True)


def test_volumes_of_an_instance_that_was_scaled_down_can_be_wiped(world: World) -> None:
    up(world, replace(DB, instances=2))
    up(world, DB, id="down")
    serve(world, "a1", "a2", seconds=5)
    (resting,) = resting_volumes(world.state, "/db").items()
    job_id, (volume,) = resting
    assert job_id != db(world).id
    world.feed(ev.KillRequested(job_id, wipe=True))
    assert world.state.work.volumes[volume.id].unwanted
    assert resting_volumes(world.state, "/db") == {}
    assert db(world).state is JobState.RUNNING


def test_app_that_is_made_while_one_of_its_id_is_deleted_gets_none_of_its_volumes(world: World) -> None:
    up(world, DB)
    (old,) = volumes(world)
    world.now += 1
    want(world, id="gone")
    serve(world, seconds=3)
    world.now += 1
    want(world, DB, id="another", force=True)
    serve(world, "a1", "a2", seconds=20)
    assert db(world).state is JobState.RUNNING
    assert db(world).spec.mounts[0].source != old.id
    assert world.state.work.volumes[old.id].unwanted


def test_job_of_a_volume_is_not_forgotten_before_the_volume(world: World) -> None:
    world.settings = replace(world.settings, memory=replace(world.settings.memory, keep_ended_jobs=0))
    up(world, replace(DB, instances=2))
    before = {volume.id for volume in volumes(world)}
    up(world, replace(DB, instances=0), id="down")
    serve(world, "a1", "a2", seconds=5)
    up(world, replace(DB, instances=2), id="again")
    assert {job.spec.mounts[0].source for job in instances(world, "/db")} == before
    assert all(job.id.endswith("._app.2") for job in instances(world, "/db"))
