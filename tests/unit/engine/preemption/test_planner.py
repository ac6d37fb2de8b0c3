"""Plans of one match: several on one node, and moves only as long as they lose little."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from tests.doubles.builders import every, spec
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes

LARGE = {"queue": "ops", "gpus": 4, "preemptible": True}


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    return world


def test_plans_of_one_match_share_a_node_without_counting_a_victim_twice(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(), ops=queue(shapes(2, 2)))
    for name in "abcd":
        world.runs(name, "dev", 1)
    asked = [ev.JobSubmitted(JobId(f"j{i}"), spec(queue="ops", gpus=2)) for i in range(2)]
    effects = world.feed(*asked)
    while not (killed := {kill.task_id for kill in every(effects, fx.Kill)}):
        world.now += 1.0
        effects = world.feed(ev.Tick())
    assert killed == {"a.1", "b.1", "c.1", "d.1"}
    world.obeys()
    world.starts()
    assert {world.job(f"j{i}").state for i in range(2)} == {JobState.RUNNING}


@pytest.mark.parametrize(("lost_s", "moves"), [(1190.0, True), (1210.0, False)])
def test_moves_for_a_borrower_cost_less_than_ten_minutes_of_its_gpus(
    world: Tenants, lost_s: float, moves: bool
) -> None:
    """2 GPUs for 1200 s are as much work as the 4 GPUs that are asked for in 600 s."""
    world.agents(2, 4)
    world.document(dev=queue(), ops=queue())
    for name in "abcd":
        world.runs(name, "dev", 2)
    at = {name: world.state.work.tasks[world.job(name).task_id or ""].agent_id for name in "abcd"}  # type: ignore[index]
    world.now += 3600.0
    for name in {agent: name for name, agent in at.items()}.values():
        world.ends(name)
    for name in "abcd":
        if world.job(name).state is JobState.RUNNING:
            world.feed(ev.CheckpointTold(JobId(name)))
    world.now += lost_s - world.settings.queue.restart_s - 6  # starting again counts, too
    world.offer_again()
    world.submit("large", **LARGE)
    assert bool(world.passes(6)) is moves
