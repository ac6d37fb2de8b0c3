"""Sick cards, drains and resets in the engine: placement, ended jobs and events."""

import json
from dataclasses import replace

import pytest

from mesos_gpu.api.metrics.families import metrics, snapshot
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.nodes import gpu_statuses
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import JobState, OnGpuFailure
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Gpu, Health, Transition
from mesos_gpu.model.saves import SaveCard, SaveDrain, SaveTask
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.mesos.v1 import reset_message
from tests.doubles.builders import World, every, gpu, offer, only, saved_of

G0, G1 = GpuId("g0"), GpuId("g1")


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def running(world: World, name: str = "j1", **fields: object) -> str:
    """A job that runs on `a1`; its task id."""
    world.submit(name, **fields)
    task_id = world.job(name).task_id
    assert task_id is not None, world.job(name).message
    world.status(task_id, "TASK_RUNNING")
    return task_id


def sick(name: str, health: Health = Health.SICK, reason: str = "XID 79") -> Gpu:
    return replace(gpu(name, health=health), reason=reason)


def drain(target: Target, name: str, deadline_s: float | None = None) -> ev.DrainRequested:
    return ev.DrainRequested(target, name, "new fan", "ann", deadline_s)


def story(world: World, gpu_id: GpuId = G0) -> list[str]:
    return [f"{c.old.value}>{c.new.value} {c.reason}" for c in world.state.gpus.cards[gpu_id].changes]


def restart(world: World) -> None:
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()


def view(world: World) -> View:
    return View(world.state, world.settings, world.now)


# ---- a card breaks under a job


@pytest.mark.parametrize("health", [Health.SICK, Health.LOST])
def test_job_on_a_broken_card_starts_elsewhere_and_uses_no_attempt(world: World, health: Health) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    task = running(world, gpus=1, kill_grace_s=7.0)
    effects = world.report("a1", sick("g0", health), gpu("g1"))
    assert only(effects, fx.Kill) == fx.Kill(task, AgentId("a1"), 7.0)  # type: ignore[arg-type]
    kinds = [type(effect) for effect in effects]
    assert kinds.index(SaveTask) < kinds.index(fx.Kill), "a restart must know why it ends"
    assert world.job().message.startswith(f"g0 on a1.example is {health.value}: XID 79; it is ended here")
    version = world.job().version
    assert every(world.report("a1", sick("g0", health), gpu("g1")), fx.Kill) == [], "once"
    assert world.job().version == version
    assert len(every(world.tick(world.settings.tasks.kill_resend_s + 1), fx.Kill)) == 1, (
        "repeated like other kills"
    )
    world.status(task, "TASK_KILLING", message="killed on request")
    assert world.job().message == f"g0 on a1.example is {health.value}: XID 79"
    world.status(task, "TASK_KILLED", outcome=Outcome())
    job = world.job()
    assert (job.state, job.attempts, job.infrastructure_failures) == (JobState.PENDING, 0, 1)
    assert "XID 79" in job.message
    assert "XID 79" in world.state.work.tasks_of(JobId("j1"))[0].message
    world.report("a1", sick("g0", health), gpu("g1"))
    world.offers(offer("o9", gpus=2))
    world.tick(1)
    assert world.state.work.tasks_of(JobId("j1"))[1].gpus == (G1,)
    assert any("job j1 is ended here" in line for line in story(world))


