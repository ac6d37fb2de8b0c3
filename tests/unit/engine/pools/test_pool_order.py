"""Pools of which a queue has the first choice and others, and pools that only queues use which name them."""

from typing import Any

import pytest

from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.room.hopeless import fit_nowhere
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tenancy import Guarantee, JobClass, Pool, QueueSpec
from mesos_gpu.policy.tenancy.pools import pools_of_unreported
from tests.doubles.builders import gpu, offer
from tests.unit.engine.tenancy.lending import Tenants

FAST, SLOW = Pool("fast", models=("H100",)), Pool("slow", models=("T4",))
BOTH = ("fast", "slow")


def apply(world: Tenants, *pools: Pool, classes: tuple[JobClass, ...] = (), **queues: QueueSpec) -> None:
    world.document_of(queues, pools=pools or (FAST, SLOW), classes=classes)


def where(world: Tenants, name: str) -> str | None:
    """The node of a job of one task; None: it waits."""
    if world.job(name).state is JobState.PENDING:
        return None
    (task,) = world.state.work.round_of(world.job(name))
    return str(task.agent_id)


def why(world: Tenants, name: str) -> Any:
    return why_of(world.state, world.settings, world.now, world.job(name))


def owed(**gpus: int) -> dict[str, Guarantee]:
    return {pool: Guarantee(count * 1000) for pool, count in gpus.items()}


def test_dedicated_pool_is_used_only_by_queues_that_name_it(world: Tenants) -> None:
    apply(
        world,
        Pool("fast", models=("H100",), dedicated=True),
        SLOW,
        own=QueueSpec(pools=("fast",)),
        other=QueueSpec(),
    )
    world.runs("others", "other", 4)
    assert where(world, "others") == "slow"
    world.submit("more", queue="other", gpus=1, preemptible=True)
    world.passes(5)
    assert where(world, "more") is None, "though four are free"
    (off,) = [node.reasons for node in why(world, "more").nodes if node.agent_id == "fast"]
    assert off == ("is in pool fast, and queue other uses default, slow",)
    world.runs("its", "own", 4)
    assert where(world, "its") == "fast"
    with pytest.raises(NotAccepted, match="queue own uses pools fast, and none of them has T4"):
        world.submit("never", queue="own", gpus=1, gpu_model=("T4",), preemptible=True)


def test_dedicated_pool_takes_no_jobs_of_others_without_gpus(world: Tenants) -> None:
    slow = Pool("slow", models=("T4",), dedicated=True)
    apply(
        world,
        Pool("fast", models=("H100",), dedicated=True),
        slow,
        own=QueueSpec(pools=BOTH),
        other=QueueSpec(),
    )
    world.submit("cpu", queue="other", gpus=0)
    world.passes(3)
    assert where(world, "cpu") is None
    world.submit("its", queue="own", gpus=0)
    world.passes(3)
    assert where(world, "its") is not None


def test_dedicated_pool_takes_no_jobs_of_others_before_its_monitor_reports() -> None:
    world = Tenants()
    world.register()
    apply(
        world,
        Pool("fast", models=("H100",), dedicated=True),
        SLOW,
        other=QueueSpec(),
        own=QueueSpec(pools=("fast",)),
    )
    world.submit("cpu", queue="other", gpus=0)
    world.submit("its", queue="own", gpus=0)
    world.offers(offer("new-1", "new", gpus=1))
    (monitor,) = world.state.work.tasks
    world.offers(offer("new-2", "new", gpus=1))
    assert (where(world, "cpu"), where(world, "its")) == (None, None)
    said = "is in pool default or fast or slow: its node monitor has not reported its GPUs yet"
    assert [why(world, name).nodes[0].reasons[0] for name in ("cpu", "its")] == [said, said]
    assert why(world, "its").can_ever_run
    world.report("new", gpu("n0", "H100"), task=monitor)
    assert (where(world, "cpu"), where(world, "its")) == (None, "new")


def test_unreported_node_may_be_in_each_pool_that_only_its_models_decide() -> None:
    place = Node(AgentId("a1"), "exam-1", attributes={"rack": "r1"})
    fast, racked = Pool("fast", models=("H100",)), Pool("racked", attributes={"rack": "r1"})
    slow, other = Pool("slow", models=("T4",)), Pool("away", attributes={"rack": "r2"}, models=("T4",))
    assert pools_of_unreported((slow, other, fast), place) == {"fast", "slow", "default"}
    assert pools_of_unreported((slow, racked, other, fast), place) == {"fast", "racked"}
    assert pools_of_unreported((), place) == {"default"}


