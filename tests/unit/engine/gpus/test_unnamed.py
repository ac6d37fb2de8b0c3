"""More GPUs are given out on a node than its monitor reports: a card vanished, or its monitor has just begun."""

from dataclasses import replace

import pytest

from mesos_gpu.api.metrics.families import metrics, snapshot
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.gpus.unnamed import NAMED, UNNAMED
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.nodes import gpu_status, gpu_statuses
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.node import GpuStatus
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tasks.assignment import Outcome
from tests.doubles.builders import World, every, gpu, offer, saved_of

CARDS = gpu("g0"), gpu("g1")
REST = CARDS[1:]  # what the node reports when the first has vanished
G0 = GpuId("g0")


@pytest.fixture
def world() -> World:
    """`j1` runs on `g0`, `j2` on `g1`."""
    world = World()
    world.register()
    world.node("a1", *CARDS)
    for name in ("j1", "j2"):
        world.submit(name, gpus=1)
        world.offers(offer(f"of-{name}", gpus=2))
        world.status(f"{name}.1", "TASK_RUNNING")
    assert [task.gpus for task in world.state.work.tasks.values() if task.job_id] == [("g0",), ("g1",)]
    return world


def view(world: World) -> View:
    return View(world.state, world.settings, world.now)


def shown(world: World, gpu_id: GpuId = G0) -> GpuStatus | None:
    same = next((each for each in gpu_statuses(view(world)) if each.gpu.id == gpu_id), None)
    assert gpu_status(view(world), gpu_id) == same
    return same


def finish(world: World, name: str) -> None:
    world.status(f"{name}.1", "TASK_FINISHED", outcome=Outcome(exit_status=0))


def figures(world: World, name: str) -> dict[str, float]:
    """A metric's samples, by the values of their labels."""
    (family,) = [each for each in metrics(snapshot(view(world))) if each.name == name]
    return {" ".join(labels.values()): value for labels, value in family.samples}


def restart(world: World) -> None:
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()


def test_vanished_card_keeps_its_task_and_is_shown_as_unknown(world: World) -> None:
    effects = world.report("a1", *REST)
    assert every(effects, fx.Kill) == []
    assert world.job("j1").state is JobState.RUNNING
    status = shown(world)
    assert status is not None, "a card that a task holds is not forgotten"
    assert (status.health, status.reason, status.since) == (Health.UNKNOWN, UNNAMED, world.now)
    assert [task.job_id for task in world.state.tenants(G0)] == ["j1"]
    node = world.state.cluster.nodes[AgentId("a1")]
    assert [(card.id, card.health) for card in node.gpus] == [("g1", Health.OK), ("g0", Health.UNKNOWN)]
    world.tick(5)
    world.report("a1", *REST)
    again = shown(world)
    assert again is not None
    assert again.since == status.since, "since then, not since the latest report"


def test_vanished_card_takes_no_job_is_not_counted_free_and_why_reports_it(world: World) -> None:
    world.report("a1", *REST)
    finish(world, "j2")
    world.submit("j3", gpus=2)
    world.offers(offer("o9", gpus=2))  # Mesos counts both, as long as its agent runs
    assert world.job("j3").state is JobState.PENDING
    why = explain_job(view(world), JobId("j3"))
    assert "g0" in why.summary
    assert UNNAMED in why.summary
    world.submit("j4", gpus=1)
    world.submit("j5", gpus=1)
    given = [task.gpus for task in world.state.work.tasks.values() if task.job_id in ("j4", "j5")]
    assert given == [("g1",)], "of two waiting jobs one, on the card that is there"


def test_vanished_card_leaves_the_list_after_its_task_ends(
    world: World,
) -> None:
    world.report("a1", *REST)
    finish(world, "j1")
    world.submit("j3", gpus=1)
    world.offers(offer("o9", gpus=1))
    assert world.job("j3").state is JobState.PENDING
    world.report("a1", *REST)  # the same again, byte for byte
    assert shown(world) is None
    assert world.job("j3").state is JobState.PENDING


def test_vanished_card_heals_when_it_is_named_again(world: World) -> None:
    world.report("a1", *REST)
    world.report("a1", *CARDS)
    status = shown(world)
    assert status is not None
    assert (status.health, status.reason) == (Health.OK, "")
    told = [(each.old, each.new, each.reason) for each in world.state.gpus.cards[G0].changes]
    assert told == [(Health.OK, Health.UNKNOWN, UNNAMED), (Health.UNKNOWN, Health.OK, NAMED)]
    finish(world, "j1")
    world.submit("j3", gpus=1)
    world.offers(offer("o9", gpus=1))
    assert world.state.work.tasks_of(JobId("j3"))[0].gpus == (G0,)


