"""The engine by example: events in, effects out, no clock but the test's."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.preemption.candidates import ending
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.saves import ForgetJob, SaveFramework, SaveJob, SaveTask
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState
from tests.doubles.builders import World, every, gpu, offer, only, saved_of, spec


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def running(world: World, name: str = "j1", **fields: object) -> str:
    """A job that runs; its task id."""
    world.submit(name, **fields)
    task_id = world.job(name).task_id
    assert task_id is not None, world.job(name).message
    agent = world.state.work.tasks[task_id].agent_id
    world.status(task_id, "TASK_RUNNING", agent=agent)
    return task_id


def test_registration_saves_the_framework_id_and_asks_what_mesos_knows() -> None:
    effects = World().register()
    assert effects[0] == SaveFramework("fw-1")
    assert only(effects, fx.Reconcile).tasks == ()


def test_node_monitor_is_launched_on_an_agent_with_gpus_only(world: World) -> None:
    effects = world.offers(offer("o1", "gpus", gpus=2), offer("o2", "plain"))
    launch = only(effects, fx.Launch)
    assert launch.offer_ids == (OfferId("o1"),)
    assert launch.tasks[0].spec is None


def test_gpu_job_waits_for_the_first_report(world: World) -> None:
    world.submit(gpus=1)
    world.offers(offer("o1", gpus=2))
    world.offers(offer("o2", gpus=2, cpus=7))
    assert world.job().state is JobState.PENDING
    world.report("a1", gpu("g0"), gpu("g1"))
    assert world.job().state is JobState.STARTING


def test_launch_is_saved_before_it_leaves(world: World) -> None:
    world.node("a1", gpu("g0"))
    effects = world.feed(ev.JobSubmitted(JobId("j1"), spec(gpus=1)))
    kinds = [type(effect) for effect in effects]
    assert kinds.index(SaveTask) < kinds.index(fx.Launch)
    launched = only(effects, fx.Launch).tasks[0]
    assert launched.task.gpus == (GpuId("g0"),)
    assert {r.name: r.amount for r in launched.resources} == {"cpus": 0.97, "mem": 128.0, "gpus": 1.0}


def test_update_is_saved_before_it_is_acknowledged(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    effects = world.status("j1.1", "TASK_RUNNING")
    kinds = [type(effect) for effect in effects]
    assert kinds.index(SaveTask) < kinds.index(fx.Acknowledge)
    assert kinds.index(SaveJob) < kinds.index(fx.Acknowledge)


def test_update_without_uuid_is_not_acknowledged(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    assert every(world.status("j1.1", "TASK_RUNNING", uuid=None), fx.Acknowledge) == []


def test_gpu_is_given_once_and_again_when_freed(world: World) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    for name in ("j1", "j2", "j3"):
        world.submit(name, gpus=1)
    world.offers(offer("o9", gpus=2, cpus=4))
    assert world.job("j3").state is JobState.PENDING
    held = {gpu_id for t in world.state.work.tasks.values() if not t.ended for gpu_id in t.gpus}
    assert held == {GpuId("g0"), GpuId("g1")}
    world.status("j1.1", "TASK_FINISHED", outcome=Outcome(exit_status=0))
    world.offers(offer("o10", gpus=1, cpus=4))
    assert world.job("j3").state is JobState.STARTING
    assert world.job("j1").state is JobState.FINISHED
    assert world.job("j1").exit_code == 0


def test_mesos_count_of_gpus_bounds_what_is_given(world: World) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    world.feed(ev.OfferRescinded(OfferId("a1-p1")))
    world.submit(gpus=2)
    world.offers(offer("o9", gpus=1))
    assert world.job().state is JobState.PENDING


@pytest.mark.parametrize("health", [Health.SICK, Health.UNKNOWN])
def test_gpus_are_given_only_when_healthy(world: World, health: Health) -> None:
    world.node("a1", gpu("g0", health=health), gpu("g1"))
    running(world, gpus=1)
    assert world.state.work.tasks[world.job().task_id or ""].gpus == (GpuId("g1"),)  # type: ignore[index]
    world.submit("j2", gpus=1)
    world.offers(offer("o9", gpus=1))
    assert world.job("j2").state is JobState.PENDING
    world.report("a1", gpu("g0"), gpu("g1"))
    assert world.job("j2").state is JobState.STARTING


def test_stale_report_is_no_knowledge(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.tick(world.settings.programs.report_stale_s + 1)
    world.submit(gpus=1)
    world.offers(offer("o9", gpus=1))
    assert world.job().state is JobState.PENDING
    world.report("a1", gpu("g0"))
    assert world.job().state is JobState.STARTING


def test_models_are_ordered_fallbacks(world: World) -> None:
    world.node("a1", gpu("g0", "T4"), gpu("g1", "T4"))
    world.node("a2", gpu("g2", "V100"))
    running(world, "j1", gpus=1, gpu_model=("A100", "V100", "T4"))
    running(world, "j2", gpus=1, gpu_model=("A100", "V100", "T4"))
    given = [world.state.work.tasks_of(JobId(name))[0].gpus[0] for name in ("j1", "j2")]
    assert given == ["g2", "g0"]


def test_bundle_placement_keeps_whole_nodes_free(world: World) -> None:
    world.node("a1", *(gpu(f"g{i}") for i in range(4)))
    world.node("a2", *(gpu(f"g{i}") for i in range(4, 8)))
    for name in ("j1", "j2", "j3"):
        running(world, name, gpus=1)
        agent = world.state.work.tasks_of(JobId(name))[0].agent_id
        left = 3 - len([t for t in world.state.work.tasks.values() if t.gpus and not t.ended])
        world.offers(offer(f"again-{name}", agent, gpus=left + 1, cpus=4))
    assert len({world.state.work.tasks_of(JobId(n))[0].agent_id for n in ("j1", "j2", "j3")}) == 1
    world.submit("whole", gpus=4)
    assert world.job("whole").state is JobState.STARTING


def test_task_failure_uses_an_attempt_and_backs_off(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1, max_attempts=2)
    world.status(task, "TASK_FAILED", outcome=Outcome(exit_status=3), message="Command exited with status 3")
    assert (world.job().state, world.job().attempts) == (JobState.PENDING, 1)
    world.offers(offer("o9", gpus=1))
    assert world.job().state is JobState.PENDING, "the back-off has not passed"
    world.tick(world.settings.tasks.retry_first_s + 0.1)
    assert world.job().state is JobState.STARTING
    world.status("j1.2", "TASK_FAILED", outcome=Outcome(signal=9), message="killed by signal 9")
    assert (world.job().state, world.job().attempts, world.job().exit_code) == (JobState.FAILED, 2, 137)


@pytest.mark.parametrize(
    ("state", "reason", "outcome"),
    [
        ("TASK_LOST", "", None),
        ("TASK_DROPPED", "REASON_INVALID_OFFERS", None),
        ("TASK_GONE", "", None),
        ("TASK_FAILED", "REASON_EXECUTOR_TERMINATED", None),
        ("TASK_FAILED", "REASON_EXECUTOR_REREGISTRATION_TIMEOUT", None),
        ("TASK_FAILED", "", Outcome(infrastructure=True)),
        ("TASK_KILLED", "", None),
    ],
)
def test_infrastructure_failures_use_no_attempt(
    world: World, state: str, reason: str, outcome: Outcome | None
) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.status(task, state, reason=reason, outcome=outcome)
    job = world.job()
    assert (job.state, job.attempts, job.infrastructure_failures) == (JobState.PENDING, 0, 1)
    assert world.state.gpus.holders == {}
    world.offers(offer("o9", gpus=1))
    world.tick(2)
    assert world.job().task_id == "j1.2", "a task id is never used twice"


def test_task_failure_on_a_sick_gpu_uses_no_attempt(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.report("a1", gpu("g0", health=Health.SICK))
    world.status(task, "TASK_FAILED", outcome=Outcome(exit_status=1))
    assert (world.job().state, world.job().attempts) == (JobState.PENDING, 0)


def test_infrastructure_failures_of_a_job_are_limited(world: World) -> None:
    world.settings = Settings.of("e", "m", max_infrastructure_failures=2, requeue_most_s=0.1)
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    for number in (1, 2, 3):
        assert world.job().task_id == f"j1.{number}"
        world.status(f"j1.{number}", "TASK_DROPPED", message="no luck")
        world.offers(offer(f"again{number}", gpus=1))
        world.tick(1)
    assert world.job().state is JobState.FAILED
    assert "gave up after 3 launches" in world.job().message


def test_task_that_the_master_refuses_is_not_tried_again(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1, max_attempts=5)
    world.status("j1.1", "TASK_ERROR", reason="REASON_TASK_INVALID", message="Task uses invalid resources")
    assert world.job().state is JobState.FAILED
    assert world.job().message == "Task uses invalid resources"


def test_gpu_whose_claim_was_refused_is_left_alone_for_a_while(world: World) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    world.submit(gpus=1)
    assert world.state.work.tasks_of(JobId("j1"))[0].gpus == ("g0",)
    refused = Outcome(infrastructure=True, refused_gpus=(GpuId("g0"),))
    world.status("j1.1", "TASK_FAILED", outcome=refused, message="g0 is claimed by x")
    world.offers(offer("o9", gpus=2))
    world.tick(1)
    assert world.state.work.tasks_of(JobId("j1"))[1].gpus == ("g1",)


def test_kill_of_a_waiting_job_needs_no_mesos(world: World) -> None:
    world.submit(gpus=1)
    effects = world.feed(ev.KillRequested(JobId("j1")))
    assert world.job().state is JobState.KILLED
    assert every(effects, fx.Kill) == []


def test_kill_is_repeated_until_the_end(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1, kill_grace_s=7.0)
    effects = world.feed(ev.KillRequested(JobId("j1")))
    assert only(effects, fx.Kill) == fx.Kill(world.job().task_id, AgentId("a1"), 7.0)  # type: ignore[arg-type]
    assert every(world.feed(ev.KillRequested(JobId("j1"))), fx.Kill) == []
    assert len(every(world.tick(world.settings.tasks.kill_resend_s + 1), fx.Kill)) == 1
    world.status(task, "TASK_KILLING")
    assert world.job().state is JobState.KILLING
    world.status(task, "TASK_KILLED", outcome=Outcome(signal=15))
    assert (world.job().state, world.job().exit_code) == (JobState.KILLED, 143)


def test_killed_job_is_not_requeued_by_a_lost_agent(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1, max_attempts=3)
    world.feed(ev.KillRequested(JobId("j1")))
    world.status(task, "TASK_LOST")
    assert world.job().state is JobState.KILLED


def test_unreachable_task_waits_then_moves_and_its_old_copy_is_killed(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.node("a2", gpu("g1"))
    task = running(world, gpus=1)
    assert task == "j1.1"
    agent = world.state.work.tasks_of(JobId("j1"))[0].agent_id
    other = {"a1": "a2", "a2": "a1"}[agent]
    world.status(task, "TASK_UNREACHABLE", agent=agent)
    world.feed(ev.AgentLost(agent))
    assert world.job().state is JobState.UNREACHABLE
    for _ in range(7):
        world.tick(world.settings.mesos.unreachable_timeout_s / 7 + 1)
        world.report(other, gpu("g1" if other == "a2" else "g0"))
        world.offers(offer(f"o{world.now}", other, gpus=1))
    assert world.job().task_id == "j1.2"
    old = world.state.work.tasks_of(JobId("j1"))[0]
    assert old.state is TaskState.ABANDONED
    assert set(old.gpus) <= set(world.state.gpus.holders), "its GPU is not given away while it may still run"
    effects = world.status("j1.1", "TASK_RUNNING", agent=agent)
    assert only(effects, fx.Kill).task_id == "j1.1"
    assert not ending(world.state), "only the old copy ends"
    world.status("j1.1", "TASK_KILLED", agent=agent)
    assert not set(old.gpus) & set(world.state.gpus.holders)
    assert world.job().state is JobState.STARTING, "the new copy goes on"


def test_killed_job_on_a_cut_off_agent_ends_and_its_copy_is_killed_later(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.feed(ev.KillRequested(JobId("j1")))
    world.status(task, "TASK_UNREACHABLE")
    world.tick(world.settings.mesos.unreachable_timeout_s + 2)
    assert world.job().state is JobState.KILLED
    assert "unreachable" in world.job().message
    assert list(world.state.gpus.holders) == ["g0"], "it may still run there"
    assert only(world.status(task, "TASK_RUNNING"), fx.Kill).task_id == task
    world.status(task, "TASK_KILLED")
    assert world.state.gpus.holders == {}


def test_unreachable_task_that_is_back_goes_on(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.status(task, "TASK_UNREACHABLE")
    world.status(task, "TASK_RUNNING")
    assert world.job().state is JobState.RUNNING
    assert world.job().launches == 1


def test_task_state_of_a_later_mesos_is_acknowledged_and_changes_nothing(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    effects = world.status(task, "TASK_HIBERNATING")
    assert [type(effect) for effect in effects] == [fx.Acknowledge]
    assert world.job().state is JobState.RUNNING


def test_repeated_and_reordered_updates_change_nothing(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    version = world.job().version
    for state in ("TASK_RUNNING", "TASK_STARTING", "TASK_STAGING"):
        effects = world.status(task, state)
        assert every(effects, SaveJob) == []
        assert only(effects, fx.Acknowledge).task_id == task
    assert world.job().version == version
    world.status(task, "TASK_FINISHED", outcome=Outcome(exit_status=0))
    world.status(task, "TASK_RUNNING")
    assert world.job().state is JobState.FINISHED


def test_reconciliation_asks_until_every_task_was_heard_of(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.feed(ev.Disconnected())
    world.now += 5
    asked = only(world.register(), fx.Reconcile).tasks
    assert {t for t, _ in asked} == {task, world.state.cluster.nodes[AgentId("a1")].monitor}
    assert len(every(world.tick(3.5), fx.Reconcile)) >= 1
    world.status(task, "TASK_RUNNING", uuid=None)
    world.report("a1", gpu("g0"))
    last = every(world.tick(40), fx.Reconcile)
    assert last[-1].tasks == (), "then the implicit one"
    assert world.state.mesos.reconciliation is None


def test_scheduler_restart_resumes_from_what_was_saved(world: World) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    running(world, "j1", gpus=1)
    world.submit("j2", gpus=2)
    old = world.state
    again = World(now=world.now + 10)
    again.state = State.restored(again.now, saved_of(old))
    effects = again.register()
    assert every(effects, fx.Launch) == []
    assert again.job("j1").state is JobState.RUNNING
    assert again.state.gpus.holders == old.gpus.holders
    again.offers(offer("o9", gpus=1))
    assert again.job("j2").state is JobState.PENDING
    again.status("j1.1", "TASK_RUNNING", uuid=None)
    assert again.job("j1").launches == 1


def test_launch_that_never_left_is_asked_about_and_requeued(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    asked = every(world.tick(world.settings.tasks.launch_doubt_s + 2), fx.Reconcile)
    assert any(("j1.1", "a1") in r.tasks for r in asked)
    world.status("j1.1", "TASK_GONE", uuid=None, reason="REASON_RECONCILIATION")
    assert world.job().state is JobState.PENDING


def test_idle_offers_are_given_back_and_suppressed_then_revived(world: World) -> None:
    world.node("a1", gpu("g0"))
    effects = world.tick(3)
    assert only(effects, fx.Decline).refuse_s == world.settings.mesos.idle_refuse_s
    assert len(every(effects, fx.Suppress)) == 1
    assert world.state.cluster.offers == {}
    effects = world.feed(ev.JobSubmitted(JobId("j1"), spec()))
    assert len(every(effects, fx.Revive)) == 1


def test_offers_are_held_while_jobs_come_though_each_is_placed_at_once(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.offers(offer("spare", "plain"))
    pause_s = 0.4 * world.settings.mesos.idle_linger_s
    for number in range(6):
        effects = world.feed(ev.JobSubmitted(JobId(f"j{number}"), spec(gpus=0)))
        world.offers(offer(f"again{number}", only(effects, fx.Launch).tasks[0].task.agent_id))
        assert every(world.tick(pause_s), fx.Decline) == []
    assert len(only(world.tick(2 * world.settings.mesos.idle_linger_s), fx.Decline).offer_ids) == 2
    assert world.state.mesos.suppressed


def test_stream_of_jobs_keeps_no_offer_from_others_for_ever(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.offers(offer("spare", "plain"))
    declined = list[OfferId]()
    for number in range(round(world.settings.mesos.offer_hold_s) + 5):
        effects = world.feed(ev.JobSubmitted(JobId(f"j{number}"), spec(gpus=0)))
        for launch in every(effects, fx.Launch):
            task = launch.tasks[0].task
            world.offers(offer(f"again{number}", task.agent_id))
            world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
        given_back = every([*effects, *world.tick(0.9)], fx.Decline)
        assert all(each.refuse_s == world.settings.mesos.offer_refuse_s for each in given_back)
        declined += [offer_id for each in given_back for offer_id in each.offer_ids]
    assert declined
    assert not world.state.mesos.suppressed


def test_suppressed_framework_looks_for_new_agents(world: World) -> None:
    world.tick(3)
    assert world.state.mesos.suppressed
    effects = world.tick(world.settings.mesos.sweep_interval_s + 5)
    assert every(effects, fx.Revive)
    assert every(effects, fx.Suppress)


def test_offer_that_fits_nothing_is_not_kept_for_ever(world: World) -> None:
    world.submit(gpus=1)
    world.offers(offer("o1", "plain"))
    effects = world.tick(world.settings.mesos.offer_hold_s + 2)
    assert only(effects, fx.Decline).refuse_s == world.settings.mesos.offer_refuse_s


def test_rescinded_offer_is_not_used(world: World) -> None:
    world.offers(offer("o1", "plain"))
    world.feed(ev.OfferRescinded(OfferId("o1")))
    world.submit()
    assert world.job().state is JobState.PENDING


def test_monitor_that_dies_comes_back(world: World) -> None:
    world.node("a1", gpu("g0"))
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    assert monitor is not None
    world.status(monitor, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
    assert world.state.cluster.nodes[AgentId("a1")].monitor is None
    world.tick(2)
    effects = world.offers(offer("o9", gpus=1))
    assert world.state.cluster.nodes[AgentId("a1")].monitor not in (None, monitor)
    assert monitor not in world.state.work.tasks
    del effects


def test_monitor_that_ran_for_a_while_comes_back_at_once_however_often_it_did(world: World) -> None:
    world.node("a1", gpu("g0"))
    for number in range(12):
        monitor = world.state.cluster.nodes[AgentId("a1")].monitor
        assert monitor is not None
        world.tick(10)
        world.status(monitor, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
        world.tick(0.5)
        world.offers(offer(f"again{number}", gpus=1))
        assert world.state.cluster.nodes[AgentId("a1")].monitor not in (None, monitor)


def test_monitor_ids_are_never_repeated_though_a_node_was_forgotten(world: World) -> None:
    world.node("a1", gpu("g0"))
    first = world.state.cluster.nodes[AgentId("a1")].monitor
    assert first is not None
    world.status(first, "TASK_LOST")
    world.feed(ev.AgentLost(AgentId("a1")))
    world.now += world.settings.memory.keep_lost_nodes_s
    world.tick(2)
    assert not world.state.cluster.nodes
    world.offers(offer("o9", gpus=1))
    assert world.state.cluster.nodes[AgentId("a1")].monitor not in (None, first)


def test_cpu_work_keeps_off_gpu_nodes(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.offers(offer("o9", "plain", cpus=64))
    task = running(world)
    assert world.state.work.tasks_of(JobId("j1"))[0].agent_id == "plain", task


def test_history_is_bounded(world: World) -> None:
    world.settings = Settings.of("e", "m", keep_ended_jobs=2)
    for name in ("j1", "j2", "j3"):
        world.submit(name, gpus=1)
        world.feed(ev.KillRequested(JobId(name)))
    assert only(world.tick(1), ForgetJob).job_id == "j1"
    assert set(world.state.work.jobs) == {"j2", "j3"}


def test_unreadable_report_makes_the_gpus_unknown(world: World) -> None:
    world.node("a1", gpu("g0"))
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    world.status(str(monitor), "TASK_RUNNING", data=b"{}")
    assert [g.health for g in world.state.cluster.nodes[AgentId("a1")].gpus] == [Health.UNKNOWN]
    world.submit(gpus=1)
    assert world.job().state is JobState.PENDING


def test_job_ran_for_as_long_as_its_host_says(world: World) -> None:
    """The scheduler was away when it began and when it ended."""
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    world.now += 500
    world.feed(ev.StatusArrived(Status(TaskId("j1.1"), "TASK_RUNNING", AgentId("a1"), at=1003.0)))
    world.feed(ev.StatusArrived(Status(TaskId("j1.1"), "TASK_FINISHED", AgentId("a1"), at=1010.0)))
    job, task = world.job(), world.state.work.tasks[TaskId("j1.1")]
    assert (job.started_at, job.ended_at) == (task.started_at, task.ended_at) == (1003.0, 1010.0)


@pytest.mark.parametrize(("at", "shown"), [(5.0, 1000.0), (9e9, 1200.0), (None, 1200.0), (1100.0, 1100.0)])
def test_wrong_clock_of_a_host_makes_no_impossible_times(
    world: World, at: float | None, shown: float
) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    world.now = 1200.0
    world.feed(ev.StatusArrived(Status(TaskId("j1.1"), "TASK_RUNNING", AgentId("a1"), at=at)))
    assert world.job().started_at == shown
    world.feed(ev.StatusArrived(Status(TaskId("j1.1"), "TASK_FAILED", AgentId("a1"), at=1.0)))
    assert world.job().ended_at == shown


def test_job_that_is_killed_while_it_waits_ends_then(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1, max_attempts=3)
    world.feed(ev.StatusArrived(Status(TaskId("j1.1"), "TASK_FAILED", AgentId("a1"), at=1000.0)))
    world.now += 0.5
    world.feed(ev.KillRequested(JobId("j1")))
    assert world.job().ended_at == 1000.5


def test_lost_agent_is_forgotten_once_another_is_in_its_place() -> None:
    world = World()
    world.register()
    world.offers(at("o1", "a1"))
    world.feed(ev.AgentLost(AgentId("a1")))
    (monitor,) = world.state.work.tasks
    world.status(monitor, "TASK_LOST", agent="a1")
    world.tick(1)
    assert [*world.state.cluster.nodes] == ["a1"], "it may come back"
    world.offers(at("o2", "a2"))
    world.tick(1)
    assert [*world.state.cluster.nodes] == ["a2"]


def at(name: str, agent: str) -> Offer:
    return replace(offer(name, agent, gpus=1), hostname="h1", agent_url="http://10.0.0.1:5051")
