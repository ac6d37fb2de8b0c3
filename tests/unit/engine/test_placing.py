"""Placement in the engine: wishes of jobs, settings of the scheduler, apps, and jobs without GPUs."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import GpuNodes, JobState, Placement
from tests.doubles.builders import World, gpu, offer


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
    return world.state.work.tasks_of(JobId(name))[0].agent_id


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
def test_placement_wish_of_a_job_goes_before_the_setting(
    world: World, setting: Placement, wish: Placement | None, same: bool
) -> None:
    world.settings = world.settings.changed(placement=setting)
    world.submit("second", gpus=1, placement=wish)
    assert (agent_of(world, "second") == agent_of(world, "first")) is same


@pytest.mark.parametrize(
    ("of_app", "wish", "app", "same"),
    [
        (Placement.SPREAD, None, "web", False),
        (Placement.SPREAD, None, "db", True),
        (Placement.SPREAD, None, None, True),
        (Placement.SPREAD, Placement.BUNDLE, "web", True),
    ],
)
def test_placement_of_an_app_is_between_the_wish_and_the_setting(
    world: World, of_app: Placement, wish: Placement | None, app: str | None, same: bool
) -> None:
    world.settings = world.settings.changed(placement_of={"web": of_app})
    world.submit("second", gpus=1, placement=wish, app=app)
    assert (agent_of(world, "second") == agent_of(world, "first")) is same


def test_job_gets_gpus_that_have_what_it_asks_for_or_waits(world: World) -> None:
    cards = [replace(gpu(f"a3-{i}"), memory_mib=40_000 * (i + 1), compute_capability="8.6") for i in range(3)]
    world.node("a3", *cards)
    world.submit("small", gpus=2, gpu_memory_mib=80_000, compute_capability="8.0")
    assert world.state.work.tasks_of(JobId("small"))[0].gpus == ("a3-1", "a3-2")
    world.submit("large", gpus=1, gpu_memory_mib=120_001)
    world.submit("new", gpus=1, compute_capability="9.0")
    assert {world.job(name).state for name in ("large", "new")} == {JobState.PENDING}


def test_job_that_waits_for_memory_keeps_others_off_the_gpu_that_it_waits_for() -> None:
    world = World()
    world.register()
    cards = [replace(gpu(f"a1-{i}"), memory_mib=40_000 * (i + 1)) for i in range(2)]
    world.node("a1", *cards)
    world.submit("holder", gpus=1, gpu_memory_mib=80_000, timeout_s=60)
    world.offers(offer("rest", gpus=1, cpus=6, mem=4000))
    world.submit("waits", gpus=1, gpu_memory_mib=80_000)
    world.submit("passes", gpus=1, timeout_s=3600)
    assert world.job("waits").state is JobState.PENDING
    assert world.state.work.tasks_of(JobId("passes"))[0].gpus == ("a1-0",), "which the other cannot use"


@pytest.mark.parametrize(("needs", "goes_to"), [({}, "a"), ({"gpu_memory_mib": 80_000}, "t")])
def test_mix_of_requests_has_the_models_that_memory_requests_can_use(
    needs: dict[str, int], goes_to: str
) -> None:
    world = World()
    world.register()
    world.settings = world.settings.changed(placement=Placement.FRAGMENTATION)
    world.node("a", *(gpu(f"a-{i}") for i in range(2)), cpus=4)
    world.node("t", *(replace(gpu(f"t-{i}", "T4"), memory_mib=16_000) for i in range(2)), cpus=16)
    for number in range(6):  # their driver is nowhere, so that nothing is kept for them
        world.submit(f"pair{number}", gpus=2, min_driver="999", **needs)
    world.submit("one", gpus=1)
    assert agent_of(world, "one") == goes_to, "the tightest, unless others need its memory"


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
    world.settings = world.settings.changed(gpu_nodes=setting)
    world.submit("cpu", labels=labels)
    assert (world.job("cpu").state is not JobState.PENDING) is starts