def test_vanished_card_that_comes_back_sick_moves_its_job(world: World) -> None:
    world.report("a1", *REST)
    effects = world.report("a1", replace(CARDS[0], health=Health.LOST, reason="off the bus"), *REST)
    assert [kill.task_id for kill in every(effects, fx.Kill)] == ["j1.1"]


def test_vanished_card_and_its_history_survive_a_restart(world: World) -> None:
    world.report("a1", *REST)
    before = shown(world)
    restart(world)
    assert world.state.cluster.nodes[AgentId("a1")].gpu(G0) is not None
    world.report("a1", *REST)
    after = shown(world)
    assert before is not None
    assert after is not None
    assert (after.health, after.reason, after.since) == (before.health, before.reason, before.since)


def test_vanished_card_is_not_named_by_an_unreadable_report(world: World) -> None:
    world.report("a1", *REST)
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    world.status(str(monitor), "TASK_RUNNING", data=b"{")
    world.report("a1", *REST)
    assert len(world.state.gpus.cards[G0].changes) == 1
    status = shown(world)
    assert status is not None
    assert status.reason == UNNAMED


def test_vanished_cards_may_be_all_of_a_node(world: World) -> None:
    """A monitor that has just begun may not have read any card yet."""
    assert every(world.report("a1"), fx.Kill) == []
    assert {(each.gpu.id, each.health) for each in gpu_statuses(view(world))} == {
        ("g0", Health.UNKNOWN), ("g1", Health.UNKNOWN),
    }  # fmt: skip
    world.submit("j3", gpus=1)
    world.offers(offer("o9", gpus=2))
    assert world.job("j3").state is JobState.PENDING


def test_vanished_card_reported_by_another_host_is_there(world: World) -> None:
    """The other host's report counts as a whole: a card that is only remembered is nobody's claim."""
    world.report("a1", *REST)
    world.node("a2", gpu("g0"), gpu("g2"))
    assert world.state.mesos.disbelieved == 0
    world.submit("j3", gpus=1)
    assert world.state.work.tasks_of(JobId("j3"))[0].gpus == ("g2",), (
        "g0 is held still, by a task of its old host"
    )
    world.report("a1", *REST)
    status = shown(world)
    assert status is not None
    assert (status.node.id, status.health) == ("a2", Health.OK)
    assert world.state.cluster.nodes[AgentId("a1")].gpu(G0) is None


def test_metrics_count_a_vanished_card_as_held_and_not_as_free(world: World) -> None:
    world.report("a1", *REST)
    finish(world, "j2")
    assert figures(world, "mesos_gpu_model_gpus") == {"A100 used": 1, "A100 free": 1, "A100 out": 0}


def test_shares_of_a_card_that_vanished_go_on_and_it_gets_no_more() -> None:
    world = World()
    world.register()
    able = Sharing(81920, ((Ability.SHIM, ""),))
    cards = [replace(card, sharing=able) for card in CARDS]
    world.node("a1", *cards)
    world.submit("j1", gpus=1, gpu_milli=250)
    task = world.state.work.tasks_of(JobId("j1"))[0]
    for each in (task.id, world.state.gpus.covers[task.gpus[0]]):
        world.status(each, "TASK_RUNNING")
    rest = [card for card in cards if card.id != task.gpus[0]]
    assert every(world.report("a1", *rest), fx.Kill) == []
    world.submit("j2", gpus=1, gpu_milli=250)
    world.offers(offer("o9", gpus=1))
    assert [t.gpus for t in world.state.work.tasks_of(JobId("j2"))] == [(rest[0].id,)], (
        "beside it, on the other"
    )
    status = shown(world, task.gpus[0])
    assert status is not None
    assert (status.health, status.reason) == (Health.UNKNOWN, UNNAMED)
    world.report("a1", *cards)
    world.submit("j3", gpus=1, gpu_milli=250)
    world.offers(offer("o10"))
    assert world.job("j3").state is JobState.STARTING


def test_card_that_another_one_has_replaced_is_not_kept_beside_it(world: World) -> None:
    """No two cards of a host have one minor number."""
    world.report("a1", *REST)
    assert shown(world) is not None
    for _ in range(2):  # the second report has the same again
        world.report("a1", replace(gpu("new"), minor=CARDS[0].minor), *REST)
        assert shown(world) is None
        status = shown(world, GpuId("new"))
        assert status is not None
        assert status.health is Health.OK
    assert world.job("j1").state is JobState.RUNNING
    world.submit("j3", gpus=1)
    world.offers(offer("of-j3", gpus=1))
    (started,) = world.state.work.tasks_of(JobId("j3"))
    assert started.gpus == ("new",)
