"""The clock of the scheduler's host is set back: nothing waits by as much longer for that."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.set_back import MIN_S, latest
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.evictions import MAX_KILLS
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Card, Reset, Target
from mesos_gpu.model.saves import SaveToken
from mesos_gpu.model.tasks.task import TaskState
from tests.doubles.builders import World, every, gpu, offer, saved_of

DAY_S = 86_400.0
HOUR_S = 3600.0


def made() -> World:
    world = World()
    world.now = world.state.started_at = 10 * DAY_S
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    return world


def started(world: World, name: str = "j1", **more: object) -> str:
    world.submit(name, gpus=1, **more)
    world.offers(offer(f"o-{name}", "a1", gpus=1))
    world.status(f"{name}.1", "TASK_RUNNING")
    world.tick(2.0)
    return f"{name}.1"


def test_kill_is_repeated_no_later_for_a_clock_set_back() -> None:
    world = made()
    task_id = started(world)
    world.feed(ev.KillRequested(JobId("j1")))
    world.now -= DAY_S
    killed = every(world.tick(world.settings.tasks.kill_resend_s + 2), fx.Kill)
    assert [kill.task_id for kill in killed] == [task_id]


def test_kill_waits_no_longer_for_earlier_kills_by_a_clock_set_back() -> None:
    world = made()
    for n in range(MAX_KILLS + 1):
        world.submit(f"k{n}", gpus=0, cpus=0.01)
    world.offers(offer("o", "a1", cpus=8))
    for n in range(MAX_KILLS + 1):
        world.status(f"k{n}.1", "TASK_RUNNING")
    world.tick(2.0)
    world.feed(*(ev.KillRequested(JobId(f"k{n}")) for n in range(MAX_KILLS)))
    world.now -= DAY_S
    world.tick(2.0)
    world.feed(ev.KillRequested(JobId(f"k{MAX_KILLS}")))
    told = {kill.task_id for kill in every(world.tick(10.0), fx.Kill)}
    assert f"k{MAX_KILLS}.1" in told


def test_unreachable_task_is_given_up_no_later_for_a_clock_set_back() -> None:
    world = made()
    task_id = TaskId(started(world))
    world.status(task_id, "TASK_UNREACHABLE")
    world.now -= DAY_S
    world.tick(world.settings.mesos.unreachable_timeout_s - 5)
    assert world.state.work.tasks[task_id].state is TaskState.UNREACHABLE, "nor sooner"
    world.tick(10)
    assert world.state.work.tasks[task_id].state is TaskState.ABANDONED
    assert world.job("j1").state is JobState.PENDING


def test_unreachable_task_is_not_given_up_for_a_time_without_news() -> None:
    world = made()
    task_id = TaskId(started(world))
    world.status(task_id, "TASK_UNREACHABLE")
    world.tick(30)
    world.now += HOUR_S
    world.tick(world.settings.mesos.unreachable_timeout_s - 35)
    assert world.state.work.tasks[task_id].state is TaskState.UNREACHABLE
    world.tick(10)
    assert world.state.work.tasks[task_id].state is TaskState.ABANDONED


def test_unreachable_task_is_not_given_up_for_a_time_without_a_scheduler() -> None:
    world = made()
    task_id = TaskId(started(world))
    world.status(task_id, "TASK_UNREACHABLE")
    world.tick(30)
    world.now += HOUR_S
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    world.tick(world.settings.mesos.unreachable_timeout_s - 35)
    assert world.state.work.tasks[task_id].state is TaskState.UNREACHABLE
    world.tick(40)
    assert world.state.work.tasks[task_id].state is TaskState.ABANDONED


def test_abandoned_task_stays_so_over_a_time_without_news() -> None:
    world = made()
    task_id = TaskId(started(world))
    world.status(task_id, "TASK_UNREACHABLE")
    world.tick(world.settings.mesos.unreachable_timeout_s + 5)
    before = world.state.work.tasks[task_id]
    assert before.state is TaskState.ABANDONED
    world.now += HOUR_S
    world.tick(1)
    after = world.state.work.tasks[task_id]
    assert (after.state, after.unreachable_since) == (before.state, before.unreachable_since)


def test_failed_job_waits_its_back_off_despite_a_clock_set_back() -> None:
    world = made()
    task_id = started(world, max_attempts=3)
    world.status(task_id, "TASK_FAILED")
    left_s = world.job("j1").not_before - world.now
    assert left_s > 0
    world.tick(1.0)
    world.now -= DAY_S
    world.tick(1.0)
    job = world.job("j1")
    assert 0 <= job.not_before - world.now <= left_s
    assert job.submitted_at <= world.now
    assert world.state.work.tasks[TaskId(task_id)].ended_at == world.now, (
        "it waits since then for who is first in line"
    )


def test_offers_are_asked_for_and_matched_with_jobs_at_once() -> None:
    world = made()
    started(world)
    world.now -= DAY_S
    world.tick(1.0)
    world.report("a1", gpu("g0"), gpu("g1"))
    assert world.state.cluster.nodes[AgentId("a1")].reported_at == world.now
    world.submit("j2", gpus=1)
    world.offers(offer("late", "a1", gpus=1))
    assert world.job("j2").state is JobState.STARTING


def test_scheduler_started_after_a_clock_set_back_moves_saved_times() -> None:
    world = made()
    task_id = TaskId(started(world))
    world.status(task_id, "TASK_UNREACHABLE")
    world.state = State.restored(world.now - DAY_S, saved_of(world.state))
    assert latest(world.state) == world.now
    world.now -= DAY_S
    world.register()
    world.tick(world.settings.mesos.unreachable_timeout_s + 5)
    assert world.state.work.tasks[task_id].state is TaskState.ABANDONED


def test_drain_deadline_comes_no_later_for_a_clock_set_back() -> None:
    world = made()
    task_id = started(world)
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "fan", "ann", 60.0))
    world.tick(1.0)
    world.now -= DAY_S
    world.tick(1.0)
    (drain,) = world.state.cluster.drains.values()
    assert drain.since <= world.now < (drain.deadline_at or 0.0) <= world.now + 60.0
    assert [kill.task_id for kill in every(world.tick(62.0), fx.Kill)] == [task_id]


def test_card_reset_is_repeated_no_later_for_a_clock_set_back() -> None:
    world = made()
    asked = Card(GpuId("g0"), reset=Reset("r1", "stuck", "ann", world.now, world.now))
    world.state.gpus.set_card(asked)
    world.tick(1.0)
    world.now -= DAY_S
    world.feed(ev.Tick())
    reset = world.state.gpus.cards[GpuId("g0")].reset
    assert reset is not None
    assert reset.sent_at == reset.since == world.now


def test_token_lives_its_time_despite_a_clock_set_back() -> None:
    world = made()
    before = Token("t1", "ann", "", "", world.now - 1, world.now + HOUR_S, used_at=world.now)
    world.state.put(before)
    world.tick(1.0)
    world.now += DAY_S  # the clock is wrong
    ahead = Token("t2", "ann", "", "", world.now, world.now + HOUR_S)
    world.state.put(ahead)
    world.tick(1.0)
    world.now -= DAY_S
    effects = world.feed(ev.Tick())
    kept = world.state.rights.tokens
    assert kept["t1"] == before, "whoever has it shall not lose it"
    assert (kept["t2"].created_at, kept["t2"].expires_at) == (world.now, world.now + HOUR_S)
    assert [effect.token for effect in every(effects, SaveToken)] == [kept["t2"]]


def test_clock_set_back_saves_the_moved_times_and_a_small_step_none() -> None:
    world = made()
    task_id = TaskId(started(world))
    before = dict(world.state.work.tasks)
    world.now -= MIN_S
    world.feed(ev.Tick())
    assert world.state.work.tasks == before
    world.now -= DAY_S
    effects = world.feed(ev.Tick())
    saved = {effect.task.id: effect.task for effect in effects if hasattr(effect, "task")}
    assert saved[task_id] == world.state.work.tasks[task_id] != before[task_id]
    assert world.state.work.tasks[task_id].launched_at == world.now


def test_deployment_goes_on_at_once_after_a_clock_set_back() -> None:
    world = made()
    app = App("/web", cmd="serve", instances=0, cpus=0.1, mem_mib=32, port_definitions=())
    world.feed(ev.AppsChanged("d1", Group("/", (app,))))
    assert set(world.state.apps.deployments) == {"d1"}
    world.now -= HOUR_S
    for _ in range(5):
        world.tick(1.0)
    assert not world.state.apps.deployments
