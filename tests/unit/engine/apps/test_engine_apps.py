"""Apps in the engine: instances are jobs, deployments bring them from what they are to what they shall be."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.apps import last_failures
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.state import State
from mesos_gpu.errors import AppLocked, NotFound
from mesos_gpu.model.apps.app import (
    App,
    GpuOptions,
    Group,
    PortDefinition,
    ReadinessCheck,
    UnreachableStrategy,
    UpgradeStrategy,
)
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol, Readiness
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.marathon.moments import stamp
from tests.doubles.builders import World, every, gpu, offer, saved_of

WEB = App("/web", cmd="serve", instances=2, cpus=0.1, mem_mib=32, port_definitions=())


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def want(world: World, *apps: App, id: str = "d1", **how: object) -> list[fx.Effect]:
    return world.feed(ev.AppsChanged(id, Group("/", apps), **how))  # type: ignore[arg-type]


def instances(world: World, app: str = "/web") -> list[Job]:
    return [world.state.work.jobs[job_id] for job_id in world.state.apps.instances.get(app, ())]


def serve(world: World, seconds: int = 1) -> None:
    """Let launched tasks run and killed ones end, and offer what is free."""
    for _ in range(seconds):
        world.serial += 1
        world.offers(offer(f"s{world.serial}", cpus=100, mem=1e5))
        world.tick(1)
        _run_and_end(world)


def serve_gpus(world: World, *names: str) -> None:
    """Serve for a second on a node with these GPUs."""
    world.serial += 1
    world.offers(offer(f"g{world.serial}", cpus=50, gpus=len(names) - len(world.state.gpus.holders)))
    world.report("a1", *map(gpu, names))
    world.tick(1)
    _run_and_end(world)
    world.feed(ev.Tick())  # a daemon's, of the same moment


def _run_and_end(world: World) -> None:
    for task_id in list(world.state.work.live):
        task = world.state.work.tasks[task_id]
        if task.job_id is not None:
            killed = world.state.work.jobs[task.job_id].kill_requested
            world.status(task.id, "TASK_KILLED" if killed else "TASK_RUNNING", agent=task.agent_id)


def settled(world: World, limit: int = 30) -> None:
    for _ in range(limit):
        serve(world)
        if not world.state.apps.deployments:
            return
    raise AssertionError(f"still under way: {world.state.apps.deployments}")


def running(world: World, *apps: App) -> None:
    want(world, *apps)
    settled(world)


def test_instances_are_started_and_kept_up(world: World) -> None:
    running(world, WEB)
    jobs = instances(world)
    assert [job.state for job in jobs] == [JobState.RUNNING] * 2
    assert all(job.id.startswith("web.instance-") and job.id.endswith("._app") for job in jobs)
    assert jobs[0].spec.env["MARATHON_APP_ID"] == "/web"
    world.status(f"{jobs[0].id}.1", "TASK_FAILED", agent="a1")
    assert len(instances(world)) == 1
    serve(world, 4)
    assert [job.state for job in instances(world)] == [JobState.RUNNING] * 2
    assert jobs[0].id not in {job.id for job in instances(world)}


def test_instance_that_comes_back_keeps_its_name_and_counts_on(world: World) -> None:
    running(world, replace(WEB, instances=1))
    (first,) = instances(world)

    def back(how: str = "TASK_FAILED") -> str:
        (job,) = instances(world)
        assert job.task_id is not None
        world.status(job.task_id, how, agent="a1")
        serve(world, 5)
        (job,) = instances(world)
        assert (job.state, job.spec) == (JobState.RUNNING, first.spec)
        return str(job.task_id)

    base = first.id
    assert first.task_id == f"{base}.1"
    assert back() == f"{base}.2"
    assert back("TASK_LOST") == f"{base}.3", "the infrastructure's fault is the same job"
    assert back("TASK_FINISHED") == f"{base}.4"
    world.feed(ev.KillRequested(instances(world)[0].id))
    assert back("TASK_KILLED") == f"{base}.5"
    world.feed(ev.KillRequested(instances(world)[0].id, wipe=True))
    fresh = back("TASK_KILLED")
    assert fresh.endswith("._app.1")
    assert not fresh.startswith(base), "wiped"
    want(world, replace(WEB, instances=1, cmd="other"), id="d2")
    settled(world)
    (new,) = instances(world)
    assert new.id.endswith("._app"), "of another configuration it is another one"
    want(world, replace(WEB, instances=0, cmd="other"), id="d3")
    settled(world)
    want(world, replace(WEB, instances=1, cmd="other"), id="d4")
    settled(world)
    assert instances(world)[0].id.endswith("._app"), "what was not wanted any more does not come back"


def test_failing_app_waits_longer_each_time(world: World) -> None:
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


def test_backoff_does_not_delay_a_new_configuration_restart_or_rollback(world: World) -> None:
    bad = replace(WEB, cmd="false", instances=1, backoff_s=100, max_launch_delay_s=1000)

    def launched(seconds: int = 3) -> list[str]:
        task_ids: list[str] = []
        for _ in range(seconds):
            world.serial += 1
            effects = world.offers(offer(f"l{world.serial}", cpus=100, mem=1e5)) + world.tick(1)
            task_ids += [item.task.id for effect in every(effects, fx.Launch) for item in effect.tasks]
        return task_ids

    want(world, bad, id="d1")
    for id, changed, restarts in (
        ("d2", replace(bad, cmd="exit 2"), ()),
        ("d3", replace(bad, cmd="exit 2"), ("/web",)),
        ("d4", bad, ()),  # as it was: that it failed then is of no account
    ):
        (task,) = launched()
        world.status(task, "TASK_FAILED", agent="a1")
        assert not launched(), "the next one waits"
        want(world, changed, id=id, force=True, restarts=frozenset(restarts))
    (task,) = launched()
    world.status(task, "TASK_FAILED", agent="a1")
    assert not launched()
    world.feed(ev.DeploymentDeleted("d4", "d5", force=False))
    assert launched(), "what is taken up again starts at once, too"


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


def test_update_replaces_all_and_never_has_too_few_or_too_many(world: World) -> None:
    strategy = UpgradeStrategy(minimum_health_capacity=0.5, maximum_over_capacity=0.0)
    app = replace(WEB, instances=4, upgrade_strategy=strategy)
    running(world, app)
    old = {job.id for job in instances(world)}
    want(world, replace(app, cmd="serve --better"), id="update")
    for _ in range(40):
        jobs = instances(world)
        serving = [job for job in jobs if job.state is JobState.RUNNING and not job.kill_requested]
        assert len(serving) >= 2
        assert len(jobs) <= 4
        serve(world)
        if not world.state.apps.deployments:
            break
    assert not world.state.apps.deployments
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


def test_app_is_locked_while_it_changes(world: World) -> None:
    want(world, WEB)
    before = saved_of(world.state)
    with pytest.raises(AppLocked) as locked:
        want(world, replace(WEB, instances=3), id="d2")
    assert locked.value.deployments == ("d1",)
    assert saved_of(world.state) == before
    want(world, WEB, replace(WEB, id="/other"), id="d3")
    assert set(world.state.apps.deployments) == {"d1", "d3"}
    want(world, replace(WEB, instances=3), id="d4", force=True)
    assert set(world.state.apps.deployments) == {"d4"}
    settled(world)
    assert len(instances(world)) == 3
    assert not instances(world, "/other")


def test_deployment_is_undone(world: World) -> None:
    running(world, WEB)
    old = {job.id for job in instances(world)}
    want(world, replace(WEB, cmd="broken"), id="bad")
    world.tick(1)
    world.feed(ev.DeploymentDeleted("bad", "back"))
    assert set(world.state.apps.deployments) == {"back"}
    settled(world)
    assert {job.id for job in instances(world)} == old, "they still run from the version that is back"
    assert world.state.apps.catalog.root.apps == (WEB,)
    with pytest.raises(NotFound):
        world.feed(ev.DeploymentDeleted("bad", "again"))


def test_deployment_goes_on_after_a_restart_in_the_middle(world: World) -> None:
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
    versions = world.state.apps.app_versions["/web"]
    assert [version.app.instances for version in versions] == [2, 3]
    info = world.state.apps.catalog.versions["/web"]
    assert info.last_config_change_at < info.last_scaling_at == info.version


@pytest.mark.parametrize(
    "how", [{"gpu": GpuOptions(in_place=True)}, {"labels": {"MESOS_GPU_IN_PLACE": "true"}}]
)
def test_rollout_with_all_gpus_in_use_ends_an_old_instance_first(
    world: World, how: dict[str, object]
) -> None:
    app = App("/gpu", cmd="serve", gpus=1, instances=2, cpus=0.1, mem_mib=32, port_definitions=())
    world.node("a1", gpu("g0"), gpu("g1"), cpus=100)
    want(world, app)

    def go(until: Callable[[], bool]) -> None:
        for _ in range(60):
            if until():
                return
            serve_gpus(world, "g0", "g1")
        raise AssertionError(
            f"{world.state.apps.deployments} {[j.message for j in instances(world, '/gpu')]}"
        )

    go(lambda: not world.state.apps.deployments)
    want(world, replace(app, cmd="new"), id="stuck")
    for _ in range(5):
        world.report("a1", gpu("g0"), gpu("g1"))
        world.tick(2)
    assert "to be placed" in world.state.apps.deployments["stuck"].waiting["/gpu"]
    waiting = next(job for job in instances(world, "/gpu") if job.state is JobState.PENDING)
    why = explain_job(View(world.state, world.settings, world.now), waiting.id).summary
    assert (
        "its deployment waits for 2 new instances to be placed; each needs 1 free GPU beside the old" in why
    )
    strategy = UpgradeStrategy(0.5, 0.0)
    in_place = replace(app, cmd="new", upgrade_strategy=strategy, **how)  # type: ignore[arg-type]
    want(world, in_place, id="in place", force=True)
    go(lambda: not world.state.apps.deployments)
    assert {job.spec.command for job in instances(world, "/gpu")} == {"new"}


def test_app_version_taken_up_again_is_no_new_version(world: World) -> None:
    running(world, WEB)
    world.now += 1
    want(world, replace(WEB, cmd="bad"), id="bad")
    world.feed(ev.DeploymentDeleted("bad", "back"))
    versions = [version.version for version in world.state.apps.app_versions["/web"]]
    assert len(versions) == len(set(versions)) == 2
    assert world.state.apps.app_versions["/web"][0].app == WEB
    assert world.state.apps.catalog.versions["/web"].version == versions[0] < versions[1]


def test_deployment_ended_by_force_leaves_instances_as_they_are(world: World) -> None:
    want(world, WEB)
    world.feed(ev.DeploymentDeleted("d1", "none", force=True))
    assert not world.state.apps.deployments
    serve(world, 4)
    assert len(instances(world)) == 2, "the app is there, and is kept up"


HTTP = HealthCheck(Protocol.HTTP, port_index=0)


def test_instance_is_healthy_when_its_checks_say_so(world: World) -> None:
    app = replace(WEB, health_checks=(HTTP,), port_definitions=(PortDefinition(),))
    want(world, app)
    serve(world, 6)
    assert "to become healthy" in world.state.apps.deployments["d1"].waiting["/web"]
    for job in instances(world):
        world.feed(ev.HealthFound(world.state.work.round_of(job)[0].id, True))
    settled(world)
    sick, well = instances(world)
    world.feed(ev.HealthFound(world.state.work.round_of(sick)[0].id, False))
    assert not world.job(sick.id).kill_requested
    effects = world.feed(
        ev.HealthFound(world.state.work.round_of(sick)[0].id, False, "HTTP check failed 3 times")
    )
    assert len(every(effects, fx.Kill)) == 1
    assert "unhealthy: HTTP check failed 3 times" in world.job(sick.id).message
    serve(world, 6)
    assert world.job(sick.id).message == "unhealthy: HTTP check failed 3 times", "and not: killed on request"
    assert len(instances(world)) == 2
    assert sick.id not in {job.id for job in instances(world)}
    assert well.id in {job.id for job in instances(world)}


def test_instance_ended_by_its_executor_for_its_health_is_killed_and_not_failed(world: World) -> None:
    app = replace(
        WEB, instances=1, backoff_s=100, health_checks=(HealthCheck(Protocol.COMMAND, command="true"),)
    )
    want(world, app)
    serve(world, 4)
    (job,) = instances(world)
    why = "COMMAND check failed 3 times: exit code 1"
    echo = world.status(f"{job.id}.1", "TASK_KILLED", reason="REASON_RECONCILIATION")
    assert world.job(job.id).state is JobState.RUNNING, "an echo without the executor's word says nothing"
    assert echo
    world.status(f"{job.id}.1", "TASK_KILLED", outcome=Outcome(0, unhealthy=why), message=f"unhealthy: {why}")
    ended = world.job(job.id)
    assert (ended.state, ended.message) == (JobState.KILLED, f"unhealthy: {why}")
    view = View(world.state, world.settings, world.now)
    assert last_failures(view, ["/web"])["/web"].id == job.id
    serve(world, 4)
    assert [job.state for job in instances(world)] == [JobState.RUNNING], "the next one does not wait"


def test_unreachable_instance_is_not_ended_for_its_health(world: World) -> None:
    running(world, WEB)
    (task,) = world.state.work.round_of(instances(world)[0])
    world.status(task.id, "TASK_UNREACHABLE", agent="a1")
    assert not every(world.feed(ev.HealthFound(task.id, False, "no answer")), fx.Kill)


def test_new_app_waits_for_no_look_at_all_apps(world: World) -> None:
    """Ticks alone bring a deployment to its instances, as long as nothing else happens."""
    want(world, WEB)
    for _ in range(3):
        world.now += 0.1
        world.feed(ev.Tick())
    assert len(instances(world)) == 2


def test_rollout_does_not_count_an_instance_ended_for_a_drain(world: World) -> None:
    app = replace(WEB, instances=4, upgrade_strategy=UpgradeStrategy(0.75, 0.25))
    running(world, app)
    gone, *rest = instances(world)
    task = world.state.work.round_of(gone)[0]
    world.state.set_task(replace(task, evicted="its node was drained"))
    want(world, replace(app, env={"V": "2"}), id="d2")
    for _ in range(6):
        world.now += 0.3
        world.feed(ev.Tick())
    old = [job for job in instances(world) if not job.kill_requested and job.id in {each.id for each in rest}]
    assert len(old) == 3, "three must serve, and there are no others yet"
    assert world.job(gone.id).kill_requested, "it is of no use"


def cut_off(world: World, strategy: UnreachableStrategy | None) -> Job:
    """An instance of two that is out of reach."""
    running(world, replace(WEB, unreachable_strategy=strategy))
    job = instances(world)[0]
    world.status(world.state.work.round_of(job)[0].id, "TASK_UNREACHABLE", agent="a1")
    return job


def test_unreachable_instance_is_replaced_and_given_up_by_its_strategy(world: World) -> None:
    job = cut_off(world, UnreachableStrategy(inactive_after_s=200, expunge_after_s=400))
    world.tick(190)
    assert len(instances(world)) == 2, "longer than any other job is waited for"
    world.tick(15)
    assert len(instances(world)) == 3
    world.tick(200)
    assert job.id not in {each.id for each in instances(world)}
    assert world.job(job.id).state is JobState.KILLED
    assert "out of reach for 40" in world.job(job.id).message
    assert world.job(job.id).launches == 1
    assert every(world.status(f"{job.id}.1", "TASK_RUNNING", agent="a1"), fx.Kill), "it is back"


def test_unreachable_instance_is_kept_for_ever_without_a_strategy(world: World) -> None:
    job = cut_off(world, None)
    world.tick(1000)
    assert instances(world)[0].id == job.id
    assert len(instances(world)) == 2
    world.status(f"{job.id}.1", "TASK_RUNNING", agent="a1")
    assert world.job(job.id).state is JobState.RUNNING


def test_unreachable_instance_that_never_ran_is_starting_once_heard_of(world: World) -> None:
    """Chaos found it: the job was still called unreachable, so another one took its place."""
    want(world, WEB)
    world.tick(2)
    world.offers(offer("o1"))
    job = instances(world)[0]
    world.status(f"{job.id}.1", "TASK_UNREACHABLE", agent="a1")
    assert world.job(job.id).state is JobState.UNREACHABLE
    world.status(f"{job.id}.1", "TASK_STAGING", agent="a1", reason="REASON_RECONCILIATION", uuid=None)
    assert world.job(job.id).state is JobState.STARTING


READY = ReadinessCheck(port_name="http")
SLOW = replace(
    WEB,
    port_definitions=(PortDefinition(0, name="http"),),
    readiness_checks=(READY,),
    upgrade_strategy=UpgradeStrategy(1.0, 0.0),
)


def answered(world: World, job: Job, *, ready: bool) -> None:
    assert job.task_id is not None
    world.feed(ev.ReadinessFound(job.task_id, Readiness(READY.name, ready)))


def test_update_waits_for_readiness_of_each_new_instance(world: World) -> None:
    want(world, SLOW)
    for _ in range(5):
        serve(world)
    assert world.state.apps.deployments["d1"].waiting == {
        "/web": "waits for 2 new instances to pass the readiness checks"
    }
    for job in instances(world):
        answered(world, job, ready=False)
    serve(world, 3)
    assert "d1" in world.state.apps.deployments
    old = {job.id for job in instances(world)}
    for job in instances(world):
        answered(world, job, ready=True)
    settled(world)

    want(world, replace(SLOW, cmd="better"), id="d2")
    for _ in range(8):
        serve(world)
    fresh = [job for job in instances(world) if job.id not in old]
    assert len(fresh) == 1, "one over capacity; no old one goes before it is ready"
    assert old <= {job.id for job in instances(world)}
    answered(world, fresh[0], ready=True)
    serve(world, 4)
    assert len(old & {job.id for job in instances(world)}) == 1
    for _ in range(20):
        for job in instances(world):
            answered(world, job, ready=True)
        serve(world)
    assert not world.state.apps.deployments
    assert not old & {job.id for job in instances(world)}


def test_readiness_is_known_after_a_restart(world: World) -> None:
    want(world, SLOW)
    serve(world, 3)
    for job in instances(world):
        answered(world, job, ready=True)
    again = State.restored(world.now, saved_of(world.state))
    assert all(again.work.tasks[job.task_id].ready for job in instances(world) if job.task_id)


def test_readiness_of_what_has_ended_is_nobodys_concern(world: World) -> None:
    want(world, SLOW)
    serve(world, 3)
    first = instances(world)[0]
    answered(world, first, ready=False)
    world.status(str(first.task_id), "TASK_FAILED", agent="a1")
    answered(world, first, ready=True)
    assert not world.state.apps.readiness


def test_versions_are_unique_to_the_millisecond_and_not_kept_for_ever(world: World) -> None:
    running(world, WEB)
    first = instances(world)
    for count in range(60):  # at one moment, as in one batch
        want(world, replace(WEB, cmd=f"serve {count}", backoff_s=count), id=f"m{count}", force=True)
    kept = world.state.apps.app_versions["/web"]
    assert [version.app.cmd for version in kept[1:]] == [f"serve {count}" for count in range(10, 60)]
    assert kept[0].app == WEB, "what runs is known for as long as it does"
    assert kept[0].version == first[0].app_version
    stamps = [stamp(version.version) for version in kept]
    assert stamps == sorted(set(stamps))
    settled(world)
    assert [job.spec.command for job in instances(world)] == ["serve 59"] * 2
    again = State.restored(world.now, saved_of(world.state))
    assert again.apps.app_versions == world.state.apps.app_versions


def test_deletion_that_is_ended_half_way_leaves_nothing_behind(world: World) -> None:
    running(world, WEB)
    want(world, id="d2")
    world.feed(ev.DeploymentDeleted("d2", "unused", force=True))
    assert instances(world)
    for _ in range(8):
        serve(world)
    assert not instances(world)
    assert "/web" in world.state.apps.app_versions, "the tree that it was in is remembered"
    for count in range(25):
        world.now += 1
        want(world, replace(WEB, id="/other", cmd=f"serve {count}", instances=0), id=f"m{count}", force=True)
        world.tick(2)
    assert world.state.apps.app_versions.keys() == {"/other"}


@pytest.mark.parametrize("why", ["update", "failure", "scale"])
def test_instance_that_replaces_one_keeps_the_place_of_its_app(world: World, why: str) -> None:
    app = App("/gpu", cmd="serve", gpus=1, instances=1, cpus=0.1, mem_mib=32, port_definitions=())
    app = replace(app, gpu=GpuOptions(in_place=True), upgrade_strategy=UpgradeStrategy(0.0, 0.0), backoff_s=0)
    world.node("a1", gpu("g0"), cpus=100)

    def run(seconds: int) -> None:
        for _ in range(seconds):
            serve_gpus(world, "g0")

    want(world, app)
    run(4)
    [first] = instances(world, "/gpu")
    assert first.state is JobState.RUNNING
    batch = world.submit(gpus=1).id
    world.now += 2 * world.settings.queue.aging_step_s  # it has waited for long
    if why == "update":
        want(world, replace(app, cmd="new"), id="d2")
    elif why == "scale":
        want(world, replace(app, instances=2), id="d2")
    else:
        world.status(str(first.task_id), "TASK_FAILED")
        world.feed(ev.Tick())
    run(8)
    later = [job for job in instances(world, "/gpu") if job.id != first.id]
    assert len(later) == 1
    assert later[0].state is (JobState.PENDING if why == "scale" else JobState.RUNNING)
    assert world.state.work.jobs[batch].state is JobState.PENDING
    if why != "scale":
        assert later[0].sequence == first.sequence
        assert later[0].in_line_since == first.submitted_at
    order = [job_id for _, job_id in world.state.work.queue]
    assert order == ([batch, later[0].id] if why == "scale" else [batch])
    assert State.restored(world.now, saved_of(world.state)).apps.places == world.state.apps.places