def test_shared_pools_take_jobs_before_a_monitor_reports() -> None:
    world = Tenants()
    world.register()
    apply(world, other=QueueSpec())
    world.submit("cpu", queue="other", gpus=0)
    world.offers(offer("new-1", "new", gpus=1), offer("new-2", "new", cpus=2))
    assert where(world, "cpu") == "new"


@pytest.mark.parametrize("order", [("fast", "slow"), ("slow", "fast")])
def test_pool_order_fills_the_first_choice_and_then_the_next(world: Tenants, order: tuple[str, str]) -> None:
    apply(world, team=QueueSpec(pools=order))
    for number in range(4):
        world.runs(f"j{number}", "team", 2)
    assert [where(world, f"j{number}") for number in range(4)] == [order[0]] * 2 + [order[1]] * 2


def test_pool_order_goes_on_to_the_next_pool_after_the_wait_of_the_queue(world: Tenants) -> None:
    queues = {"team": QueueSpec(pools=BOTH, overflow_after_s=60.0), "team/a": QueueSpec()}
    world.document_of(queues, pools=(FAST, SLOW))
    world.runs("first", "team/a", 4)
    world.submit("next", queue="team/a", gpus=2, preemptible=True)
    since = world.now
    world.passes(50)
    assert where(world, "next") is None
    told = why(world, "next")
    assert "it waits for pool fast, and may use pool slow from" in told.summary
    (later,) = [node.reasons for node in told.nodes if node.agent_id == "slow"]
    assert later[0].startswith("is in pool slow, which it may use from")
    assert told.can_ever_run
    assert told.estimate is not None
    assert told.estimate.at == pytest.approx(since + 60, abs=1.0)
    world.passes(12)
    assert where(world, "next") == "slow"


def test_reclaim_stops_no_job_in_a_pool_that_may_not_be_used_yet(world: Tenants) -> None:
    team = QueueSpec(guarantee_gpus=owed(fast=2, slow=2), pools=BOTH, overflow_after_s=60.0)
    apply(world, team=team, dev=QueueSpec(guarantee_gpus=owed(fast=2)))
    world.runs("its", "dev", 2, gpu_model=("H100",))
    world.runs("mine", "team", 2, gpu_model=("H100",))
    world.runs("lent", "dev", 4, gpu_model=("T4",))
    world.submit("owed", queue="team", gpus=2)
    assert world.passes(50) == set(), "its queue's fast ones are in use, and it may not use slow ones"
    assert world.passes(20) == {"lent"}
    world.obeys()
    world.passes(2)
    assert where(world, "owed") == "slow"


def test_pool_order_skips_a_pool_without_the_gpus_asked_for(world: Tenants) -> None:
    apply(
        world,
        Pool("empty", models=("A100",)),
        FAST,
        SLOW,
        team=QueueSpec(pools=("empty", "fast", "slow"), overflow_after_s=600.0),
    )
    world.runs("any", "team", 2)
    assert where(world, "any") == "fast"
    world.runs("model", "team", 2, gpu_model=("T4",))
    assert where(world, "model") == "slow"


def test_reclaim_makes_no_room_for_a_gang_in_two_pools_of_an_order(world: Tenants) -> None:
    """Found by chaos: the gang is placed in one pool only, so ended jobs came back and were ended again."""
    own = QueueSpec(guarantee_gpus=owed(fast=2, slow=2))
    apply(world, team=QueueSpec(pools=BOTH, overflow_after_s=0.0), own=own)
    for model in ("H100", "T4"):
        world.runs(f"stays-{model}", "own", 2, gpu_model=(model,), preemptible=False)
        world.runs(f"less-{model}", "team", 2, gpu_model=(model,), priority=-9)
    world.submit("gang", queue="team", gpus=2, tasks=2, preemptible=True)
    assert world.passes(60) == set()
    world.ends("stays-H100")
    assert world.passes(30) == {"less-H100"}
    world.obeys()
    world.passes(2)
    assert {task.agent_id for task in world.state.work.round_of(world.job("gang"))} == {"fast"}


