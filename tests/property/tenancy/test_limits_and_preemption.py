"""Preemption within limits of queues, compared with what the ends of all jobs of lower priority would allow."""

import random

import pytest

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from tests.unit.engine.tenancy.lending import POOL, Tenants, queue

QUEUES = {False: "small", True: "team/ml"}  # by whether there is a tree
Held = dict[str, tuple[str, int, int]]  # node, GPUs and priority by job


def cluster_of(chance: random.Random, *, has_tree: bool) -> tuple[Tenants, dict[str, int], int, Held]:
    """Return a cluster, the free GPUs of its nodes, the limit of a queue, and what runs in that queue."""
    limit = chance.randint(1, 6)
    limits = {} if has_tree else {QUEUES[has_tree]: limit}
    world = Tenants(Settings("e", "m", report_stale_s=1e9, aging_step_s=float("inf"), queue_limits=limits))
    world.register()
    for _ in range(chance.randint(1, 3)):
        world.agents(1, chance.randint(1, 4))
    if has_tree:
        above, below = chance.choice(((limit, 99), (99, limit), (limit, limit)))
        world.document(
            team=queue(limit_gpus={POOL: above * 1000}), team__ml=queue(limit_gpus={POOL: below * 1000})
        )
    free, held, left = dict(world.cards), Held(), limit
    for number in range(chance.randint(1, 5)):
        node = chance.choice([*free])
        gpus, priority = chance.randint(1, 3), chance.choice((0, 1, 2))
        if gpus <= min(free[node], left):
            name = f"before{number}"
            here = {"cpus": 0.1, "mem_mib": 32, "priority": priority}
            world.runs(name, QUEUES[has_tree], gpus, **here)
            at = next(task.agent_id for task in world.state.tasks.values() if task.job_id == name)
            held[name] = at, gpus, priority
            free[at] -= gpus
            left -= gpus
    return world, free, limit, held


def fits(gpus: int, ended: set[str], free: dict[str, int], limit: int, held: Held) -> bool:
    """Return whether a job has room on a node and in the limit when some jobs have ended."""
    here = dict(free)
    for name in ended:
        here[held[name][0]] += held[name][1]
    stays = sum(each[1] for name, each in held.items() if name not in ended)
    return max(here.values()) >= gpus and stays + gpus <= limit


@pytest.mark.parametrize("has_tree", [False, True])
@pytest.mark.parametrize("count", [30, pytest.param(3000, marks=pytest.mark.long)])
def test_limit_keeps_no_job_waiting_while_jobs_of_lower_priority_hold_it(count: int, has_tree: bool) -> None:
    stopped = 0
    for seed in range(count):
        chance = random.Random(seed)
        world, free, limit, held = cluster_of(chance, has_tree=has_tree)
        gpus, priority = chance.randint(1, min(3, limit)), chance.choice((1, 2, 3))
        lower = {name for name, (_, _, theirs) in held.items() if theirs < priority}
        world.submit(
            "late",
            queue=QUEUES[has_tree],
            gpus=gpus,
            priority=priority,
            cpus=0.1,
            mem_mib=32,
            preemptible=True,
        )
        for _ in range(30):
            world.passes(1.0)
            world.obeys()
        ended = {str(t.job_id) for t in world.state.tasks.values() if t.preempted_for == "late"}
        started = world.state.jobs[JobId("late")].state is not JobState.PENDING
        assert started == fits(gpus, lower, free, limit, held), seed
        assert ended <= lower, seed
        assert not ended or not any(fits(gpus, ended - {name}, free, limit, held) for name in ended), (
            seed,
            ended,
        )
        stopped += bool(ended)
    assert stopped > count // 10
