"""Gangs need ports of their nodes: what of a node was given back a while ago may have them."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.jobs.job import JobState
from tests.doubles.builders import offer
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    world.agents(2, 4)
    world.document(dev=queue(), ops=queue(shapes(2, 4)))
    world.runs("d0", "dev", 4)
    world.runs("d1", "dev", 4)
    return world


def rest(world: Tenants, cpus: float) -> None:
    """Offer what is left of each node, without ports."""
    for each in list(world.state.cluster.offers.values()):
        world.feed(ev.OfferRescinded(each.id))
    for name in world.cards:
        world.offers(replace(offer(f"rest-{name}", name, cpus=cpus), ports=()))


def test_reclaim_frees_nodes_for_a_gang_though_present_offers_have_no_ports(
    world: Tenants,
) -> None:
    world.offers(*(offer(f"whole-{name}", name) for name in world.cards))
    world.submit("gang", queue="ops", gpus=4, tasks=2)
    world.passes(1)
    rest(world, 0.01)
    assert world.passes(5) == {"d0", "d1"}
    world.obeys()
    assert world.job("gang").state is JobState.STARTING


def test_reclaim_stops_no_job_for_a_gang_on_nodes_without_ports(world: Tenants) -> None:
    rest(world, 8.0)
    world.submit("gang", queue="ops", gpus=4, tasks=2)
    assert not world.passes(5), "all that is free there is at hand, and has none"
