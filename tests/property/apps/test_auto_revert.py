"""Updates that fail, with `auto_revert`, whatever else happens meanwhile: in the end all is as it was before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.apps.app import GpuOptions, UpgradeStrategy
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.job import JobState
from tests.doubles.builders import World, saved_of
from tests.property.examples import examples
from tests.unit.engine.apps.test_engine_apps import WEB, instances, serve, want
from tests.unit.engine.apps.test_kept_instances import healthy, up

SHARES = (0.0, 0.5, 1.0)
ACTS = ("wait", "kill", "fail", "lose", "cut off", "restart", "reconnect", "stand still")
REVERT = GpuOptions(progress_deadline_s=20, auto_revert=True)


def act(world: World, what: str, which: int) -> None:
    """Do one bad thing to the app, or to the scheduler."""
    jobs = [job for job in instances(world) if job.task_id is not None and job.state is not JobState.PENDING]
    job = jobs[which % len(jobs)] if jobs else None
    task = str(job.task_id) if job else ""
    match what:
        case "kill" if job:
            world.feed(ev.KillRequested(job.id))
        case "fail" if job:
            world.status(task, "TASK_FAILED")
        case "lose" if job:
            world.status(task, "TASK_LOST", reason="REASON_SLAVE_REMOVED")
        case "cut off" if job:
            world.status(task, "TASK_UNREACHABLE")
        case "restart":
            world.state = State.restored(world.now, saved_of(world.state))
            world.register()
        case "reconnect":
            world.feed(ev.Disconnected())
            world.register()
        case "stand still":
            world.now += 30
    serve(world)
    healthy(world)


@examples(4, 300, deadline=None)
@given(
    count=st.integers(1, 3),
    wanted=st.integers(1, 4),
    strategy=st.builds(UpgradeStrategy, st.sampled_from(SHARES), st.sampled_from(SHARES)),
    in_place=st.booleans(),
    acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), max_size=12),
)
def test_failed_update_with_auto_revert_ends_as_it_was_before(
    count: int, wanted: int, strategy: UpgradeStrategy, in_place: bool, acts: list[tuple[str, int]]
) -> None:
    world = World()
    world.register()
    old = replace(
        WEB,
        instances=count,
        health_checks=(HealthCheck(Protocol.TCP, port=80),),
        upgrade_strategy=strategy,
        backoff_s=0,
        max_launch_delay_s=0,
    )
    up(world, old)
    world.now += 1
    want(
        world, replace(old, cmd="broken", instances=wanted, gpu=replace(REVERT, in_place=in_place)), id="bad"
    )
    for what, which in acts:
        act(world, what, which)
    for _ in range(200):
        serve(world)
        healthy(world)
        if not world.state.apps.deployments:
            break
    assert not world.state.apps.deployments
    assert world.state.apps.catalog.root.apps == (old,)
    for _ in range(5):  # what was killed last is replaced
        serve(world)
    jobs = instances(world)
    assert [(job.spec.command, job.state) for job in jobs] == [("serve", JobState.RUNNING)] * count
