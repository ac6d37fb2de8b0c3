"""A job of higher priority ends preemptible ones: with notice, the cheapest, no more than needed, never for nothing."""

from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from tests.doubles.builders import World, every, gpu, offer, only, saved_of


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def node(world: World, agent: str = "a1", gpus: int = 4, first: int = 0) -> None:
    world.node(agent, *(gpu(f"g{first + i}") for i in range(gpus)), cpus=32)


def runs(world: World, name: str, gpus: int = 1, *, ran_s: float = 0.0, **more: object) -> None:
    """A job that runs; nothing else is offered by its agent afterwards but what is left."""
    world.submit(name, **{"gpus": gpus, "preemptible": True, **more})
    for node in list(world.state.cluster.nodes.values()):  # an idle scheduler has given its offers back
        if world.job(name).state is JobState.PENDING:
            again(world, node.id)
    for task in world.state.work.round_of(world.job(name)):
        world.status(task.id, "TASK_STARTING", agent=task.agent_id)
        world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
        again(world, task.agent_id)
    assert world.job(name).state is JobState.RUNNING
    report(world)
    world.tick(ran_s)


def again(world: World, agent: str) -> None:
    """Offer what is free there."""
    held = sum(len(t.gpus) for t in world.state.work.tasks.values() if t.agent_id == agent and not t.ended)
    cards = [g for n in world.state.cluster.nodes.values() if n.id == agent for g in n.gpus]
    world.serial += 1
    if len(cards) > held:
        world.offers(offer(f"r{world.serial}", agent, gpus=len(cards) - held, cpus=16))


def report(world: World) -> None:
    for node in list(world.state.cluster.nodes.values()):
        world.report(node.id, *node.gpus)


def kills(effects: list[fx.Effect]) -> set[str]:
    return {kill.task_id for kill in every(effects, fx.Kill)}


def asked(world: World, name: str = "big", gpus: int = 2, **more: object) -> set[str]:
    """Submit a job, and return the tasks that are ended for it within its first seconds."""
    world.submit(name, **{"gpus": gpus, "priority": 10, **more})
    report(world)
    return kills(world.tick(5))


def test_preemption_victim_gets_notice_and_its_place_back(world: World) -> None:
    node(world, gpus=2)
    runs(world, "low", 2, kill_grace_s=30.0)
    world.submit("big", gpus=2, priority=10)
    effects = world.tick(5)
    assert only(effects, fx.Kill) == fx.Kill(TaskId("low.1"), "a1", 30.0)  # type: ignore[arg-type]
    assert world.job("low").message.startswith("makes room for job big, whose priority is 10, not 0")
    why = explain_job(View(world.state, world.settings, world.now), JobId("big"))
    assert why.summary.startswith("preempts low, which ends by ")
    world.status("low.1", "TASK_KILLED")
    low = world.job("low")
    assert (low.state, low.attempts, low.infrastructure_failures) == (JobState.PENDING, 0, 0)
    world.offers(offer("free", gpus=2, cpus=16))
    assert world.job("big").state is JobState.STARTING
    assert world.job("low").state is JobState.PENDING


def test_preemption_waits_until_free_gpus_could_be_offered(world: World) -> None:
    node(world, gpus=2)
    runs(world, "low", 2)
    world.submit("big", gpus=2, priority=10)
    assert not kills(world.tick(world.settings.queue.preempt_after_s - 1))
    assert kills(world.tick(2))


@pytest.mark.parametrize(
    ("victim", "more"),
    [
        ({"preemptible": False}, {}),
        ({"priority": 10}, {}),
        ({"priority": 11}, {}),
        ({}, {"gpu_model": ("H100",)}),
        ({}, {"gpus": 3}),
        ({}, {"min_driver": "550"}),
        ({}, {"cpus": 1000.0}),
    ],
)
def test_preemption_ends_no_job_in_vain(world: World, victim: dict[str, Any], more: dict[str, Any]) -> None:
    node(world, gpus=2)
    runs(world, "low", 2, **victim)
    assert not asked(world, **more)


def test_preemption_ends_no_job_on_a_drained_node(world: World) -> None:
    node(world, gpus=2)
    runs(world, "low", 2)
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "new fan"))
    assert not asked(world)


def test_preemption_ends_the_cheapest_jobs_and_no_more_than_needed(world: World) -> None:
    node(world)
    runs(world, "old", ran_s=20)
    runs(world, "middle", ran_s=5)
    runs(world, "young")
    runs(world, "younger")
    assert asked(world) == {"young.1", "younger.1"}


