"""Charges of tasks while they run, and the past use that follows from them."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.charges import charges_of, cost_of_granted, parts_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.engine.tenancy.past_uses import MAX_USERS, SWEEP_S, micro, value_of
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.saves import SavePastUse, SaveTask
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tenancy import JobClass, Pool, QueueDocument, QueueSpec
from mesos_gpu.model.usage import Part, PastUse
from tests.doubles.builders import World, every, gpu, offer, saved_of

DOCUMENT = QueueDocument(
    queues={"ml": QueueSpec(), "ml/a": QueueSpec(user_shares={"root": 3}), "ml/b": QueueSpec()},
    gpu_cost={"H100": 4},
    half_life_s=1000,
)


def made(document: QueueDocument = DOCUMENT) -> World:
    world = World()
    world.register()
    world.feed(ev.QueuesChanged(document, 0))
    world.node("a1", *(gpu(f"g{i}") for i in range(8)))
    world.node("h1", *(gpu(f"h{i}", "H100") for i in range(8)))
    return world


def started(world: World, name: str, agent: str = "a1", **fields: object) -> str:
    world.submit(name, **{"queue": "ml/a", "user": "ann", "gpu_model": ("A100",), **fields})
    taken = {
        gpu
        for gpu, task in world.state.gpus.holders.items()
        if world.state.work.tasks[task].agent_id == agent
    }
    if world.job(name).task_id is None:
        world.offers(offer(f"{name}-{agent}", agent, gpus=8 - len(taken)))
    task_id = world.job(name).task_id
    assert task_id is not None, world.job(name).message
    world.status(task_id, "TASK_RUNNING", agent=agent)
    return task_id


def charge(world: World, task_id: str) -> Charge | None:
    return world.state.work.tasks[TaskId(task_id)].charge


def held(world: World, state: State | None = None) -> dict[tuple[str, str], tuple[int, int, int]]:
    return charges_of(state or world.state, world.settings).sums.leaves


def used(world: World, user: str = "ann", queue: str = "ml/a") -> int:
    return value_of(
        world.state.quota.past_uses[queue, user], micro(world.now), world.state.quota.queues.half_life_s
    )


def test_grant_is_charged_by_the_cost_of_its_model_while_it_runs() -> None:
    world = made()
    started(world, "j1", gpus=2)
    started(world, "j2", "h1", gpus=1, gpu_model=("H100",))
    assert held(world) == {("ml/a", "default"): (6000, 2000, 256)}
    assert world.state.quota.past_uses["ml/a", "ann"].rate == 6000
    before = used(world)
    world.now += 10
    assert used(world) - before == pytest.approx(60_000, rel=0.01)


def test_charges_are_not_saved_without_a_document() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    assert world.submit("j1", gpus=1, queue="ml/a").task_id == "j1.1"
    assert charge(world, "j1.1") is None
    assert world.state.quota.past_uses == {}


def test_charges_are_unchanged_by_an_update_that_comes_twice() -> None:
    world = made()
    task_id = started(world, "j1", gpus=2)
    again = world.status(task_id, "TASK_RUNNING")
    assert every(again, SavePastUse) == []
    assert every(again, SaveTask) == []
    world.status(task_id, "TASK_FINISHED")
    after = dict(world.state.quota.past_uses)
    world.status(task_id, "TASK_FINISHED")
    assert world.state.quota.past_uses == after
    assert after["ml/a", "ann"].rate == 0
    assert held(world) == {}


def test_charges_are_the_same_after_a_restart() -> None:
    world = made()
    started(world, "j1", gpus=2)
    world.now += 5
    started(world, "j2", gpus=1)
    again = State.restored(world.now, saved_of(world.state))
    assert again.quota.past_uses == world.state.quota.past_uses
    assert held(world, again) == held(world) != {}
    assert again.books.users == world.state.books.users
    now = micro(world.now + 100)
    for key, use in world.state.quota.past_uses.items():
        assert value_of(again.quota.past_uses[key], now, 1000) == value_of(use, now, 1000)


def test_unreachable_task_is_charged_until_it_is_given_up() -> None:
    world = made()
    task_id = started(world, "j1", gpus=2)
    world.status(task_id, "TASK_UNREACHABLE")
    assert world.state.quota.past_uses["ml/a", "ann"].rate == 2000
    world.tick(world.settings.mesos.unreachable_timeout_s + 2)
    assert world.state.work.tasks[TaskId(task_id)].state is TaskState.ABANDONED
    # Its job waits or runs elsewhere; the first copy is nobody's use.
    milli = sum(gpus for gpus, _, _ in held(world).values())
    assert world.state.quota.past_uses["ml/a", "ann"].rate == milli <= 2000
    world.status(task_id, "TASK_RUNNING")
    assert charge(world, task_id) is None


def test_charge_of_a_task_ends_when_it_ended_though_heard_late() -> None:
    late, prompt = made(), made()
    for world in (late, prompt):
        started(world, "j1", gpus=2)
        world.now += 100
    prompt.status("j1.1", "TASK_FINISHED")
    ended_at = late.now
    late.now += 400
    prompt.now += 400
    status = Status(TaskId("j1.1"), "TASK_FINISHED", AgentId("a1"), uuid="dXVpZA==", at=ended_at)
    late.feed(ev.StatusArrived(status))
    assert abs(used(late) - used(prompt)) <= 2


def test_new_user_stands_beside_the_first_of_those_who_are_there() -> None:
    world = made()
    started(world, "j1", gpus=2)
    started(world, "j2", gpus=1, user="bob")
    world.now += 20
    started(world, "j3", gpus=1, user="root")
    least = used(world, "bob")
    assert used(world, "root") == 3 * least  # he has three shares of what the others have one of
    assert used(world, "*") == pytest.approx(used(world) + used(world, "bob"), abs=3)


def test_past_use_of_nothing_for_long_is_forgotten() -> None:
    world = made()
    task_id = started(world, "j1", gpus=2)
    world.now += 50
    world.status(task_id, "TASK_FINISHED")
    world.now += SWEEP_S + 2
    world.feed(ev.Tick())
    assert ("ml/a", "ann") in world.state.quota.past_uses
    world.now += 1000 * 30
    world.feed(ev.Tick())
    assert world.state.quota.past_uses == {}
    assert world.state.books.users == {}


def test_past_use_is_kept_for_a_bounded_number_of_users() -> None:
    world = made()
    for i in range(MAX_USERS + 5):
        world.state.put(PastUse("ml/a", f"u{i}", 10**6 + i, micro(world.now)))
    world.state.put(PastUse("ml/a", "*", 10**9, micro(world.now)))
    world.state.put(PastUse("ml/a", "runs", 0, micro(world.now), 8))
    world.now += SWEEP_S
    world.state.quota.past_uses_swept_at = 0.0
    step(world.state, ev.Tick(), world.now, world.settings)
    left = {user for _, user in world.state.quota.past_uses}
    assert len(left) == MAX_USERS + 2
    assert {"*", "runs", f"u{MAX_USERS + 4}"} <= left
    assert "u0" not in left


def test_charges_of_running_tasks_follow_a_new_document() -> None:
    world = made()
    started(world, "j1", "h1", gpus=1, gpu_model=("H100",))
    world.now += 100
    before = used(world)
    fast = Pool("fast", ("H100",))
    world.feed(ev.QueuesChanged(replace(DOCUMENT, gpu_cost={"H100": 2}, pools=(fast,), half_life_s=50), 1))
    assert charge(world, "j1.1") == Charge("ml/a", "ann", "fast", 2000, 2000, 1000, 128)
    assert world.state.quota.past_uses["ml/a", "ann"].rate == 2000
    assert used(world) == before  # what was used is not forgotten faster in the past
    world.status("j1.1", "TASK_FINISHED", agent="h1")
    world.feed(ev.QueuesChanged(QueueDocument(queues={"x": QueueSpec()}), 2))
    assert world.state.quota.past_uses == {}


def test_class_says_what_its_jobs_count_as_in_use_and_what_is_held_is_the_same() -> None:
    world = made(replace(DOCUMENT, classes=(JobClass("cheap", charge_percent=25),)))
    started(world, "j1", gpus=2, job_class="cheap")
    assert charge(world, "j1.1") == Charge("ml/a", "ann", "default", 2000, 500, 1000, 128)
    assert world.state.quota.past_uses["ml/a", "ann"].rate == 500


def test_gpus_of_several_models_cost_what_each_of_them_does() -> None:
    world = made()
    world.node("m1", gpu("m0"), gpu("m1", "H100"), gpu("m2", "H100"))
    gpus = [GpuId("m1"), GpuId("m0"), GpuId("m2")]
    parts = parts_of(DOCUMENT, world.state.cluster.nodes[AgentId("m1")], gpus, (), 1500)
    assert parts == (Part("A100", 500, 500), Part("H100", 1000, 4000))
    assert cost_of_granted(DOCUMENT, world.state.cluster.nodes[AgentId("m1")], gpus, (), 1500) == 4500


def test_cards_that_are_not_known_cost_what_they_did_or_the_most_that_they_may() -> None:
    world = made()
    task_id = started(world, "j1", "h1", gpus=1, gpu_model=("H100",))
    world.report("h1", *(gpu(f"x{i}", "H100") for i in range(8)))
    world.feed(ev.QueuesChanged(replace(DOCUMENT, gpu_cost={"H100": 4, "A100": 2}), 1))
    assert charge(world, task_id) == Charge("ml/a", "ann", "default", 4000, 4000, 1000, 128)
    document = world.state.quota.queues
    node = world.state.cluster.nodes[AgentId("h1")]
    for asked, cost in (((), 4000), (("A100",), 2000), (("T4",), 1000)):
        assert cost_of_granted(document, node, [GpuId("h0")], asked, 1000) == cost
        assert cost_of_granted(document, None, [GpuId("h0")], asked, 1000) == cost


def test_charge_of_a_share_is_the_larger_of_memory_and_compute() -> None:
    world = World()
    world.register()
    world.feed(ev.QueuesChanged(DOCUMENT, 0))
    world.node("s1", replace(gpu("s0"), sharing=Sharing(80_000, ((Ability.SHIM, ""),))))
    world.submit("j1", gpus=1, gpu_milli=500, gpu_compute_pct=20, queue="ml/a", user="ann")
    world.offers(offer("o1", "s1", gpus=1))
    assert world.job("j1").task_id == "j1.1", world.job("j1").message
    held = charge(world, "j1.1")
    assert held is not None
    assert (held.milli, held.rate) == (500, 500)
    assert [part.gpu_milli for part in world.state.ledger.spans[TaskId("j1.1")].parts] == [500]


def test_charge_of_an_unreported_card_follows_the_present_document() -> None:
    world = made()
    task_id = started(world, "j1", "h1", gpus=2, gpu_model=("H100", "A100"))
    world.report("h1", *(gpu(f"h{i}", "H100") for i in range(1, 8)))
    for cost, milli in ({"H100": 3, "A100": 9}, 6000), ({}, 2000), ({"H100": 5}, 10_000):
        world.now += 1
        world.feed(ev.QueuesChanged(replace(DOCUMENT, gpu_cost=cost), world.state.quota.queues.version))
        span, of_task = world.state.ledger.spans[TaskId(task_id)], charge(world, task_id)
        assert span.parts == (Part("H100", 2000, milli),)
        assert of_task is not None
        assert (of_task.milli, of_task.rate) == (milli, milli)
