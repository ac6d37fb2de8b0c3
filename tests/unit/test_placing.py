"""Where the engine puts jobs: their own wish, the scheduler's setting, apps, and work without GPUs."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.job import GpuNodes, JobState, Placement
from mesos_gpu.testing.builders import World, gpu, offer


@pytest.fixture
def world() -> World:
    """Two nodes with two GPUs each; one GPU of the first is in use."""
    world = World()
    world.register()
    for agent in ("a1", "a2"):
        world.node(agent, *(gpu(f"{agent}-{i}") for i in range(2)))
    world.submit("first", gpus=1, app="web")
    agent = agent_of(world, "first")
    world.offers(offer("again", agent, gpus=1, cpus=8, mem=4000))
    return world


def agent_of(world: World, name: str) -> str:
    return world.state.tasks_of(JobId(name))[0].agent_id


@pytest.mark.parametrize(
    ("setting", "wish", "same"),
    [
        (Placement.BUNDLE, None, True),
        (Placement.SPREAD, None, False),
        (Placement.SPREAD, Placement.BUNDLE, True),
        (Placement.BUNDLE, Placement.SPREAD, False),
        (Placement.FRAGMENTATION, None, True),
        (Placement.BUNDLE, Placement.FRAGMENTATION, True),
    ],
)
def test_the_jobs_wish_goes_before_the_setting(
    world: World, setting: Placement, wish: Placement | None, same: bool
) -> None:
    world.settings = replace(world.settings, placement=setting)
    world.submit("second", gpus=1, placement=wish)
    assert (agent_of(world, "second") == agent_of(world, "first")) is same


@pytest.mark.parametrize(
    ("setting", "labels", "starts"),
    [
        (GpuNodes.LAST, {}, True),
        (GpuNodes.NEVER, {}, False),
        (GpuNodes.NEVER, {"GPU_SCHEDULING_BEHAVIOR": "unrestricted"}, True),
        (GpuNodes.LAST, {"GPU_SCHEDULING_BEHAVIOR": "restricted"}, False),
        (GpuNodes.LAST, {"GPU_SCHEDULING_BEHAVIOR": "anything"}, True),
    ],
)
def test_work_without_gpus_on_nodes_with_some(
    world: World, setting: GpuNodes, labels: dict[str, str], starts: bool
) -> None:
    world.settings = replace(world.settings, gpu_nodes=setting)
    world.submit("cpu", labels=labels)
    assert (world.job("cpu").state is not JobState.PENDING) is starts