def test_end_of_a_broken_job_survives_a_restart(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.report("a1", sick("g0"))
    restart(world)
    assert only(world.tick(world.settings.tasks.kill_resend_s + 1), fx.Kill).task_id == task
    world.status(task, "TASK_KILLED")
    assert (world.job().state, world.job().attempts) == (JobState.PENDING, 0)


def test_job_that_fails_while_ended_for_a_sick_card_uses_no_attempt(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.report("a1", sick("g0"))
    world.report("a1", gpu("g0"))
    world.status(task, "TASK_FAILED", outcome=Outcome(exit_status=1))
    assert (world.job().state, world.job().attempts) == (JobState.PENDING, 0)


def test_user_kill_still_ends_a_job_on_a_sick_card_for_good(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1)
    world.report("a1", sick("g0"))
    world.feed(ev.KillRequested(JobId("j1")))
    world.status(task, "TASK_KILLED")
    assert world.job().state is JobState.KILLED


def test_notify_policy_reports_a_sick_card_once(world: World) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    running(world, gpus=2, on_gpu_failure=OnGpuFailure.NOTIFY)
    version = world.job().version
    effects = world.report("a1", sick("g0"), gpu("g1"))
    assert every(effects, fx.Kill) == []
    assert only(effects, fx.Publish).version == version + 1
    assert world.job().message == "g0 on a1.example is sick: XID 79"
    world.report("a1", sick("g0"), gpu("g1"))
    assert world.job().version == version + 1
    world.report("a1", sick("g0"), sick("g1", Health.LOST))
    assert world.job().message == "g1 on a1.example is lost: XID 79"
    assert world.job().state is JobState.RUNNING


def test_ignore_policy_leaves_a_job_on_a_sick_card(world: World) -> None:
    world.node("a1", gpu("g0"))
    running(world, gpus=1, on_gpu_failure=OnGpuFailure.IGNORE)
    before = world.job()
    assert every(world.report("a1", sick("g0")), fx.Kill) == []
    assert world.job() == before


@pytest.mark.parametrize("health", [Health.UNKNOWN, Health.SUSPECT, Health.DIRTY, Health.DRAINED])
def test_card_of_another_health_takes_no_job_and_keeps_its_running_one(world: World, health: Health) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    running(world, gpus=1)
    before = world.job()
    assert every(world.report("a1", sick("g0", health), sick("g1", health)), fx.Kill) == []
    assert world.job() == before
    world.submit("j2", gpus=1)
    world.offers(offer("o9", gpus=1))
    assert world.job("j2").state is JobState.PENDING


# ---- drains


def test_drained_card_is_out_at_once_and_its_job_runs_on(world: World) -> None:
    world.node("a1", gpu("g0"), gpu("g1"))
    running(world, gpus=1)
    assert only(world.feed(drain(Target.GPU, "g1")), SaveDrain).drain.reason == "new fan"
    world.feed(drain(Target.GPU, "g0"))
    world.submit("j2", gpus=1)
    world.offers(offer("o9", gpus=1))
    world.tick(20)
    assert world.job("j2").state is JobState.PENDING
    assert world.job("j1").state is JobState.RUNNING
    why = explain_job(view(world), JobId("j2"))
    assert "g1 is drained since 00:16Z (drained by ann: new fan)" in why.summary
    world.report("a1", gpu("g0"), gpu("g1"))
    world.feed(ev.UndrainRequested(Target.GPU, "g1", "bob"))
    world.offers(offer("o10", gpus=1))
    assert world.state.work.tasks_of(JobId("j2"))[0].gpus == (G1,)
    assert story(world, G1) == ["ok>drained drained by ann: new fan", "drained>ok undrained by bob"]


def test_drained_node_gets_nothing_but_its_monitor(world: World) -> None:
    world.node("a1", gpu("g0"))
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    world.feed(drain(Target.NODE, "a1.example"))
    world.submit("cpu")
    world.tick(3)
    assert world.job("cpu").state is JobState.PENDING
    assert explain_job(view(world), JobId("cpu")).nodes[0].reasons == ("is drained by ann: new fan",)
    world.status(str(monitor), "TASK_FAILED")
    effects = world.tick(40) + world.offers(offer("o9", gpus=1))
    assert [task.spec for task in only(effects, fx.Launch).tasks] == [None]
    world.feed(ev.UndrainRequested(Target.NODE, "a1.example"))
    world.offers(offer("o10", gpus=1))
    assert world.job("cpu").state is JobState.STARTING


@pytest.mark.parametrize(("target", "name"), [(Target.GPU, "g0"), (Target.NODE, "a1.example")])
def test_drain_deadline_moves_the_jobs_of_a_card(world: World, target: Target, name: str) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, gpus=1, on_gpu_failure=OnGpuFailure.IGNORE)
    world.feed(drain(target, name, 30.0))
    assert every(world.tick(29), fx.Kill) == []
    restart(world)
    assert only(world.tick(2), fx.Kill).task_id == task
    assert "was drained by ann: new fan" in world.job().message
    world.status(task, "TASK_KILLED")
    assert (world.job().state, world.job().attempts) == (JobState.PENDING, 0)
    world.tick(5)
    assert world.job().state is JobState.PENDING
    assert any("job j1 is ended here" in line for line in story(world))


def test_drain_deadline_of_a_node_ends_jobs_without_gpus_too(world: World) -> None:
    world.node("a1", gpu("g0"))
    task = running(world, "cpu")
    world.offers(offer("o9", gpus=1))
    other = running(world, "j1", gpus=1)
    effects = world.feed(drain(Target.NODE, "a1.example", 0.0)) + world.tick(1)
    assert {kill.task_id for kill in every(effects, fx.Kill)} == {task, other}
    assert world.state.cluster.nodes[AgentId("a1")].monitor not in {
        kill.task_id for kill in every(effects, fx.Kill)
    }


def test_drain_asked_for_again_takes_the_new_reason_and_deadline(world: World) -> None:
    world.node("a1", gpu("g0"))
    running(world, gpus=1)
    world.feed(drain(Target.GPU, "g0", 5.0))
    world.tick(3)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "later", "bob", None))
    assert every(world.tick(20), fx.Kill) == []
    drained = world.state.cluster.drain_of("a1.example", G0)
    assert drained is not None
    assert (drained.reason, drained.since, drained.deadline_at) == ("later", 1000.0, None)
    assert world.state.gpus.cards[G0].totals == {"drained": 1}


