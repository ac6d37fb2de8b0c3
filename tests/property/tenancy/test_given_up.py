"""Room of a gang that starts again, compared with the GPUs that its last launch held."""

import random

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.tenancy import Guarantee, Hours
from tests.chaos.rules.gangs import taken
from tests.unit.engine.tenancy.lending import POOL, Tenants, queue

#: Queue of the jobs by what there is.
QUEUES = {"no tree": "small", "tree": "team/ml", "guarantee": "team/ml", "limit": "team/ml"}
AMOUNTS = {"cpus": 0.1, "mem_mib": 32}


def cluster_of(chance: random.Random, kind: str) -> Tenants:
    """Return a cluster on which a gang and others run, and jobs behind the gang wait."""
    world = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    world.register()
    for _ in range(chance.randint(2, 4)):
        world.agents(1, chance.randint(2, 4))
    where, tasks, gpus = QUEUES[kind], 2, chance.randint(1, 2)
    owed = sum(world.cards.values()) if kind == "guarantee" else 0
    limit = {POOL: tasks * gpus * 1000} if kind == "limit" else {}
    if kind != "no tree":
        world.document(team=queue(limit_gpus=limit), team__ml=queue(owed))
    world.runs("gang", where, gpus, tasks=tasks, max_attempts=3, preemptible=False, **AMOUNTS)
    for number in range(0 if kind == "limit" else chance.randint(0, 8)):
        world.submit(f"beside{number}", queue=where, gpus=1, **AMOUNTS)
    world.offer_again()
    world.starts()
    for number in range(chance.randint(1, 3)):
        most = tasks * gpus if kind == "limit" else 4
        world.submit(f"behind{number}", queue=where, gpus=chance.randint(1, most), **AMOUNTS)
    world.passes(2)
    world.starts()
    return world


def ends_one(world: Tenants, chance: random.Random) -> str:
    """End a member of the gang; return the name of its drained node, or "" if none is drained."""
    member = chance.choice(world.state.work.round_of(world.job("gang")))
    how = chance.choice(("drain", "TASK_FAILED", "TASK_LOST"))
    if how == "drain":
        host = world.state.cluster.nodes[member.agent_id].hostname
        world.feed(ev.DrainRequested(Target.NODE, host, "new fan", "ann", 1.0))
        return host
    world.status(member.id, how, agent=member.agent_id)
    return ""


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("count", [10, pytest.param(1000, marks=pytest.mark.long)])
def test_no_job_behind_a_gang_takes_what_it_gave_up(count: int, kind: str) -> None:
    waited = 0
    for seed in range(count):
        chance = random.Random(seed)
        world = cluster_of(chance, kind)
        first = world.state.work.round_of(world.job("gang"))
        known = {*world.state.work.tasks}
        host = ends_one(world, chance)
        for second in range(40):
            world.passes(1.0 if second < 20 else 20.0)
            world.obeys()
            if second == 10 and host:
                world.feed(ev.UndrainRequested(Target.NODE, host))
            behind = [
                task
                for task in world.state.work.tasks.values()
                if task.id not in known and str(task.job_id).startswith("behind")
            ]
            gang = world.job("gang")
            if gang.state is JobState.RUNNING and gang.launches > 1:
                break
            waited += gang.state is JobState.PENDING
            assert gang.launches > 1 or not taken(first, behind), seed
            assert not behind or kind != "limit" or gang.launches > 1, (seed, "the limit is the gang's")
            world.starts()
        assert world.job("gang").state is JobState.RUNNING, seed
    assert waited


@pytest.mark.parametrize("kind", QUEUES)
def test_gang_that_no_node_is_left_for_keeps_no_room(kind: str) -> None:
    world = Tenants(
        Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf"), keep_lost_nodes_s=30.0)
    )
    world.register()
    world.agents(2, 4)
    if kind != "no tree":
        limit = {POOL: 8000} if kind == "limit" else {}
        world.document(team=queue(limit_gpus=limit), team__ml=queue(8 if kind == "guarantee" else 0))
    world.runs("gang", QUEUES[kind], 4, tasks=2, max_attempts=3, preemptible=False, **AMOUNTS)
    world.submit("behind", queue=QUEUES[kind], gpus=4, **AMOUNTS)
    first, second = world.state.work.round_of(world.job("gang"))
    world.feed(ev.AgentLost(second.agent_id))
    world.status(second.id, "TASK_LOST", agent=second.agent_id)
    for _ in range(5):
        world.passes(1)
        world.obeys()
    assert world.job("gang").state is JobState.PENDING
    assert world.job("behind").state is JobState.PENDING, "the host may come back"
    world.status(str(world.state.cluster.nodes[second.agent_id].monitor), "TASK_GONE", agent=second.agent_id)
    for _ in range(10):
        world.passes(30)
        world.starts()
    assert [*world.state.cluster.nodes] == [first.agent_id]
    assert world.job("gang").state is JobState.PENDING
    assert world.job("behind").state is JobState.RUNNING
    assert first.agent_id == world.state.work.tasks_of(world.job("behind").id)[0].agent_id


def test_gang_that_its_limit_never_lets_in_again_keeps_no_room() -> None:
    world = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    world.register()
    world.agents(1, 2)
    world.document(team=queue(), team__ml=queue())
    world.runs("gang", "team/ml", 1, tasks=2, max_attempts=3, **AMOUNTS)
    world.submit("behind", queue="team/ml", gpus=1, preemptible=True, **AMOUNTS)
    world.document(team=queue(), team__ml=queue(limit_gpus={POOL: 1000}))
    first, *_ = world.state.work.round_of(world.job("gang"))
    world.status(first.id, "TASK_FAILED", agent=first.agent_id)
    world.obeys()
    world.passes(5)
    assert [world.job(name).state.value for name in ("gang", "behind")] == ["pending", "starting"]


def daily(gpus: int, begins: str) -> Hours:
    """Return an hour of each day in which a queue is guaranteed so many GPUs."""
    return Hours(begins, f"{int(begins[:2]) + 1}:00", guarantee_gpus={POOL: Guarantee(gpus * 1000)})


@pytest.mark.parametrize(
    "hours",
    [
        pytest.param((), id="no hours"),
        pytest.param((daily(1, "13:00"),), id="now, and too few"),
        pytest.param((daily(2, "20:00"),), id="later"),
    ],
)
def test_gang_that_no_guarantee_lets_in_again_keeps_no_room(hours: tuple[Hours, ...]) -> None:
    world = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    world.register()
    world.agents(1, 4)
    world.document(team=queue(), team__ml=queue())
    world.runs("gang", "team/ml", 1, tasks=2, max_attempts=3, **{**AMOUNTS, "preemptible": False})
    world.document(other=queue(1), team=queue(), team__ml=queue(limit_gpus={POOL: 2000}, hours=hours))
    world.submit("behind", queue="team/ml", gpus=1, preemptible=True, **AMOUNTS)
    first, *_ = world.state.work.round_of(world.job("gang"))
    world.status(first.id, "TASK_FAILED", agent=first.agent_id)
    world.obeys()
    world.passes(5)
    assert [world.job(name).state.value for name in ("gang", "behind")] == ["pending", "starting"]
