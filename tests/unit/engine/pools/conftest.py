"""Two nodes of two models, each a pool of its own in the documents of these tests."""

import pytest

from tests.doubles.builders import gpu
from tests.unit.engine.tenancy.lending import Tenants


@pytest.fixture
def world() -> Tenants:
    """Four fast GPUs on one node and four slow ones on another."""
    world = Tenants()
    world.register()
    for agent, model in (("fast", "H100"), ("slow", "T4")):
        world.cards[agent] = 4
        world.node(agent, *(gpu(f"{agent}{i}", model) for i in range(4)), cpus=64)
    return world
