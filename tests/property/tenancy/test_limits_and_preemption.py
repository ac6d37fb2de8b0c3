"""Preemption within limits of queues and users, compared with the ends of all jobs of lower priority."""

import random
from typing import Any, Final

import pytest

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import Limits
from tests.chaos.rules.limits import Bound, leave_room
from tests.unit.engine.tenancy.lending import POOL, Tenants, queue

#: Queue of the jobs by what is limited.
QUEUES: Final = {
    "name": "small", "queue": "team/ml", "GPUs of a user": "team/ml", "jobs of a user": "team/ml",
}  # fmt: skip
Held = dict[str, tuple[str, int, int]]  # node, GPUs and priority by job


def cluster_of(chance: random.Random, kind: str) -> tuple[Tenants, dict[str, int], int, Held]:
    """Return a cluster, the free GPUs of its nodes, a limit, and the jobs that run within it."""
    limit = chance.randint(1, 6)
    limits = {QUEUES[kind]: limit} if kind == "name" else {}
    world = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf"), queue_limits=limits))
    world.register()
    for _ in range(chance.randint(1, 3)):
        world.agents(1, chance.randint(1, 4))
    if kind == "queue":
        above, below = chance.choice(((limit, 99), (99, limit), (limit, limit)))
        world.document(
            team=queue(limit_gpus={POOL: above * 1000}), team__ml=queue(limit_gpus={POOL: below * 1000})
        )
    elif kind != "name":
        most = Limits(max_gpus=limit) if kind == "GPUs of a user" else Limits(max_running=limit)
        world.document_of({"team": queue(), "team/ml": queue()}, users={chance.choice(("ann", "*")): most})
    free, held, left = dict(world.cards), Held(), limit
    for number in range(chance.randint(1, 5)):
        node = chance.choice([*free])
        gpus, priority = chance.randint(1, 3), chance.choice((0, 1, 2))
        if gpus <= free[node] and (taken := counted(kind, gpus)) <= left:
            name = f"before{number}"
            world.runs(name, QUEUES[kind], gpus, **request(priority))
            at = next(task.agent_id for task in world.state.work.tasks.values() if task.job_id == name)
            held[name] = at, gpus, priority
            free[at] -= gpus
            left -= taken
    return world, free, limit, held


def request(priority: int) -> dict[str, Any]:
    return {"cpus": 0.1, "mem_mib": 32, "priority": priority, "user": "ann"}


def counted(kind: str, gpus: int) -> int:
    """Return what a job takes of the limit."""
    return 1 if kind == "jobs of a user" else gpus


def fits(kind: str, gpus: int, ended: set[str], free: dict[str, int], limit: int, held: Held) -> bool:
    """Return whether a job has room on a node and in the limit when some jobs have ended."""
    here = dict(free)
    for name in ended:
        here[held[name][0]] += held[name][1]
    taken = {name: counted(kind, each[1]) for name, each in held.items()}
    return max(here.values()) >= gpus and leave_room([Bound(limit, counted(kind, gpus), taken)], ended)


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("count", [20, pytest.param(3000, marks=pytest.mark.long)])
def test_limit_keeps_no_job_waiting_while_jobs_of_lower_priority_hold_it(count: int, kind: str) -> None:
    stopped = 0
    for seed in range(count):
        chance = random.Random(seed)
        world, free, limit, held = cluster_of(chance, kind)
        gpus, priority = chance.randint(1, min(3, limit)), chance.choice((1, 2, 3))
        lower = {name for name, (_, _, theirs) in held.items() if theirs < priority}
        world.submit("late", queue=QUEUES[kind], gpus=gpus, preemptible=True, **request(priority))
        for _ in range(30):
            world.passes(1.0)
            world.obeys()
        ended = {str(t.job_id) for t in world.state.work.tasks.values() if t.preempted_for == "late"}
        started = world.state.work.jobs[JobId("late")].state is not JobState.PENDING
        assert started == fits(kind, gpus, lower, free, limit, held), seed
        assert ended <= lower, seed
        assert not ended or not any(fits(kind, gpus, ended - {name}, free, limit, held) for name in ended), (
            seed,
            ended,
        )
        stopped += bool(ended)
    assert stopped > count // 10
