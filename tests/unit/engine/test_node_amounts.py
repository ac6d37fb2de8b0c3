"""CPUs and memory of nodes, from offers and from what runs."""

from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.room.node_amounts import amounts_of
from mesos_gpu.model.resources import Resources
from tests.doubles.builders import World, gpu, offer


def amounts(world: World) -> dict[str, tuple[Resources, Resources]]:
    known = amounts_of(world.state, world.settings, world.state.cluster.nodes)
    return {str(agent_id): (each.free, each.total) for agent_id, each in known.items()}


def test_amounts_are_those_of_the_offers_and_of_what_runs() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    world.submit("j1", gpus=1, cpus=2.0, mem_mib=1024)
    assert world.job("j1").state.value == "starting"
    world.offers(offer("o9", "a1", cpus=5, gpus=1))
    free, total = amounts(world)["a1"]
    assert free.cpus == 5
    taken = footprint_of(world.job("j1"), world.settings).total + world.settings.programs.monitor
    assert total - free == taken
    assert taken.cpus == 1.96 + 0.02
    assert taken.mem_mib == 1024 + 48 + 96


def test_node_whose_offer_was_used_has_no_amounts_until_the_next_one() -> None:
    world = World()
    world.register()
    world.submit("j1", gpus=0)
    world.offers(offer("o1", "a1"))
    assert world.job("j1").state.value == "starting"
    assert "a1" not in amounts(world)
    world.offers(offer("o2", "a1", cpus=1))
    assert amounts(world)["a1"][0].cpus == 1