def test_drain_is_kept_while_its_agent_is_away_and_for_its_next_id(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.feed(drain(Target.NODE, "a1.example"))
    world.feed(ev.AgentLost(AgentId("a1")))
    world.status(str(world.state.cluster.nodes[AgentId("a1")].monitor), "TASK_GONE")
    world.now += world.settings.memory.keep_lost_nodes_s
    world.tick(60)
    assert world.state.cluster.nodes == {}
    restart(world)
    again = replace(offer("o5", "a1-new", gpus=1), hostname="a1.example")
    monitor = only(world.offers(again), fx.Launch).tasks[0].task
    world.report("a1-new", gpu("g0"), task=monitor.id)
    world.offers(replace(offer("o6", "a1-new", gpus=1), hostname="a1.example"))
    world.submit(gpus=1)
    assert world.job().state is JobState.PENDING
    assert gpu_statuses(view(world))[0].health is Health.DRAINED
    world.feed(ev.UndrainRequested(Target.NODE, "a1.example"))
    assert world.job().state is JobState.STARTING


def test_drain_of_an_unknown_target_is_refused(world: World) -> None:
    world.node("a1", gpu("g0"))
    for target, name in ((Target.GPU, "g9"), (Target.NODE, "nowhere")):
        with pytest.raises(NotFound, match=f"there is no .* {name}"):
            world.feed(drain(target, name))
        with pytest.raises(NotFound, match="is not drained"):
            world.feed(ev.UndrainRequested(target, name))
    world.feed(drain(Target.NODE, "a1.example"))
    with pytest.raises(Conflict, match="drained with its node a1"):
        world.feed(ev.UndrainRequested(Target.GPU, "g0"))
    assert len(world.state.cluster.drains) == 1


def test_card_under_two_drains_comes_back_with_the_second(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.feed(drain(Target.NODE, "a1.example"))
    world.feed(drain(Target.GPU, "g0"))
    world.feed(ev.UndrainRequested(Target.GPU, "g0"))
    assert gpu_statuses(view(world))[0].health is Health.DRAINED
    world.feed(ev.UndrainRequested(Target.NODE, "a1.example"))
    assert gpu_statuses(view(world))[0].health is Health.OK
    assert [line.split()[0] for line in story(world)] == [
        "ok>drained", "drained>drained", "drained>drained", "drained>ok",
    ]  # fmt: skip


def test_card_whose_node_is_silent_is_shown_as_unknown(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.tick(world.settings.programs.report_stale_s + 1)
    (card,) = gpu_statuses(view(world))
    assert (card.health, card.gpu.health, card.since) == (Health.UNKNOWN, Health.OK, 1000.0)
    assert card.reason == "its node monitor has been silent for 31 s"
    world.feed(drain(Target.GPU, "g0"))
    assert gpu_statuses(view(world))[0].health is Health.DRAINED


# ---- history


def test_flap_of_a_card_is_reported_and_counted_once(world: World) -> None:
    """Out, rechecked, back; each report repeats what was, and both sides restart."""
    world.node("a1", gpu("g0"))
    flap = (
        Transition(1001.0, Health.OK, Health.SICK, "XID 79"),
        Transition(1011.0, Health.SICK, Health.SUSPECT, "recheck 1 of 2"),
        Transition(1021.0, Health.SUSPECT, Health.OK, "recheck 2 of 2"),
    )
    for count in (1, 1, 2, 3, 3):
        now = flap[count - 1]
        world.report("a1", replace(gpu("g0", health=now.new), reason=now.reason, history=flap[:count]))
        restart(world)
    world.report("a1", replace(gpu("g0"), history=flap))
    assert world.state.gpus.cards[G0].changes == flap
    shown = {
        (metric.name, labels.get("to")): value
        for metric in metrics(snapshot(view(world)))
        for labels, value in metric.samples
        if "to" in labels
    }
    name = "mesos_gpu_gpu_health_transitions_total"
    assert [shown[name, to] for to in ("sick", "suspect", "ok", "lost")] == [1, 1, 1, 0]
    effects = world.report("a1", replace(gpu("g0"), history=flap))
    assert every(effects, SaveCard) == [], "nothing new, nothing to save"


# ---- resets


def ask_reset(world: World, request: str = "r1") -> list[fx.Effect]:
    return world.feed(ev.ResetRequested(G0, request, "stuck", "ann"))


def test_reset_is_asked_for_until_the_node_names_it(world: World) -> None:
    world.node("a1", gpu("g0"))
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    asked = only(ask_reset(world), fx.AskReset)
    assert asked == fx.AskReset(AgentId("a1"), str(monitor), G0, "r1")
    assert json.loads(reset_message(asked.gpu_id, asked.request)) == {"reset": "g0", "request": "r1"}
    again = every(world.tick(7), fx.AskReset)
    assert {a.request for a in again} == {"r1"}
    assert len(again) == 2
    with pytest.raises(Conflict, match="is in reset r1 for 7 s already"):
        ask_reset(world, "r2")
    restart(world)
    assert len(every(world.tick(4), fx.AskReset)) == 1
    done = Transition(1009.0, Health.SICK, Health.OK, "reset (request r1)")
    world.report("a1", replace(gpu("g0"), history=(done,)))
    assert every(world.tick(70), fx.AskReset) == []
    assert story(world) == ["ok>ok reset r1 asked for by ann: stuck", "sick>ok reset (request r1)"]


def test_card_in_a_reset_takes_no_job(world: World) -> None:
    world.node("a1", gpu("g0"))
    ask_reset(world)
    world.submit(gpus=1)
    assert world.job().state is JobState.PENDING
    assert "in a reset: stuck" in explain_job(view(world), JobId("j1")).summary
    world.report("a1", replace(gpu("g0"), reason="reset r1 is not supported"))
    assert world.job().state is JobState.STARTING


def test_reset_reports_a_node_that_does_not_answer(world: World) -> None:
    world.node("a1", gpu("g0"))
    ask_reset(world)
    world.tick(61)
    assert world.state.gpus.cards[G0].reset is None
    assert story(world)[-1] == "ok>ok reset r1: the node did not answer within 60 s"


def test_held_card_is_not_reset(world: World) -> None:
    world.node("a1", gpu("g0"))
    running(world, gpus=1)
    with pytest.raises(Conflict, match="g0 is held by j1"):
        ask_reset(world)
    with pytest.raises(NotFound):
        world.feed(ev.ResetRequested(GpuId("g9"), "r", "x"))
    assert world.state.gpus.resets == {}
    world.status("j1.1", "TASK_FINISHED")
    world.status(str(world.state.cluster.nodes[AgentId("a1")].monitor), "TASK_LOST")
    with pytest.raises(Conflict, match="no monitor runs on a1"):
        ask_reset(world)


# ---- a restart before discovery has finished: more is held than is reported


@pytest.mark.parametrize("reported", [(), ("g1",), ("g1", "g2")])
def test_held_cards_that_a_report_lacks_are_neither_lost_nor_given_twice(
    world: World, reported: tuple[str, ...]
) -> None:
    world.node("a1", gpu("g0"), gpu("g1"), gpu("g2"))
    running(world, gpus=2)
    restart(world)
    effects = world.report("a1", *(gpu(name) for name in reported))
    world.status("j1.1", "TASK_RUNNING")
    world.submit("j2", gpus=1)
    world.submit("j3", gpus=1)
    effects += world.offers(offer("o9", gpus=3))
    assert every(effects, fx.Kill) == []
    given = [t.gpus for t in world.state.work.tasks.values() if t.job_id in ("j2", "j3")]
    assert given == ([(GpuId("g2"),)] if "g2" in reported else [])
    assert world.job().state is JobState.RUNNING
    assert {status.gpu.id for status in gpu_statuses(view(world))} == {"g0", "g1", *reported}
    assert list(metrics(snapshot(view(world))))
    world.report("a1", gpu("g0"), gpu("g1"), gpu("g2"))
    world.status("j1.1", "TASK_FINISHED", outcome=Outcome(exit_status=0))
    world.offers(offer("o10", gpus=3))
    assert all(world.job(name).state is JobState.STARTING for name in ("j2", "j3"))


def test_agent_with_a_new_id_leaves_each_card_once(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.feed(ev.AgentLost(AgentId("a1")))
    world.node("a2", gpu("g0"))
    (card,) = gpu_statuses(view(world))
    assert card.node.id == "a2"
    text = [
        labels
        for metric in metrics(snapshot(view(world)))
        for labels, _ in metric.samples
        if "state" in labels
    ]
    assert [labels["state"] for labels in text if labels.get("uuid") == "g0"] == ["ok"]
