"""Seals of status updates, and updates without one in the engine."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.api.metrics.families import metrics, snapshot
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.wire.mesos import report, seal
from mesos_gpu.wire.mesos.v1 import status_from_json
from tests.doubles.builders import World, every, gpu, offer, only

KEY = b"k" * 32
SAID = seal.Said("t1", "TASK_FINISHED", 3, "done", "", None, '{"exit_status":0}')


def arrived(said: seal.Said, sealed: bytes, key: bytes = KEY) -> Status:
    """A sealed update, as the driver's JSON gives it."""
    status = {"task_id": {"value": said.task_id}, "state": said.state, "message": said.message}
    data = base64.b64encode(sealed).decode()
    return status_from_json({**status, "healthy": said.healthy, "reason": said.reason, "data": data}, key)


def test_sealed_update_is_proven_and_its_body_comes_out() -> None:
    update = arrived(SAID, seal.seal(seal.secret_for(KEY, "t1"), SAID))
    assert (update.proof, update.data) == (3, SAID.body.encode())


@pytest.mark.parametrize(
    "changed",
    [
        {"task_id": "t2"}, {"state": "TASK_FAILED"}, {"message": "Done"}, {"reason": "R"}, {"healthy": True},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_seal_is_invalid_for_another_task_or_changed_report(changed: dict[str, Any]) -> None:
    sealed = seal.seal(seal.secret_for(KEY, "t1"), SAID)
    assert arrived(replace(SAID, **changed), sealed).proof is None


@pytest.mark.parametrize(
    "sealed",
    [
        seal.seal("a guess", SAID),
        seal.seal("", SAID),
        b"",
        b'{"exit_status": 0}',
        b'{"seal": 1, "number": 1, "body": ""}',
        b'{"seal": "", "number": true, "body": ""}',
        b'{"seal": "\\ud800", "number": 1, "body": ""}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_seal_without_the_secret_proves_nothing(sealed: bytes) -> None:
    assert arrived(SAID, sealed).proof is None


def test_seal_without_a_key_proves_nothing() -> None:
    assert arrived(SAID, seal.seal(seal.secret_for(KEY, "t1"), SAID), b"").proof is None


def test_secrets_differ_by_task_and_by_key_and_are_found_in_any_data() -> None:
    made = {seal.secret_for(key, task) for key in (KEY, b"other" * 4) for task in ("t1", "t2")}
    assert len(made) == 4
    secrets = [seal.secret_in(data) for data in (b'{"secret": "s", "new": 1}', b"[]", b"", b'{"secret": 1}')]
    assert secrets == ["s", "", "", ""]


# --- the engine


@pytest.fixture
def world() -> World:
    world = World(Settings.of("e", "m", sealed=True))
    world.register()
    up(world, "a1", "g0")
    return world


def say(world: World, task: str, state: str, proof: int | None = None, **more: Any) -> list[fx.Effect]:
    given = {"agent_id": AgentId("a1"), "source": "SOURCE_EXECUTOR", "uuid": "dQ==", **more}
    return world.feed(ev.StatusArrived(Status(TaskId(task), state, proof=proof, **given)))


def up(world: World, agent: str, *gpus: str) -> None:
    """An agent, its monitor's first report, and an offer of all it has."""
    launched = only(world.offers(offer(f"{agent}-o", agent, gpus=len(gpus))), fx.Launch).tasks[0].task
    say_inventory(world, launched.id, 1, agent, *gpus)
    world.offers(offer(f"{agent}-p", agent, gpus=len(gpus)))


def say_inventory(
    world: World, task: str, proof: int | None, agent: str, *gpus: str, health: Health = Health.OK
) -> list[fx.Effect]:
    data = report.encode(Inventory(tuple(gpu(name, health=health) for name in gpus), "simulated"))
    return say(world, task, "TASK_RUNNING", proof, data=data, agent_id=AgentId(agent))


def monitor(world: World, agent: str = "a1") -> str:
    task_id = world.state.cluster.nodes[AgentId(agent)].monitor
    assert task_id is not None
    return task_id


def running(world: World) -> TaskId:
    world.submit("j1", gpus=1)
    task_id = world.job().task_id
    assert task_id is not None
    say(world, task_id, "TASK_RUNNING", 1)
    assert world.state.work.tasks[task_id].state is TaskState.RUNNING
    return task_id


@pytest.mark.parametrize("state", ["TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_RUNNING"])
def test_update_without_a_seal_changes_nothing_and_the_card_stays_held(world: World, state: str) -> None:
    task_id = running(world)
    before = repr(world.state.work.tasks), repr(world.state.work.jobs)
    effects = say(world, task_id, state, message="forged", healthy=False)
    assert (repr(world.state.work.tasks), repr(world.state.work.jobs)) == before
    assert world.state.gpus.holders == {GpuId("g0"): task_id}
    assert "seal" in only(effects, fx.Disbelieve).why
    assert every(effects, fx.Acknowledge), "Mesos would repeat it, and hold back what comes after it"
    counted = {m.name: m.samples for m in metrics(snapshot(View(world.state, world.settings, 0.0)))}
    ((_, number),) = counted["mesos_gpu_disbelieved_updates_total"]
    assert number == 1
    say(world, task_id, "TASK_FINISHED", 2)
    assert world.job().state is JobState.FINISHED


def test_seal_that_was_seen_before_is_not_believed_again(world: World) -> None:
    task_id = running(world)
    say(world, task_id, "TASK_RUNNING", 5, healthy=False)
    assert "number 2" in only(say(world, task_id, "TASK_RUNNING", 2, healthy=True), fx.Disbelieve).why
    assert world.state.work.tasks[task_id].healthy is False
    assert not every(say(world, task_id, "TASK_RUNNING", 5, healthy=False), fx.Disbelieve), (
        "Mesos may repeat it"
    )


def test_mesos_own_words_are_believed_but_not_an_end_that_only_an_executor_knows(world: World) -> None:
    task_id = running(world)
    agent: dict[str, Any] = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_TERMINATED"}
    assert every(say(world, task_id, "TASK_FINISHED", **agent), fx.Disbelieve)
    assert not every(say(world, task_id, "TASK_FAILED", **agent), fx.Disbelieve)
    assert world.state.work.tasks[task_id].state is TaskState.LOST


def test_update_from_another_agent_is_not_believed(world: World) -> None:
    task_id = running(world)
    sent = say(world, task_id, "TASK_FAILED", source="SOURCE_AGENT", agent_id=AgentId("a2"))
    assert "agent a2" in only(sent, fx.Disbelieve).why


@pytest.mark.parametrize("state", ["TASK_FINISHED", "TASK_KILLED", "TASK_FAILED"])
def test_master_echo_of_an_end_waits_for_the_seal(world: World, state: str) -> None:
    task_id = running(world)
    echo: dict[str, Any] = {"source": "SOURCE_MASTER", "reason": "REASON_RECONCILIATION", "uuid": None}
    say(world, task_id, state, **echo)
    assert world.job().state is JobState.RUNNING


def test_executor_whose_task_mesos_has_forgotten_is_shut_down(world: World) -> None:
    task_id = running(world)
    gone: dict[str, Any] = {"source": "SOURCE_MASTER", "reason": "REASON_RECONCILIATION", "uuid": None}
    effects = say(world, task_id, "TASK_GONE", **gone)
    assert only(effects, fx.Shutdown) == fx.Shutdown(AgentId("a1"), task_id)
    assert not every(say(world, task_id, "TASK_GONE", **gone), fx.Shutdown)


def test_task_of_before_there_were_seals_is_believed_as_it_was() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    task_id = running(world)
    say(world, task_id, "TASK_FINISHED")
    assert world.job().state is JobState.FINISHED


# --- monitors


def test_report_without_a_seal_takes_no_card_out(world: World) -> None:
    effects = say_inventory(world, monitor(world), None, "a1", "g0", health=Health.SICK)
    assert every(effects, fx.Disbelieve)
    (card,) = world.state.cluster.nodes[AgentId("a1")].gpus
    assert card.health is Health.OK


def test_earlier_report_does_not_come_again(world: World) -> None:
    say_inventory(world, monitor(world), 9, "a1", "g0", health=Health.SICK)
    assert every(say_inventory(world, monitor(world), 8, "a1", "g0"), fx.Disbelieve)
    assert world.state.cluster.nodes[AgentId("a1")].gpus[0].health is Health.SICK


def test_report_that_names_cards_of_another_agent_is_refused_whole(world: World) -> None:
    up(world, "a2", "g2")
    effects = say_inventory(world, monitor(world, "a2"), 2, "a2", "g2", "g0", health=Health.SICK)
    assert "g0, which is a card of a1.example" in only(effects, fx.Disbelieve).why
    assert [card.health for card in world.state.cluster.nodes[AgentId("a2")].gpus] == [Health.OK]
    assert world.state.cluster.placed()[GpuId("g0")][0].id == "a1"


def test_cards_of_an_agent_that_is_lost_or_silent_may_turn_up_elsewhere(world: World) -> None:
    world.now += world.settings.programs.report_stale_s + 1
    up(world, "a2", "g0")
    assert world.state.cluster.placed()[GpuId("g0")][0].id == "a2"
    world.feed(ev.AgentLost(AgentId("a2")))
    assert not every(say_inventory(world, monitor(world), 2, "a1", "g0"), fx.Disbelieve)


def test_task_that_is_not_the_monitor_of_its_agent_reports_nothing(world: World) -> None:
    old = monitor(world)
    node = world.state.cluster.nodes[AgentId("a1")]
    world.state.cluster.set_node(replace(node, monitor=TaskId("gpu-monitor.new")))
    effects = say_inventory(world, old, 2, "a1", "g0", health=Health.SICK)
    assert "gpu-monitor.new" in only(effects, fx.Disbelieve).why
    assert world.state.cluster.nodes[AgentId("a1")].gpus[0].health is Health.OK
