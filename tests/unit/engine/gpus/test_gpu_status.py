"""Which GPUs of a node may be given out, and what is shown of each: drains, resets, contests and old reports."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.gpus.gpu_status import gpu_status, is_closed, reported, usable, well
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.drain import Card, Reset, Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.node import Node
from tests.doubles.builders import World, gpu

CARDS = gpu("g0"), gpu("g1"), gpu("g2", health=Health.SICK)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", *CARDS)
    return world


def node(world: World) -> Node:
    return world.state.cluster.nodes[AgentId("a1")]


def given(world: World) -> list[str]:
    return [each.id for each in usable(world.state, node(world), world.now, world.settings)]


def shown(world: World) -> list[tuple[str, str]]:
    places = [(node(world), each) for each in node(world).gpus]
    return [
        (each.health.value, each.reason) for each in reported(world.state, world.settings, world.now, places)
    ]


def test_usable_gpus_are_the_healthy_ones(world: World) -> None:
    assert given(world) == ["g0", "g1"]
    assert [health for health, _ in shown(world)] == ["ok", "ok", "sick"]


def test_usable_gpus_are_none_of_those_that_are_contested_until_the_time_is_over(world: World) -> None:
    world.state.gpus.contested[GpuId("g0")] = world.now + 5
    assert given(world) == ["g1"]
    world.now += 4.9
    assert given(world) == ["g1"]
    world.now += 0.1
    assert given(world) == ["g0", "g1"]


def test_usable_gpus_are_none_of_a_drained_card_or_node(world: World) -> None:
    world.feed(ev.DrainRequested(Target.GPU, "g1", "new fan"))
    assert (given(world), is_closed(world.state, node(world))) == (["g0"], False)
    assert shown(world)[1] == ("drained", "drained: new fan")
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "new rack"))
    assert (given(world), is_closed(world.state, node(world))) == ([], True)
    assert shown(world)[0] == ("drained", "its node is drained: new rack")
    assert well(world.state, node(world), world.now, world.settings, {GpuId("g0")}) == ()


def test_usable_gpus_are_none_of_those_in_a_reset(world: World) -> None:
    card = world.state.gpus.cards.get(GpuId("g0")) or Card(GpuId("g0"))
    world.state.put(replace(card, reset=Reset("r1", "XID 79", "ann", world.now)))
    assert given(world) == ["g1"]
    status = gpu_status(world.state, node(world), CARDS[0])
    assert (status.health, status.reason, status.since) == (Health.DRAINED, "in a reset: XID 79", world.now)


def test_usable_gpus_are_none_where_the_report_is_too_old(world: World) -> None:
    stale_s = world.settings.programs.report_stale_s
    world.now += stale_s
    assert given(world) == ["g0", "g1"]
    assert [health for health, _ in shown(world)] == ["ok", "ok", "sick"]
    world.now += 0.5
    assert given(world) == []
    assert {health for health, _ in shown(world)} == {"unknown"}
    world.feed(ev.DrainRequested(Target.GPU, "g1", "new fan"))
    assert [health for health, _ in shown(world)] == ["unknown", "drained", "unknown"]


def test_usable_gpus_are_none_of_an_agent_that_is_lost(world: World) -> None:
    world.feed(ev.AgentLost(AgentId("a1")))
    assert given(world) == []
    assert shown(world)[0] == ("unknown", "the master lost this agent 0 s ago")


def test_well_gpus_are_those_that_could_be_given_out_if_nobody_held_them(world: World) -> None:
    world.submit("j1", gpus=1)
    (held,) = world.state.gpus.holders
    assert held not in given(world)
    chosen = {held, GpuId("g2")}
    assert [each.id for each in well(world.state, node(world), world.now, world.settings, chosen)] == [held]
    assert well(world.state, node(world), world.now, world.settings, set()) == ()
