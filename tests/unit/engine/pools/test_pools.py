"""Two pools: what is guaranteed in one is reclaimed there, and who borrows in one takes nothing owed in the other."""

from typing import Any

from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tenancy import Guarantee, JobClass, Pool, QueueSpec
from tests.unit.engine.tenancy.lending import Tenants

POOLS = (Pool("fast", models=("H100",)), Pool("slow", models=("T4",)))


def owed(**gpus: int) -> QueueSpec:
    """A queue that is guaranteed so many GPUs, by pool."""
    return QueueSpec(guarantee_gpus={pool: Guarantee(count * 1000) for pool, count in gpus.items()})


def pools(world: Tenants, *classes: JobClass, **queues: QueueSpec) -> None:
    world.document_of(queues, pools=POOLS, classes=classes)


def seat(world: Tenants, name: str) -> tuple[str, str] | None:
    held = world.state.work.jobs[JobId(name)].seat
    return None if held is None else (held.queue, held.pool)


def agents_of(world: Tenants, name: str) -> set[str]:
    return {str(task.agent_id) for task in world.state.work.round_of(world.job(name))}


def why(world: Tenants, name: str) -> Any:
    return why_of(world.state, world.settings, world.now, world.job(name))


def test_guarantee_in_a_pool_is_reclaimed_there_and_nowhere_else(world: Tenants) -> None:
    pools(world, prod=owed(fast=4), dev=owed(slow=2))
    world.runs("fast", "dev", 4, gpu_model=("H100",))
    world.runs("slow", "dev", 4, gpu_model=("T4",))
    assert (seat(world, "fast"), seat(world, "slow")) == (None, None), (
        "4 are more than its 2, in another pool"
    )
    world.submit("owed", queue="prod", gpus=2)
    told = why(world, "owed")
    assert told.estimate is not None
    assert world.passes(6) == {"fast"}
    world.obeys()
    world.starts()
    assert agents_of(world, "owed") == {"fast"}
    assert seat(world, "owed") == ("prod", "fast")
    assert world.job("slow").state is JobState.RUNNING


def test_borrowing_in_one_pool_takes_nothing_of_what_is_owed_in_the_other(world: Tenants) -> None:
    pools(world, prod=owed(fast=2, slow=2), dev=owed(fast=2))
    world.runs("lent", "prod", 4, gpu_model=("T4",))
    assert seat(world, "lent") is None
    world.runs("dev", "dev", 4, gpu_model=("H100",))
    assert seat(world, "dev") is None
    world.submit("owed", queue="prod", gpus=2, gpu_model=("H100",))
    assert world.passes(6) == {"dev"}
    world.obeys()
    assert seat(world, "owed") == ("prod", "fast")


def test_job_that_may_use_both_pools_has_its_seat_where_there_is_one(world: Tenants) -> None:
    pools(world, prod=owed(slow=4), dev=owed(fast=4))
    world.runs("either", "prod", 2)
    assert (agents_of(world, "either"), seat(world, "either")) == ({"slow"}, ("prod", "slow"))
    world.runs("holds", "dev", 2)
    assert (agents_of(world, "holds"), seat(world, "holds")) == ({"fast"}, ("dev", "fast"))


def test_non_preemptible_job_starts_only_in_the_pool_of_its_seat(world: Tenants) -> None:
    pools(world, prod=owed(slow=4), dev=owed(fast=4))
    world.runs("lent", "dev", 3, gpu_model=("T4",))
    world.submit("firm", queue="prod", gpus=2)
    assert world.passes(6) == {"lent"}, "though there is room in the other pool, where it would borrow"
    world.obeys()
    assert (agents_of(world, "firm"), seat(world, "firm")) == ({"slow"}, ("prod", "slow"))


def test_preemptible_job_borrows_in_the_other_pool_while_its_own_is_full(world: Tenants) -> None:
    pools(world, prod=owed(slow=4), dev=owed(fast=4))
    world.runs("lent", "dev", 3, gpu_model=("T4",))
    world.runs("either", "prod", 2)
    assert (agents_of(world, "either"), seat(world, "either")) == ({"fast"}, None)
    assert world.job("lent").stopped == 0


def test_job_is_never_placed_in_a_pool_that_its_class_may_not_use_and_why_reports_it(world: Tenants) -> None:
    pools(world, JobClass("cheap", pools=("slow",)), prod=owed(fast=4), dev=owed(slow=4))
    world.runs("holds", "dev", 4, gpu_model=("T4",))
    world.submit("waits", queue="dev", gpus=1, job_class="cheap", preemptible=True)
    world.passes(10)
    told = why(world, "waits")
    assert world.job("waits").state is JobState.PENDING
    assert {row.reason for row in told.funnel} == {Stage.POOL, Stage.GPUS}
    assert "is in pool fast, and class cheap is for slow" in next(
        row.example for row in told.funnel if row.reason is Stage.POOL
    )
    world.ends("holds")
    assert agents_of(world, "waits") == {"slow"}


def test_seat_of_a_job_is_in_a_pool_that_its_class_may_use(world: Tenants) -> None:
    pools(world, JobClass("cheap", pools=("slow",)), prod=owed(fast=4, slow=4), dev=owed())
    world.runs("lent", "dev", 3, gpu_model=("T4",))
    world.submit("firm", queue="prod", gpus=2, job_class="cheap")
    assert world.passes(6) == {"lent"}, "though the fast ones are free"
    world.obeys()
    assert (agents_of(world, "firm"), seat(world, "firm")) == ({"slow"}, ("prod", "slow"))


def test_reclaim_makes_no_room_in_a_pool_where_a_limit_forbids_the_start(world: Tenants) -> None:
    pools(world, prod=owed(fast=4), dev=owed(), few=QueueSpec(limit_gpus={"slow": 1000}))
    world.runs("fast", "prod", 4, gpu_model=("H100",))
    world.runs("slow", "few", 1, gpu_model=("T4",))
    world.runs("more", "dev", 2, gpu_model=("T4",))
    world.submit("either", queue="few", gpus=2, priority=5, preemptible=True)
    assert world.passes(30) == set(), "few may hold 1 slow GPU, and the fast ones are guaranteed"
    world.ends("fast")
    assert agents_of(world, "either") == {"fast"}


def test_job_takes_the_seat_of_another_in_a_pool_with_room_in_its_limit(
    world: Tenants,
) -> None:
    few = QueueSpec(guarantee_gpus={"slow": Guarantee(2000)}, limit_gpus={"slow": 2000, "fast": 0})
    pools(world, few=few, dev=owed())
    world.runs("seated", "few", 2)
    world.runs("more", "dev", 2, gpu_model=("T4",))
    world.submit("firm", queue="few", gpus=2, priority=5)
    assert world.passes(6) == {"seated"}
    world.obeys()
    assert (agents_of(world, "firm"), seat(world, "firm")) == ({"slow"}, ("few", "slow"))


def test_seat_is_in_a_pool_whose_limit_lets_the_job_start(world: Tenants) -> None:
    few = QueueSpec(
        guarantee_gpus={"fast": Guarantee(4000), "slow": Guarantee(2000)}, limit_gpus={"fast": 1000}
    )
    pools(world, few=few)
    world.submit("firm", queue="few", gpus=2)
    world.passes(2)
    assert (agents_of(world, "firm"), seat(world, "firm")) == ({"slow"}, ("few", "slow"))
