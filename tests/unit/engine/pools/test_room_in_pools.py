"""Room that others make for a job, when its queue may not use their pool any more."""

from dataclasses import replace

import pytest

from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import Hours, Pool, QueueSpec
from tests.doubles.builders import gpu
from tests.unit.engine.pools.test_pool_order import FAST, SLOW, owed
from tests.unit.engine.tenancy.lending import Tenants

POOLS = (Pool("fast", models=("H100",), dedicated=True), Pool("slow", models=("T4",), dedicated=True))
NOTICE_S = 30.0


def _may_use(world: Tenants, *pools: str) -> None:
    """The team may use these pools, and is guaranteed slow cards if it may use them; fast ones are another's."""
    queues = {
        "team": QueueSpec(pools=pools, guarantee_gpus=owed(slow=2) if "slow" in pools else {}),
        "dev": QueueSpec(pools=("fast", "slow"), guarantee_gpus=owed(fast=4), notice_s=NOTICE_S),
    }
    world.document_of(queues, pools=POOLS)


def _lent(world: Tenants) -> Task:
    (task,) = world.state.work.round_of(world.job("lent"))
    return task


@pytest.fixture
def told(world: Tenants) -> Tenants:
    """A borrower on the slow node was told to make room for a job that is guaranteed it; the fast node is full."""
    _may_use(world, "slow")
    world.runs("mine", "dev", 4, gpu_model=("H100",))
    world.runs("lent", "dev", 4, gpu_model=("T4",))
    world.submit("owed", queue="team", gpus=2)
    world.passes(10)
    notice = _lent(world).notice
    assert notice is not None
    assert (notice.stands, notice.reason) == (True, NoticeReason.RECLAIM)
    return world


def test_notice_is_withdrawn_when_the_taker_may_not_use_the_pool_any_more(told: Tenants) -> None:
    _may_use(told, "fast")
    assert not told.passes(NOTICE_S + 10)
    notice = _lent(told).notice
    assert notice is not None
    assert not notice.stands
    assert (told.job("owed").room_made_at, told.job("owed").room_on) == (None, ())


def test_room_stands_in_a_pool_that_a_job_may_use_among_others(told: Tenants) -> None:
    _may_use(told, "slow", "fast")
    assert told.passes(NOTICE_S + 5) == {"lent"}
    told.obeys()
    told.passes(2)
    assert told.job("owed").state is not JobState.PENDING


def test_room_for_a_gang_in_two_pools_without_an_order_is_kept_until_all_of_it_is_there(
    world: Tenants,
) -> None:
    world.document_of({"team": QueueSpec(), "other": QueueSpec()}, pools=(FAST, SLOW))
    for name, model in (("low0", "H100"), ("low1", "T4")):
        world.runs(name, "team", 4, gpu_model=(model,))
    world.submit("gang", queue="team", gpus=3, tasks=2, priority=5, preemptible=True)
    assert world.passes(5) == {"low0", "low1"}
    world.submit("next", queue="other", gpus=2, preemptible=True)
    world.ends("low0", "TASK_KILLED")
    world.passes(5)
    assert world.job("next").state is JobState.PENDING
    world.ends("low1", "TASK_KILLED")
    world.passes(2)
    assert world.job("gang").state is not JobState.PENDING


@pytest.mark.parametrize("by", ["limit", "hours"])
def test_job_with_room_only_beyond_its_limit_does_not_starve_the_next(by: str) -> None:
    world = Tenants()
    world.register()
    world.node("fast", *(gpu(f"f{i}", "H100") for i in range(4)), cpus=64)
    world.node("slow", gpu("s0", "T4"), cpus=64)
    nothing = {"fast": 0}
    hours = Hours("00:00", "23:00", zone="UTC", limit_gpus=nothing)
    team = QueueSpec(limit_gpus=nothing) if by == "limit" else QueueSpec(hours=(hours,))
    queues = {"team": replace(team, starve_after_s=30.0), "busy": QueueSpec(weight=9, starve_after_s=3600.0)}
    world.document_of(queues, pools=(FAST, SLOW))
    for i in range(5):
        world.runs(f"b{i}", "busy", gpu_model=("T4",) if i == 4 else ("H100",))
    world.submit("pair", queue="team", gpus=2, preemptible=True)
    world.submit("one", queue="team", gpus=1, preemptible=True)
    for i in range(5, 9):
        world.submit(f"b{i}", queue="busy", gpus=1, preemptible=True)
    world.passes(40)
    world.ends("b4")
    world.passes(2)
    assert world.job("one").state is not JobState.PENDING
    assert world.job("pair").state is JobState.PENDING
