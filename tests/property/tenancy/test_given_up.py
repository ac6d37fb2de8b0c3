"""Room of a gang that starts again, compared with the GPUs that its last launch held."""

import random

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from tests.unit.engine.tenancy.lending import Tenants, queue

QUEUES = {False: "small", True: "team/ml"}  # by whether there is a tree
AMOUNTS = {"cpus": 0.1, "mem_mib": 32}


def cluster_of(chance: random.Random, where: str, *, has_tree: bool) -> Tenants:
    """Return a cluster on which a gang and others run, and jobs behind the gang wait."""
    world = Tenants(Settings("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    world.register()
    for _ in range(chance.randint(2, 4)):
        world.agents(1, chance.randint(2, 4))
    if has_tree:
        world.document(team=queue(), team__ml=queue())
    tasks, gpus = 2, chance.randint(1, 2)
    world.runs("gang", where, gpus, tasks=tasks, max_attempts=3, preemptible=False, **AMOUNTS)
    for number in range(chance.randint(0, 8)):
        world.submit(f"beside{number}", queue=where, gpus=1, **AMOUNTS)
    world.offer_again()
    world.starts()
    for number in range(chance.randint(1, 3)):
        world.submit(f"behind{number}", queue=where, gpus=chance.randint(1, 4), **AMOUNTS)
    world.passes(2)
    world.starts()
    return world


def ends_one(world: Tenants, chance: random.Random) -> str:
    """End a member of the gang; return the name of its drained node, or "" if none is drained."""
    member = chance.choice(world.state.round_of(world.job("gang")))
    how = chance.choice(("drain", "TASK_FAILED", "TASK_LOST"))
    if how == "drain":
        host = world.state.nodes[member.agent_id].hostname
        world.feed(ev.DrainRequested(Target.NODE, host, "new fan", "ann", 1.0))
        return host
    world.status(member.id, how, agent=member.agent_id)
    return ""


@pytest.mark.parametrize("has_tree", [False, True])
@pytest.mark.parametrize("count", [10, pytest.param(2000, marks=pytest.mark.long)])
def test_no_job_behind_a_gang_takes_what_it_gave_up(count: int, has_tree: bool) -> None:
    waited = 0
    for seed in range(count):
        chance = random.Random(seed)
        world = cluster_of(chance, QUEUES[has_tree], has_tree=has_tree)
        first = world.state.round_of(world.job("gang"))
        held = {gpu for task in first for gpu in task.gpus}
        known = {*world.state.tasks}
        host = ends_one(world, chance)
        for second in range(40):
            world.passes(1.0 if second < 20 else 20.0)
            world.obeys()
            if second == 10 and host:
                world.feed(ev.UndrainRequested(Target.NODE, host))
            behind = [
                task
                for task in world.state.tasks.values()
                if task.id not in known and str(task.job_id).startswith("behind")
            ]
            gang = world.job("gang")
            if gang.state is JobState.RUNNING and gang.launches > 1:
                break
            waited += gang.state is JobState.PENDING
            taken = [task.id for task in behind if held & {*task.gpus}]
            assert not taken or gang.launches > 1, (seed, taken)
            world.starts()
        assert world.job("gang").state is JobState.RUNNING, seed
    assert waited