def test_preemption_ends_one_job_alone_if_it_is_enough(world: World) -> None:
    node(world)
    runs(world, "pair", 2)
    runs(world, "one")
    runs(world, "two")
    assert asked(world) == {"pair.1"}


def test_preemption_ends_lower_priority_first_however_long_it_ran(world: World) -> None:
    node(world, gpus=2)
    runs(world, "low", ran_s=25)
    runs(world, "higher", priority=5)
    assert asked(world, gpus=1) == {"low.1"}


def test_preemption_uses_free_gpus_before_victims(world: World) -> None:
    node(world, gpus=4)
    runs(world, "a")
    runs(world, "b")
    runs(world, "c")
    assert len(asked(world, gpus=2)) == 1
    node(world, "a2", gpus=4, first=10)
    assert not asked(world, "other", gpus=2)


def test_preemption_room_is_taken_by_no_other_job(world: World) -> None:
    node(world, gpus=2)
    runs(world, "low", 2)
    world.tick(5)
    world.submit("waits", gpus=1, priority=999, timeout_s=1.0, preemptible=True)
    world.feed(ev.KillRequested(JobId("waits")))
    assert asked(world, "big") == {"low.1"}
    world.submit("urgent", gpus=1, priority=999)
    world.status("low.1", "TASK_KILLED")
    report(world)
    world.offers(offer("free", gpus=2, cpus=16))
    assert world.job("big").state is JobState.STARTING, "low was ended for it"
    assert world.job("urgent").state is JobState.PENDING
    world.status("big.1", "TASK_RUNNING")
    assert world.job("big").room_made_at is None


def test_preemption_room_is_kept_when_the_launch_is_lost(world: World) -> None:
    node(world, gpus=2)
    runs(world, "low", 2)
    world.tick(5)
    asked(world, "big")
    world.status("low.1", "TASK_KILLED")
    report(world)
    world.offers(offer("free", gpus=2, cpus=16))
    world.submit("next", gpus=1, priority=999)
    world.status("big.1", "TASK_LOST")
    report(world)
    world.offers(offer("again", gpus=2, cpus=16))
    assert world.job("big").state is JobState.PENDING, "it waits for its next try"
    assert world.job("next").state is JobState.PENDING
    world.tick(world.job("big").not_before - world.now)
    assert world.job("big").state is JobState.STARTING


def test_preemption_waits_for_victims_that_are_being_ended(world: World) -> None:
    node(world)
    runs(world, "one", 2)
    runs(world, "two", 2)
    first = asked(world, gpus=2)
    assert len(first) == 1
    report(world)
    assert kills(world.tick(20)) == first, "the other one need not go"


def test_preemption_waits_for_a_job_that_ends_anyway(world: World) -> None:
    node(world)
    runs(world, "leaves", 2)
    runs(world, "stays", 2)
    world.feed(ev.KillRequested(JobId("leaves")))
    assert "stays.1" not in asked(world, gpus=2)


def test_preemption_makes_room_for_a_gang_over_agents(world: World) -> None:
    node(world, "a1", 2)
    node(world, "a2", 2, first=2)
    runs(world, "one", 1, ran_s=3)
    runs(world, "two", 1)
    runs(world, "three", 1)
    runs(world, "four", 1)
    assert asked(world, gpus=1, tasks=3) == {"two.1", "three.1", "four.1"}


def test_preemption_ends_a_gang_whole(world: World) -> None:
    node(world, "a1", 2)
    node(world, "a2", 2, first=2)
    runs(world, "gang", 1, tasks=4)
    assert asked(world, gpus=1) == {f"gang.1.{i}" for i in range(4)}
    for task in world.state.work.round_of(world.job("gang")):
        world.status(task.id, "TASK_KILLED", agent=task.agent_id)
    gang = world.job("gang")
    assert (gang.state, gang.attempts, gang.infrastructure_failures) == (JobState.PENDING, 0, 0)


def test_preemption_can_be_forbidden_by_an_operator() -> None:
    world = World(settings=Settings.of("executor", "monitor", preemption=False))
    world.register()
    node(world, gpus=2)
    runs(world, "low", 2)
    assert not asked(world)


def test_preemption_ends_no_job_for_a_queue_at_its_limit() -> None:
    world = World(settings=Settings.of("executor", "monitor", queue_limits={"small": 1}))
    world.register()
    node(world, gpus=2)
    runs(world, "low", 2)
    assert not asked(world, queue="small")


def test_preemption_ends_no_other_job_after_a_restart_in_between(world: World) -> None:
    node(world)
    runs(world, "one", 2)
    runs(world, "two", 2)
    (first,) = asked(world, gpus=2)
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    report(world)
    assert kills(world.tick(15)) <= {first}
