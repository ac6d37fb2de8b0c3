"""Lend limits and guarantees of random queues, step by step."""

import random

import pytest

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.jobs.job import JobState
from tests.chaos.rules.tree import kept_from
from tests.unit.engine.tenancy.lending import POOL, Tenants, queue

Plan = dict[str, tuple[int, int | None]]  # guarantee and lend limit by queue, GPUs


def plan_of(chance: random.Random, gpus: int) -> Plan:
    """Return queues whose guarantees are no more than a number of GPUs."""
    plan, left = Plan(), gpus
    for name in ("one", "two", "three"):
        owed = chance.randint(0, left)
        left -= owed
        plan[name] = owed, chance.choice((None, 0, chance.randint(0, owed)))
    return plan


def world_of(plan: Plan, gpus: int, chance: random.Random) -> Tenants:
    world = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    world.register()
    while gpus:
        here = chance.randint(1, gpus)
        world.agents(1, here)
        gpus -= here
    world.document(
        **{
            name: queue(owed, **({} if lent is None else {"lend_limit_gpus": {POOL: lent * 1000}}))
            for name, (owed, lent) in plan.items()
        }
    )
    return world


def counts(world: Tenants, plan: Plan, *states: JobState) -> dict[str, int]:
    """Return by queue how many jobs are in some states."""
    jobs = [job for job in world.state.work.jobs.values() if job.state in states]
    return {name: sum(job.spec.queue == name for job in jobs) for name in plan}


def kept(name: str, plan: Plan, held: dict[str, int]) -> int:
    """Return the GPUs that other queues keep idle."""
    lent = {each: most for each, (_, most) in plan.items() if most is not None}
    return kept_from(name, {each: owed for each, (owed, _) in plan.items()}, lent, held)


HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.KILLING)


@pytest.mark.parametrize("count", [8, pytest.param(1000, marks=pytest.mark.long)])
def test_queues_lend_no_more_than_their_limits_and_get_their_guarantees(count: int) -> None:
    stopped = 0
    for seed in range(count):
        chance = random.Random(seed)
        gpus = chance.randint(2, 8)
        plan = plan_of(chance, gpus)
        world = world_of(plan, gpus, chance)
        number, before = 0, dict.fromkeys(plan, 0)
        for _ in range(6):
            name = chance.choice([*plan])
            if chance.random() < 0.25:
                running = [j for j in world.state.work.jobs.values() if j.state is JobState.RUNNING]
                for job in chance.sample(running, min(len(running), 2)):
                    world.ends(job.id)
            for _ in range(chance.randint(1, 5)):
                world.submit(f"j{number}", queue=name, gpus=1, cpus=0.1, mem_mib=32, preemptible=True)
                number += 1
            for _ in range(12):
                world.passes(1.0)
                world.starts()
                held = counts(world, plan, *HOLDING)
                for each in plan:
                    free = gpus - sum(held.values())
                    assert held[each] <= before[each] or free >= kept(each, plan, held), (seed, each)
                before = held
                stopped += len(world.obeys())
                before = counts(world, plan, *HOLDING)
            waiting = counts(world, plan, JobState.PENDING)
            for each, (owed, _) in plan.items():
                assert before[each] >= min(owed, before[each] + waiting[each]), (seed, each)
                free = gpus - sum(before.values())
                assert not waiting[each] or free <= kept(each, plan, before), (seed, each)
    assert stopped >= count // 8
