"""Deployments with a deadline: what counts as progress, what is overdue, what is undone."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.apps.app import App, GpuOptions
from mesos_gpu.model.apps.catalog import Deployment
from tests.doubles.builders import World
from tests.unit.engine.apps.test_engine_apps import WEB, instances, serve, want
from tests.unit.engine.apps.test_kept_instances import CHECKED, healthy, ids, up

DEADLINE = GpuOptions(progress_deadline_s=10)
REVERT = replace(DEADLINE, auto_revert=True)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    up(world, CHECKED)
    world.now += 1
    return world


def bad(gpu: GpuOptions | None = None, **fields: object) -> App:
    return replace(CHECKED, cmd="broken", gpu=gpu, **fields)  # type: ignore[arg-type]


def later(world: World, seconds: int) -> None:
    for _ in range(seconds):
        serve(world)
        healthy(world)


def under_way(world: World) -> Deployment:
    (deployment,) = world.state.apps.deployments.values()
    return deployment


def test_deployment_without_a_deadline_is_never_overdue(world: World) -> None:
    want(world, bad(), id="d")
    later(world, 15)
    assert (under_way(world).id, under_way(world).progress) == ("d", {})


def test_overdue_deployment_says_so_and_goes_on_without_auto_revert(world: World) -> None:
    want(world, bad(DEADLINE), id="d")
    later(world, 7)
    assert "overdue" not in under_way(world).waiting["/web"]
    later(world, 7)
    deployment = under_way(world)
    said = (
        "overdue: no progress for 10 s (progress_deadline_s), to undo it: mesos-gpu deployment stop d; "
        "waits for 3 new instances to become healthy again"
    )
    assert (deployment.id, deployment.waiting["/web"]) == ("d", said)
    assert deployment.progress["/web"].overdue
    want(world, replace(CHECKED, gpu=DEADLINE), id="fixed", force=True)
    later(world, 5)
    assert not world.state.apps.deployments


@pytest.mark.parametrize(
    "how",
    [{"gpu": REVERT}, {"labels": {"MESOS_GPU_PROGRESS_DEADLINE_S": "10", "MESOS_GPU_AUTO_REVERT": "true"}}],
)
def test_overdue_deployment_with_auto_revert_is_undone(world: World, how: dict[str, object]) -> None:
    old = ids(world)
    want(world, replace(bad(), instances=5, **how), id="d")  # type: ignore[arg-type]
    later(world, 9)
    assert under_way(world).id == "d"
    later(world, 7)
    assert not world.state.apps.deployments
    assert world.state.apps.catalog.root.apps == (CHECKED,)
    assert ids(world) == old


def test_each_further_instance_that_serves_gives_the_deadline_anew(world: World) -> None:
    want(world, bad(REVERT), id="d")
    for count in (1, 2):
        later(world, 7)
        assert under_way(world).id == "d"
        for job in [job for job in instances(world) if job.spec.command == "broken"][:count]:
            assert job.task_id is not None
            world.feed(ev.HealthFound(job.task_id, True))
        world.tick(1)
    later(world, 7)
    assert under_way(world).id == "d", "more than twice the deadline has passed"
    later(world, 7)
    assert world.state.apps.catalog.root.apps == (CHECKED,)


def test_time_without_a_master_does_not_count(world: World) -> None:
    want(world, bad(REVERT), id="d")
    later(world, 7)
    world.feed(ev.Disconnected())
    world.tick(20)
    assert under_way(world).id == "d"
    world.register()
    later(world, 7)
    assert under_way(world).id == "d"
    later(world, 15)
    assert world.state.apps.catalog.root.apps == (CHECKED,)


def test_time_without_a_scheduler_does_not_count(world: World) -> None:
    want(world, bad(REVERT), id="d")
    later(world, 7)
    world.now += 3600
    later(world, 1)
    assert under_way(world).id == "d"
    later(world, 7)
    assert world.state.apps.catalog.root.apps == (CHECKED,)


def test_new_app_is_not_deleted_by_auto_revert(world: World) -> None:
    new = replace(bad(REVERT), id="/new", instances=1)
    want(world, CHECKED, new, id="d")
    later(world, 15)
    assert "overdue" in under_way(world).waiting["/new"]
    assert "to undo it: mesos-gpu deployment stop d" in under_way(world).waiting["/new"]
    assert len(instances(world, "/new")) == 1


def test_rollback_is_not_undone_and_says_that_it_is_overdue(world: World) -> None:
    want(world, replace(WEB, id="/web", cmd="fine", gpu=REVERT, instances=3), id="fine")
    later(world, 10)
    assert not world.state.apps.deployments
    want(world, bad(REVERT), id="d")
    for job in instances(world):
        world.feed(ev.KillRequested(job.id))
    world.tick(14)  # nothing has room any more
    back = under_way(world)
    assert (back.undoes, back.id != "d") == ("d", True)
    world.tick(14)
    assert under_way(world).id == back.id
    assert "overdue: no progress for 10 s" in under_way(world).waiting["/web"]
    later(world, 10)
    assert not world.state.apps.deployments


def test_failed_update_over_a_failed_update_goes_back_to_what_ran_before_both(world: World) -> None:
    old = ids(world)
    want(world, bad(REVERT), id="d1")
    later(world, 5)
    want(world, bad(REVERT, env={"A": "1"}), id="d2", force=True)
    later(world, 5)
    want(world, bad(REVERT, env={"A": "2"}), id="d3", force=True)
    later(world, 15)
    assert not world.state.apps.deployments
    assert world.state.apps.catalog.root.apps == (CHECKED,)
    assert ids(world) == old


def test_scaling_without_room_is_undone(world: World) -> None:
    wanted = replace(CHECKED, gpu=REVERT)
    up(world, wanted, id="terms")
    want(world, replace(wanted, instances=9), id="more")
    world.tick(14)
    assert [app.instances for app in world.state.apps.catalog.root.apps] == [3]