def test_job_that_fits_nowhere_is_tried_again_when_a_document_opens_a_pool(
    world: Tenants,
) -> None:
    apply(world, team=QueueSpec(pools=BOTH), dev=QueueSpec())
    world.runs("lent", "dev", 4, gpu_model=("H100",))
    world.runs("slow", "dev", 4, gpu_model=("T4",))
    world.submit("owed", queue="team", gpus=2, gpu_model=("H100",))
    apply(world, team=QueueSpec(pools=("slow",), starve_after_s=5.0), dev=QueueSpec())
    world.passes(30)
    assert fit_nowhere(world.state, world.now) == {"owed"}
    apply(world, team=QueueSpec(guarantee_gpus=owed(fast=2), pools=("fast",)), dev=QueueSpec())
    world.passes(1)
    assert world.state.quota.seats_given.keys() == {"owed"}
    assert world.passes(20) == {"lent"}, "when it has lost less work than the other one waits"


def test_class_and_a_queue_must_have_a_pool_in_common(world: Tenants) -> None:
    apply(
        world,
        classes=(JobClass("quick", pools=("fast",)),),
        team=QueueSpec(pools=("slow",)),
        all=QueueSpec(pools=BOTH),
    )
    with pytest.raises(NotAccepted, match="class quick is for pools fast, and queue team uses pools slow"):
        world.submit("never", queue="team", gpus=1, job_class="quick", preemptible=True)
    world.runs("ok", "all", 1, job_class="quick")
    assert where(world, "ok") == "fast"


def test_pool_has_the_nodes_that_meet_its_constraints(world: Tenants) -> None:
    named = Pool("named", constraints=(Constraint("hostname", Operator.LIKE, "fast.*"),), dedicated=True)
    apply(world, named, own=QueueSpec(pools=("named",)), other=QueueSpec())
    world.runs("its", "own", 1)
    world.runs("others", "other", 4)
    assert (where(world, "its"), where(world, "others")) == ("fast", "slow")


def test_gang_is_placed_in_one_of_the_pools_of_an_order(world: Tenants) -> None:
    apply(world, team=QueueSpec(pools=BOTH), loose=QueueSpec())
    world.runs("holds", "team", 3)
    world.submit("gang", queue="team", gpus=1, tasks=2, preemptible=True)
    world.passes(2)
    assert {str(task.agent_id) for task in world.state.work.round_of(world.job("gang"))} == {"slow"}


def test_job_with_a_seat_is_told_that_other_pools_do_not_fit(world: Tenants) -> None:
    apply(world, team=QueueSpec(pools=BOTH, guarantee_gpus=owed(fast=2)), other=QueueSpec(pools=("fast",)))
    for name in ("one", "two"):
        world.runs(name, "other", 2)
    world.submit("kept", queue="team", gpus=2, preemptible=False)
    assert where(world, "kept") is None, "it may not borrow, and so goes nowhere but to its seat"
    told = why(world, "kept")
    assert "it fits now" not in told.summary
    assert "no GPU is free" in told.summary
    (off,) = [node.reasons for node in told.nodes if node.agent_id == "slow"]
    assert off == ("is in pool slow, and what it is guaranteed is in pool fast",)


def test_gang_is_told_that_it_does_not_fit_over_two_pools(world: Tenants) -> None:
    apply(world, team=QueueSpec(pools=BOTH), fast=QueueSpec(pools=("fast",)), slow=QueueSpec(pools=("slow",)))
    for pool in BOTH:
        world.runs(pool, pool, 2)
    world.submit("gang", queue="team", gpus=2, tasks=2, preemptible=True)
    assert where_all(world, "gang") == [], "two GPUs are free in each pool"
    told = why(world, "gang")
    assert "it fits now" not in told.summary
    assert told.tasks_fit == 1
    (off,) = [node.reasons for node in told.nodes if node.agent_id == "slow"]
    assert off == ("is in pool slow, and all its tasks start in one pool",)
    world.ends("slow")
    assert where_all(world, "gang") == ["slow", "slow"]


def where_all(world: Tenants, name: str) -> list[str]:
    """Return the nodes of a job's tasks; empty while it waits."""
    if world.job(name).state is JobState.PENDING:
        return []
    return [str(task.agent_id) for task in world.state.work.round_of(world.job(name))]
