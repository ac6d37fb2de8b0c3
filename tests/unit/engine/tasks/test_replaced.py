"""A host whose agent lost its work directory has another agent: the old one's launches hold no card for ever."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.tasks.task import TaskState
from tests.doubles.builders import World, gpu, offer, only

HOST = "a1.example"


@pytest.fixture
def world() -> World:
    """A job of one card runs on the first agent, which is not heard of any more."""
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_UNREACHABLE")
    world.feed(ev.AgentLost(AgentId("a1")))
    world.tick(1)
    return world


def come(world: World, agent: str, *cards: Gpu, hostname: str = HOST) -> TaskId:
    """An agent registers and reports; its monitor."""
    effects = world.offers(replace(offer(f"{agent}-o{world.now}", agent, gpus=len(cards)), hostname=hostname))
    monitor = only(effects, fx.Launch).tasks[0].task.id
    world.report(agent, *cards, task=monitor)
    return monitor


def give_up(world: World) -> None:
    world.tick(world.settings.mesos.unreachable_timeout_s + world.settings.tasks.tend_interval_s + 2)


def state_of(world: World, task: str = "j1.1") -> TaskState:
    return world.state.work.tasks[TaskId(task)].state


def test_replaced_agent_frees_its_cards_once_its_launches_are_given_up(world: World) -> None:
    monitor = come(world, "a9", gpu("g0"))
    assert state_of(world) is TaskState.UNREACHABLE, "it may come back, and its work is not done twice"
    give_up(world)
    assert state_of(world) is TaskState.LOST
    assert "another agent now: a9" in world.state.work.tasks[TaskId("j1.1")].message
    assert world.state.gpus.holders == {}
    world.report("a9", gpu("g0"), task=monitor)
    world.offers(replace(offer("o-late", "a9", gpus=1), hostname=HOST))
    assert world.job().state is JobState.STARTING
    assert world.job().task_id == "j1.2"


def test_task_of_a_replaced_agent_that_comes_back_is_killed(world: World) -> None:
    come(world, "a9", gpu("g0"))
    give_up(world)
    assert only(world.status("j1.1", "TASK_RUNNING"), fx.Kill).task_id == "j1.1"


@pytest.mark.parametrize("hostname", ["other.example", "a1.example.evil"])
def test_agent_of_another_host_frees_nothing_whatever_cards_it_names(world: World, hostname: str) -> None:
    come(world, "a9", gpu("g0"), hostname=hostname)
    give_up(world)
    assert state_of(world) is TaskState.ABANDONED
    assert list(world.state.gpus.holders) == ["g0"]


def test_agent_that_does_not_have_all_of_its_cards_frees_none(world: World) -> None:
    come(world, "a9", gpu("g7"))
    give_up(world)
    assert state_of(world) is TaskState.ABANDONED


def test_agent_that_is_lost_itself_frees_nothing(world: World) -> None:
    come(world, "a9", gpu("g0"))
    world.feed(ev.AgentLost(AgentId("a9")))
    give_up(world)
    assert state_of(world) is TaskState.ABANDONED


def test_agent_whose_loss_was_not_reported_is_taken_for_lost(world: World) -> None:
    """The scheduler was away when Mesos told it."""
    world.state.cluster.set_node(
        replace(world.state.cluster.nodes[AgentId("a1")], lost_at=None, reported_at=0.0)
    )
    come(world, "a9", gpu("g0"))
    give_up(world)
    assert world.state.cluster.nodes[AgentId("a1")].lost_at is not None
    assert world.state.gpus.holders == {}


def test_cards_of_a_lost_agent_are_held_without_another_agent(world: World) -> None:
    give_up(world)
    assert state_of(world) is TaskState.ABANDONED
    assert list(world.state.gpus.holders) == ["g0"]


@pytest.fixture
def silent() -> World:
    """A job of one card runs on the first agent; the master that told that is gone, and the next says nothing of it."""
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    world.status("j1.1", "TASK_RUNNING")
    world.tick(1)
    return world


def come_there(world: World, agent: str, *cards: Gpu, reports: int = 2) -> TaskId:
    """An agent registers at the address of the first one, and reports; its monitor."""
    there = replace(
        offer(f"{agent}-o{world.now}", agent, gpus=len(cards)), hostname=HOST, agent_url="http://a1:5051"
    )
    monitor = only(world.offers(there), fx.Launch).tasks[0].task.id
    for _ in range(reports):  # a card is the earlier agent's until that is known to be gone
        world.tick(world.settings.tasks.tend_interval_s + 1)
        world.report(agent, *cards, task=monitor)
    world.tick(world.settings.tasks.tend_interval_s + 1)
    return monitor


def test_task_of_an_agent_replaced_at_its_address_is_lost(silent: World) -> None:
    old = silent.state.cluster.nodes[AgentId("a1")].monitor
    come_there(silent, "a9", gpu("g0"))
    assert state_of(silent) is TaskState.LOST
    assert old not in silent.state.work.tasks, "the monitor of the agent that is gone"
    assert AgentId("a1") not in silent.state.cluster.nodes
    silent.offers(replace(offer("o-late", "a9", gpus=1), hostname=HOST))
    assert (silent.job().task_id, silent.job().state) == ("j1.2", JobState.STARTING)


def test_replaced_agent_is_lost_only_once_the_monitor_of_the_other_runs(silent: World) -> None:
    come_there(silent, "a9", gpu("g0"), reports=0)
    assert state_of(silent) is TaskState.RUNNING
    assert silent.state.cluster.nodes[AgentId("a1")].lost_at is None


def test_agent_that_has_just_come_is_not_lost_for_the_one_that_was_there_before(silent: World) -> None:
    old = silent.state.cluster.nodes[AgentId("a1")].monitor
    silent.offers(replace(offer("o-9", "a9"), hostname=HOST, agent_url="http://a1:5051"))
    silent.state.cluster.set_node(replace(silent.state.cluster.nodes[AgentId("a9")], monitor=None))
    for _ in range(3):
        silent.tick(silent.settings.tasks.tend_interval_s + 1)
        silent.report("a1", gpu("g0"), task=old)
    assert [node.lost_at for node in silent.state.cluster.nodes.values()] == [None, None]
    assert state_of(silent) is TaskState.RUNNING


def test_card_that_the_other_agent_does_not_have_is_held(silent: World) -> None:
    come_there(silent, "a9", gpu("g7"))
    assert state_of(silent) is TaskState.RUNNING
    assert list(silent.state.gpus.holders) == ["g0"]


def test_agents_of_one_host_at_addresses_of_their_own_end_nothing_of_each_other(silent: World) -> None:
    come(silent, "a9", gpu("g7"))
    silent.tick(silent.settings.tasks.tend_interval_s + 1)
    assert state_of(silent) is TaskState.RUNNING
    assert silent.state.cluster.nodes[AgentId("a1")].lost_at is None
