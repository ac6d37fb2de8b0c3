"""Reservations for waiting jobs, counted up during a match and compared with a new count."""

import random

import pytest

from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.resources import NOTHING
from tests.doubles.builders import World, gpu

_NODES = 4


def _full() -> World:
    """A cluster on which everything is taken, and twelve jobs of as many queues wait."""
    world = World()
    world.register()
    for n in range(_NODES):
        world.node(f"a{n}", *(gpu(f"g{n}-{i}") for i in range(4)))
        for half in range(2):
            world.submit(f"on{n}-{half}", gpus=2, timeout_s=100.0 * (1 + n) + 7 * half)
    for i in range(12):
        world.submit(f"j{i}", gpus=1 + i % 4, queue=f"q{i}", timeout_s=(None, 50.0, 900.0)[i % 3])
    return world


def _anew(world: World, known: Backlog, job: Job) -> object:
    fresh = Backlog(world.state, world.settings, world.now, lambda _: NOTHING)
    fresh.reservations.begin(known.reservations.every, ())
    return fresh.reservations.find(job, request_of(job, world.settings, world.state))


@pytest.mark.parametrize("seed", range(5))
def test_reservations_follow_what_is_blocked_taken_and_undone(seed: int) -> None:
    world, chance = _full(), random.Random(seed)
    backlog = Backlog(world.state, world.settings, world.now, lambda _: NOTHING)
    ledger = Ledger(backlog.reservations)
    jobs = [world.state.work.jobs[JobId(f"j{i}")] for i in range(12)]
    seen = set()
    for job in chance.sample(jobs, len(jobs)):
        backlog.block(job)
        if chance.random() < 0.3:
            with ledger.checkpoint() as trial:
                agent, other = AgentId(f"a{chance.randrange(_NODES)}"), chance.choice(jobs)
                ledger.take(Take(agent, other, request_of(other, world.settings, world.state)))
                kept_beside = backlog.reservations.find(job, request_of(job, world.settings, world.state))
                assert kept_beside == _anew(world, backlog, job)
                if chance.random() < 0.5:
                    trial.keep()
        wanted = chance.choice(jobs)
        request = request_of(wanted, world.settings, world.state)
        assert backlog.reservations.find(wanted, request) == _anew(world, backlog, wanted)
        seen |= {kept.agent_id for kept in backlog.reservations.every}
    assert len(seen) > 1, "nothing was kept"


@pytest.mark.parametrize(
    "other",
    [
        {"gpus": 3},
        {"gpu_model": ("T4", "A100")},
        {"gpu_memory_mib": 2},
        {"compute_capability": "8.0"},
        {"cpus": 2.0},
        {"mem_mib": 77},
        {"tasks": 2},
        {"min_driver": "550.1"},
        {"gpu_milli": 500},
    ],
)
def test_jobs_that_ask_for_something_else_are_not_taken_for_one_kind(other: dict[str, object]) -> None:
    world = World()
    plain = request_of(world.submit("plain", gpus=2), world.settings, world.state)
    assert request_of(world.submit("alike", gpus=2, priority=5), world.settings, world.state) == plain
    asked = request_of(world.submit("other", **{"gpus": 2, **other}), world.settings, world.state)
    assert asked != plain
    bare = world.settings.changed(executor=NOTHING)
    job = world.job("plain")
    assert request_of(job, bare, world.state).resources == job.spec.resources
    assert plain.resources == footprint_of(job, world.settings).total
