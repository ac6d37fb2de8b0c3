"""Explanations for waiting jobs about guaranteed GPUs: free ones, and those that other jobs give back, and when."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import Waiting
from mesos_gpu.model.jobs.why import PendingReclaim, Stage, Why
from mesos_gpu.model.tenancy import MinRuntime
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    return world


def why(world: Tenants, name: str) -> Why:
    return why_of(world.state, world.settings, world.now, world.job(name))


def start_of(told: Why) -> float:
    """Return when the job is expected to start."""
    assert told.estimate is not None
    assert told.estimate.at is not None, told.estimate.basis
    return told.estimate.at


def listed(world: Tenants) -> list[Waiting]:
    asked = world.state, world.settings, world.now
    return Forecast(*asked, standing_of(*asked), Coming(*asked)).waiting(10)


def test_explanation_estimates_a_reclaim_after_the_minimum_run_time(world: Tenants) -> None:
    world.agents(2, 4)
    world.document(dev=queue(min_runtime_s=MinRuntime(600.0, 6000.0)), prod=queue(shapes(1, 4)))
    world.runs("first", "dev", 3, kill_grace_s=10.0)
    started = world.job("first").started_at
    world.passes(60)
    world.runs("second", "dev", 4)
    assert started is not None
    world.submit("owed", queue="prod", gpus=4)
    assert not world.passes(5)
    told = why(world, "owed")
    clock = datetime.fromtimestamp(started + 600, UTC).strftime("%H:%MZ")
    assert told.summary.partition(" GPUs, ")[2].startswith(
        f"guaranteed by queue prod: 1 GPU is free, on 1 node; reclaim of 3 GPUs from queue dev (first) at {clock} "
        "after its minimum run time"
    ), told.summary
    assert (told.funnel[-1].reason, told.funnel[-1].removed) == (Stage.GUARANTEE, 1)
    assert told.funnel[-1].example in told.summary
    assert told.estimate is not None
    assert start_of(told) == pytest.approx(started + 600 + 10)
    assert told.estimate.basis.startswith("reclaim of 3 GPUs from queue dev (first) at ")
    assert [each.estimate for each in listed(world)] == [told.estimate]
    # It comes true.
    assert not world.passes(started + 598 - world.now)
    assert world.passes(4) == {"first"}
    told = why(world, "owed")
    assert told.summary.startswith("preempts first, which ends by ")
    assert start_of(told) == pytest.approx(started + 611, abs=3)
    world.obeys()
    assert world.job("owed").state is JobState.STARTING


def test_explanation_counts_seats_in_pieces_and_a_number_is_no_node(world: Tenants) -> None:
    world.agents(2, 4)
    world.document(prod=queue(8), dev=queue())
    for i, size in enumerate((3, 3, 1, 1)):
        world.runs(f"held{i}", "prod", size)
    world.ends("held2")
    world.ends("held3")
    world.submit("owed", queue="prod", gpus=2, preemptible=True)
    world.passes(6)
    told = why(world, "owed")
    assert told.summary.endswith(
        "guaranteed by queue prod: 2 GPUs are free, on 2 nodes with at most 1 each; 6 GPUs are held by jobs within "
        "guarantees; queue prod is guaranteed a number of GPUs, which may be scattered over nodes"
    ), told.summary
    assert told.funnel[-1].reason is Stage.FRAGMENTATION


def test_explanation_reports_that_a_job_borrows(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(prod=queue(2), dev=queue(2))
    world.runs("seated", "prod", 2)
    world.runs("other", "dev", 2)
    world.submit("more", queue="prod", gpus=1, preemptible=True)
    world.passes(6)
    told = why(world, "more")
    assert told.summary.endswith("; it borrows, as nothing that queue prod is guaranteed is free for it"), (
        told.summary
    )


def test_explanation_reports_a_job_larger_than_any_seat(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(prod=queue(shapes(1, 2)), dev=queue(2))
    world.runs("small", "dev", 2)
    world.submit("large", queue="prod", gpus=4, preemptible=True)
    world.passes(6)
    told = why(world, "large")
    assert (
        "; it borrows, as what queue prod is guaranteed has no room for it even when it is all free"
        in told.summary
    )


def test_estimates_of_two_jobs_do_not_promise_the_same_gpus(world: Tenants) -> None:
    world.agents(2, 2)
    world.document(dev=queue(min_runtime_s=MinRuntime(600.0, 6000.0)), prod=queue(shapes(2, 2)))
    world.runs("first", "dev", 2)
    world.passes(100)
    world.runs("second", "dev", 2)
    world.submit("one", queue="prod", gpus=2)
    world.submit("two", queue="prod", gpus=2)
    world.passes(6)
    started = [world.job(name).started_at or 0.0 for name in ("first", "second")]
    ends = [each.estimate.at for each in listed(world)]
    assert ends == [pytest.approx(at + 600 + world.job("first").spec.kill_grace_s) for at in started]
    assert (
        why(world, "two").estimate == listed(world)[1].estimate
        or "stands before" in listed(world)[1].estimate.basis
    )


@pytest.mark.parametrize("least_s", [0.0, 600.0])
def test_estimate_counts_what_an_earlier_job_leaves_of_a_victim(world: Tenants, least_s: float) -> None:
    world.agents(2, 4)
    world.document(dev=queue(min_runtime_s=MinRuntime(least_s, 6000.0)), prod=queue(shapes(2, 4)))
    world.runs("first", "dev", 4, cpus=16, mem_mib=4096)
    world.passes(100)
    world.runs("second", "dev", 4, cpus=16, mem_mib=4096)
    for name in ("one", "two", "three"):
        world.submit(name, queue="prod", gpus=2)
    waiting = listed(world)
    gives = ["first" if "(first)" in each.estimate.basis else "second" for each in waiting]
    assert [each.job.id for each in waiting] == ["one", "two", "three"]
    assert gives[0] == gives[1] != gives[2]
    assert waiting[0].estimate.at == waiting[1].estimate.at
    # It comes true.
    ended = world.passes(620)
    assert ended == {"first", "second"}
    world.obeys()
    world.starts()
    assert all(world.job(name).state is JobState.RUNNING for name in ("one", "two", "three"))


def test_explanation_names_the_patience_of_a_queue(world: Tenants) -> None:
    world.agents(1, 2)
    world.document(dev=queue(), prod=queue(2, patience=10.0))
    world.runs("borrows", "dev", 2)
    world.passes(60)
    world.submit("owed", queue="prod", gpus=2)
    assert not world.passes(10)
    told = why(world, "owed")
    assert "patience of its queue" in told.summary
    told_at = start_of(told) - world.job("borrows").spec.kill_grace_s
    assert not world.passes(told_at - world.now - 2)
    assert world.passes(4) == {"borrows"}


def test_explanation_tells_apart_gpus_of_jobs_that_are_not_stopped(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(fence=True), prod=queue(4))
    world.runs("fenced", "dev", 3)
    world.submit("owed", queue="prod", gpus=4)
    assert not world.passes(10)
    told = why(world, "owed")
    assert "3 GPUs by jobs that are not preempted for it" in told.summary, told.summary
    assert told.estimate is not None
    assert told.estimate.at is None


class Anew(Coming):
    """Has a rule of its own, and plans anew, for each job."""

    def _find(self, backlog: Backlog, job: Job) -> PendingReclaim | None:
        self._asked = None  # of no line
        return super()._find(backlog, job)


#: Seeds of worlds with sixteen jobs that wait.
MANY = [pytest.param(seed, 16, marks=pytest.mark.long) for seed in range(4)]


def lends(world: Tenants, chance: random.Random, jobs: int, **more: Any) -> None:
    """Have queues with guarantees ask for GPUs that others have borrowed, some of which are protected still.

    Args:
        world: The engine.
        chance: Draws the jobs.
        jobs: Number of jobs that wait; half as many more run.
        more: Fields of the jobs that run.
    """
    world.agents(jobs * 6 // 16, 4)
    world.document(
        dev=queue(min_runtime_s=MinRuntime(300.0, 6000.0)),
        lab=queue(min_runtime_s=MinRuntime(60.0, 600.0)),
        prod=queue(10),
        ops=queue(shapes(2, 4), patience=chance.choice((0.0, 1.0))),
    )
    for i in range(jobs * 3 // 2):
        gpus = chance.choice((1, 1, 2))
        if sum(len(task.gpus) for task in world.state.work.tasks.values()) + gpus <= jobs * 20 // 16:
            world.runs(f"held{i}", chance.choice(("dev", "lab")), gpus, kill_grace_s=10.0, **more)
            world.passes(chance.randrange(20))
    for i in range(jobs):
        wanted = chance.choice(("prod", "ops", "dev", "lab"))
        world.submit(
            f"owed{i}", queue=wanted, gpus=chance.choice((1, 2, 4)), priority=i % 3, preemptible=True
        )


@pytest.mark.parametrize(("seed", "jobs"), [(2, 8), *MANY[:3]])
def test_forecast_by_one_rule_for_all_jobs_equals_one_for_each(world: Tenants, seed: int, jobs: int) -> None:
    lends(world, random.Random(seed), jobs)
    asked = world.state, world.settings, world.now
    answers = [
        (
            forecast.waiting(100),
            [coming.owed(forecast.backlog, job) for job in forecast.jobs],
        )
        for coming in (Coming(*asked), Anew(*asked))
        for forecast in [Forecast(*asked, standing_of(*asked), coming)]
    ]
    assert answers[0] == answers[1]
    rooms = [owed.room for owed in answers[0][1] if owed is not None and owed.room is not None]
    assert len(rooms) > 1, "others make room for several jobs"


class Thorough(Forecast):
    """Looks a second time at all who stand before a job."""

    learns = True


@pytest.mark.parametrize(("seed", "jobs"), [(1, 8), *MANY])
def test_forecast_by_one_look_at_the_jobs_before_equals_two(world: Tenants, seed: int, jobs: int) -> None:
    lends(world, random.Random(seed), jobs, timeout_s=5000.0)
    world.passes(seed * 40)
    asked = world.state, world.settings, world.now
    rooms = list[PendingReclaim | None]()
    for job in Forecast(*asked, standing_of(*asked)).jobs:
        answers = []
        for kind in (Forecast, Thorough):
            coming = Coming(*asked)
            forecast = kind(*asked, standing_of(*asked), coming, until=job.id)
            forecast.before(job.id)
            answers.append((forecast.estimate(job), coming.owed(forecast.backlog, job)))
            rooms.append(coming.of(forecast.backlog, job))
        assert answers[0] == answers[1], job.id
    assert None in rooms
    assert any(rooms)
