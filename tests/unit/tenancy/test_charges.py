"""What tasks are charged with, and the past use that follows: while they run, at once, and once."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.engine.tenancy.past_uses import MOST_USERS, SWEEP_S, micro, value_of
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.past_use import PastUse
from mesos_gpu.model.saves import SavePastUse, SaveTask
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tenancy import JobClass, Pool, QueueDocument, QueueSpec
from mesos_gpu.testing.builders import World, every, gpu, offer, saved_of

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
    taken = {gpu for gpu, task in world.state.holders.items() if world.state.tasks[task].agent_id == agent}
    if world.job(name).task_id is None:
        world.offers(offer(f"{name}-{agent}", agent, gpus=8 - len(taken)))
    task_id = world.job(name).task_id
    assert task_id is not None, world.job(name).message
    world.status(task_id, "TASK_RUNNING", agent=agent)
    return task_id


def charge(world: World, task_id: str) -> Charge | None:
    return world.state.tasks[TaskId(task_id)].charge


def used(world: World, user: str = "ann", queue: str = "ml/a") -> int:
    return value_of(world.state.past_uses[queue, user], micro(world.now), world.state.queues.half_life_s)


def test_a_grant_is_charged_by_the_cost_of_its_model_while_it_runs() -> None:
    world = made()
    started(world, "j1", gpus=2)
    started(world, "j2", "h1", gpus=1, gpu_model=("H100",))
    assert world.state.books.held == {
        ("ml/a", "default"): (6000, 2000, 256),
    }
    assert world.state.past_uses["ml/a", "ann"].rate == 6000
    before = used(world)
    world.now += 10
    assert used(world) - before == pytest.approx(60_000, rel=0.01)


def test_without_a_document_nothing_is_kept() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    assert world.submit("j1", gpus=1, queue="ml/a").task_id == "j1.1"
    assert charge(world, "j1.1") is None
    assert world.state.past_uses == {}
    assert world.state.made_books is None


def test_an_update_that_comes_twice_changes_nothing() -> None:
    world = made()
    task_id = started(world, "j1", gpus=2)
    again = world.status(task_id, "TASK_RUNNING")
    assert every(again, SavePastUse) == []
    assert every(again, SaveTask) == []
    world.status(task_id, "TASK_FINISHED")
    after = dict(world.state.past_uses)
    world.status(task_id, "TASK_FINISHED")
    assert world.state.past_uses == after
    assert after["ml/a", "ann"].rate == 0
    assert world.state.books.held == {}


def test_what_is_saved_has_the_same_numbers_after_a_restart() -> None:
    world = made()
    started(world, "j1", gpus=2)
    world.now += 5
    started(world, "j2", gpus=1)
    again = State.restored(world.now, saved_of(world.state))
    assert again.past_uses == world.state.past_uses
    assert again.books.held == world.state.books.held
    assert again.books.users == world.state.books.users
    now = micro(world.now + 100)
    for key, use in world.state.past_uses.items():
        assert value_of(again.past_uses[key], now, 1000) == value_of(use, now, 1000)


def test_one_that_is_cut_off_is_charged_until_it_is_given_up() -> None:
    world = made()
    task_id = started(world, "j1", gpus=2)
    world.status(task_id, "TASK_UNREACHABLE")
    assert world.state.past_uses["ml/a", "ann"].rate == 2000
    world.tick(world.settings.unreachable_timeout_s + 2)
    assert world.state.tasks[TaskId(task_id)].state is TaskState.ABANDONED
    # Its job waits or runs elsewhere; the first copy is nobody's use.
    held = sum(gpus for gpus, _, _ in world.state.books.held.values())
    assert world.state.past_uses["ml/a", "ann"].rate == held <= 2000
    world.status(task_id, "TASK_RUNNING")
    assert charge(world, task_id) is None


def test_an_end_that_is_heard_of_late_counts_from_when_it_was() -> None:
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


def test_a_new_user_stands_beside_the_first_of_those_who_are_there() -> None:
    world = made()
    started(world, "j1", gpus=2)
    started(world, "j2", gpus=1, user="bob")
    world.now += 20
    started(world, "j3", gpus=1, user="root")
    least = used(world, "bob")
    assert used(world, "root") == 3 * least  # he has three shares of what the others have one of
    assert used(world, "*") == pytest.approx(used(world) + used(world, "bob"), abs=3)


def test_who_is_long_at_nothing_is_forgotten() -> None:
    world = made()
    task_id = started(world, "j1", gpus=2)
    world.now += 50
    world.status(task_id, "TASK_FINISHED")
    world.now += SWEEP_S + 2
    world.feed(ev.Tick())
    assert ("ml/a", "ann") in world.state.past_uses
    world.now += 1000 * 30
    world.feed(ev.Tick())
    assert world.state.past_uses == {}
    assert world.state.books.users == {}


def test_of_each_queue_so_many_users_are_remembered() -> None:
    world = made()
    for i in range(MOST_USERS + 5):
        world.state.put(PastUse("ml/a", f"u{i}", 10**6 + i, micro(world.now)))
    world.state.put(PastUse("ml/a", "*", 10**9, micro(world.now)))
    world.state.put(PastUse("ml/a", "runs", 0, micro(world.now), 8))
    world.now += SWEEP_S
    world.state.past_uses_swept_at = 0.0
    step(world.state, ev.Tick(), world.now, world.settings)
    left = {user for _, user in world.state.past_uses}
    assert len(left) == MOST_USERS + 2
    assert {"*", "runs", f"u{MOST_USERS + 4}"} <= left
    assert "u0" not in left


def test_another_document_charges_anew_what_runs() -> None:
    world = made()
    started(world, "j1", "h1", gpus=1, gpu_model=("H100",))
    world.now += 100
    before = used(world)
    fast = Pool("fast", ("H100",))
    world.feed(ev.QueuesChanged(replace(DOCUMENT, gpu_cost={"H100": 2}, pools=(fast,), half_life_s=50), 1))
    assert charge(world, "j1.1") == Charge("ml/a", "ann", "fast", 2000, 2000, 1000, 128)
    assert world.state.past_uses["ml/a", "ann"].rate == 2000
    assert used(world) == before  # what was used is not forgotten faster in the past
    world.status("j1.1", "TASK_FINISHED", agent="h1")
    world.feed(ev.QueuesChanged(QueueDocument(queues={"x": QueueSpec()}), 2))
    assert world.state.past_uses == {}


def test_a_class_says_what_its_jobs_count_as_in_use_and_what_is_held_is_the_same() -> None:
    world = made(replace(DOCUMENT, classes=(JobClass("cheap", charge_percent=25),)))
    started(world, "j1", gpus=2, job_class="cheap")
    assert charge(world, "j1.1") == Charge("ml/a", "ann", "default", 2000, 500, 1000, 128)
    assert world.state.past_uses["ml/a", "ann"].rate == 500
