"""Plans of a new document, and what pools have and queues want, as a whole."""

from dataclasses import replace
from itertools import product

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.indexes.memory import Capacity
from mesos_gpu.engine.tenancy.capacity import PoolCapacity, capacities
from mesos_gpu.engine.tenancy.planned import planned
from mesos_gpu.engine.tenancy.shares import Shares, branch_of, limit_of, standing_of
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.queue_plan import PlannedQueue, QueuePlan
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tenancy import (
    Fairness,
    Guarantee,
    JobClass,
    Limits,
    Pool,
    QueueDocument,
    QueueSpec,
    Stop,
)
from mesos_gpu.policy.tenancy.share import Branch
from mesos_gpu.policy.tenancy.tree import Tree
from tests.doubles.builders import World, gpu, offer

POOLS = (Pool("fast", ("H100",)),)


def owed(**gpus: int) -> QueueSpec:
    return QueueSpec(guarantee_gpus={pool: Guarantee(count * 1000) for pool, count in gpus.items()})


DOCUMENT = QueueDocument(
    queues={"ml": owed(default=5), "ml/a": QueueSpec(), "ml/b": owed(default=1), "web": QueueSpec()},
    pools=POOLS, gpu_cost={"H100": 3},
)  # fmt: skip


def made(document: QueueDocument | None = DOCUMENT) -> World:
    world = World()
    world.register()
    world.node("a1", *(gpu(f"g{i}") for i in range(6)))
    world.node("h1", *(gpu(f"h{i}", "H100") for i in range(2)))
    if document is not None:
        world.feed(ev.QueuesChanged(document, 0))
    return world


def busy(document: QueueDocument | None = DOCUMENT) -> World:
    """Let a hold four of six GPUs, and web hold one and wait for eight."""
    world = made(document)
    for name, queue, gpus in (("j1", "ml/a", 4), ("j2", "web", 1), ("j3", "web", 8)):
        world.submit(name, queue=queue, gpus=gpus, gpu_model=("A100",), preemptible=True)
        if name == "j1":
            world.offers(offer("rest", "a1", gpus=2))
    assert [world.job(name).task_id is not None for name in ("j1", "j2", "j3")] == [True, True, False]
    return world


AFTER = replace(
    DOCUMENT,
    queues={"ml": owed(default=2), "ml/a": QueueSpec(), "ml/c": QueueSpec(weight=3), "web": owed(default=3)},
)


def rows(plan: QueuePlan, pool: str = "default") -> dict[str, PlannedQueue]:
    return {each.path: each for each in plan.queues if each.pool == pool}


def test_queue_plan_says_what_each_queue_is_due_before_and_after() -> None:
    world = busy()
    plan = planned(world.state, AFTER, world.now)
    paths = "default", "ml", "ml/a", "ml/b", "ml/c", "web"
    assert [(each.path, each.pool) for each in plan.queues] == [*product(paths, ("default", "fast"))]
    assert rows(plan) == {
        "default": PlannedQueue("default", "default", 0, 0, 0, 0, None, 0, 0),
        "ml": PlannedQueue("ml", "default", 5000, 2000, 4000, 2500, None, 4000, 0),
        "ml/a": PlannedQueue("ml/a", "default", 0, 0, 4000, 2500, None, 4000, 0),
        "ml/b": PlannedQueue("ml/b", "default", 1000, None, 0, None, None, 0, 0),
        "ml/c": PlannedQueue("ml/c", "default", None, 0, None, 0, 1875, 0, 0),
        "web": PlannedQueue("web", "default", 0, 3000, 2000, 3500, None, 1000, 8000),
    }
    assert rows(plan, "fast")["ml/c"] == PlannedQueue("ml/c", "fast", None, 0, None, 0, 6000, 0, 0)
    assert plan.borrowers == (JobId("j1"),)


def test_queue_plan_of_the_first_document_has_the_default_queue_alone_before() -> None:
    world = busy(None)
    plan = planned(world.state, replace(AFTER, gpu_cost={}, pools=()), world.now)
    assert rows(plan) == {
        "default": PlannedQueue("default", "default", 0, 0, 8000, 0, None, 0, 8000),
        "ml": PlannedQueue("ml", "default", None, 2000, None, 3500, None, 4000, 0),
        "ml/a": PlannedQueue("ml/a", "default", None, 0, None, 3500, 875, 4000, 0),
        "ml/c": PlannedQueue("ml/c", "default", None, 0, None, 0, 2625, 0, 0),
        "web": PlannedQueue("web", "default", None, 3000, None, 4500, 4500, 1000, 8000),
    }
    assert plan.borrowers == ()


def test_queue_plan_of_the_same_document_changes_nothing() -> None:
    world = busy()
    plan = planned(world.state, DOCUMENT, world.now)
    assert plan.borrowers == ()
    for each in plan.queues:
        assert (each.guarantee, each.due, each.if_asked) == (each.guarantee_before, each.due_before, None)


def test_queue_plan_counts_what_is_held_in_pools_that_are_no_more() -> None:
    world = busy()
    plan = planned(world.state, replace(AFTER, pools=(Pool("slow", ("A100",)),)), world.now)
    assert {each.pool for each in plan.queues} == {"default", "fast", "slow"}
    assert rows(plan, "slow")["ml"] == PlannedQueue("ml", "slow", 0, 0, 0, 3000, None, 4000, 0)
    assert rows(plan)["ml"].held == 4000
    assert rows(plan)["web"].pending == 8000


def shares_of(world: World) -> Shares:
    charges = charges_of(world.state, world.settings)
    return Shares(world.state, charges, world.now)


def test_capacities_are_those_of_nodes_that_are_there_by_pool_and_cost() -> None:
    world = made()
    tree = world.state.quota.tree
    assert capacities(world.state, tree) == {
        "default": PoolCapacity(6000, {"A100": 1}), "fast": PoolCapacity(6000, {"H100": 3}),
    }  # fmt: skip
    world.feed(ev.DrainRequested(Target.GPU, "h1", "fan", "ann", None))
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "fan", "ann", None))
    assert capacities(world.state, tree) == {"fast": PoolCapacity(3000, {"H100": 3})}
    other = Tree(replace(DOCUMENT, gpu_cost={}, pools=()))
    assert capacities(world.state, other) == {"default": PoolCapacity(1000, {"H100": 1})}


def test_capacities_have_processors_and_memory_where_these_count() -> None:
    world = made()
    latest = Resources(cpus=8, mem_mib=4000), Resources(cpus=2, mem_mib=9000)
    world.state.cluster.capacities = {AgentId("a1"): Capacity(1000.0, *latest)}
    by_drf, plain = Tree(replace(DOCUMENT, fairness=Fairness.DRF)), Tree(DOCUMENT)
    fast = PoolCapacity(6000, {"H100": 3})
    has = PoolCapacity(6000, {"A100": 1}, 8000, 9000)
    assert capacities(world.state, by_drf) == {"default": has, "fast": fast}, "of h1 nothing is known"
    assert capacities(world.state, plain) == {"default": PoolCapacity(6000, {"A100": 1}), "fast": fast}


def test_capacity_costs_the_dearest_of_the_models_that_are_there() -> None:
    pool = PoolCapacity(0, {"A100": 2, "H100": 3, "T4": 1})
    assert [pool.cost_of(models, 500) for models in ((), ("A100",), ("T4", "A100"), ("B200",), ("B200", "T4"))] == [
        1500, 1000, 1000, 0, 500,
    ]  # fmt: skip
    assert PoolCapacity().cost_of((), 500) == 0


def test_shares_say_what_each_leaf_holds_waits_for_and_both() -> None:
    world = busy()
    shares = shares_of(world)
    assert shares.held("default") == {"ml/a": 4000, "web": 1000}
    assert shares.pending("default") == {"web": 8000}
    assert shares.demands("default") == {"ml/a": 4000, "web": 9000}
    assert shares.held("fast") == shares.pending("fast") == {}
    assert (shares.amount("default"), shares.amount("fast"), shares.amount("none")) == (6000, 6000, 0)
    assert [shares.due(*each) for each in (("web", "default"), ("web", "none"), ("gone", "default"))] == [
        2000,
        0,
        0,
    ]
    assert shares.explained("default", {})["web"].due == 2000


PENDING = {
    "any model": ({"gpus": 8}, {"default": {"web": 8000}, "fast": {"web": 24_000}}),
    "one model": ({"gpus": 8, "gpu_model": ("H100",)}, {"default": {}, "fast": {"web": 24_000}}),
    "a model of no node": ({"gpus": 8, "gpu_model": ("B200",)}, {"default": {}, "fast": {}}),
    "no GPUs": ({"cpus": 900}, {"default": {"web": 0}, "fast": {"web": 0}}),
    "of a class without pools": (
        {"gpus": 8, "job_class": "any"},
        {"default": {"web": 8000}, "fast": {"web": 24_000}},
    ),
    "of a class with a pool": ({"gpus": 8, "job_class": "slow"}, {"default": {"web": 8000}, "fast": {}}),
    "of a queue with a pool": ({"gpus": 8, "queue": "own"}, {"default": {}, "fast": {"own": 24_000}}),
    "of a queue that is held": ({"gpus": 8, "queue": "held"}, {"default": {}, "fast": {}}),
    "of two": ({"gpus": 8, "tasks": 2}, {"default": {"web": 16_000}, "fast": {"web": 48_000}}),
}


@pytest.mark.parametrize(("fields", "wanted"), PENDING.values(), ids=PENDING)
def test_shares_count_what_jobs_wait_for_in_the_pools_that_they_may_use(
    fields: dict[str, object], wanted: dict[str, dict[str, int]]
) -> None:
    queues = {"web": QueueSpec(), "own": QueueSpec(pools=("fast",)), "held": QueueSpec(stop=Stop.HOLD)}
    classes = JobClass("any"), JobClass("slow", pools=("default",))
    world = made(replace(DOCUMENT, queues=queues, classes=classes))
    world.submit("j1", **{"queue": "web", **fields})
    shares = shares_of(world)
    assert {pool: shares.pending(pool) for pool in ("default", "fast")} == wanted


def test_branches_have_the_figures_of_a_pool_and_what_those_below_are_guaranteed() -> None:
    spec = QueueSpec(
        guarantee_gpus={"p": Guarantee(2000)}, limit_gpus={"p": 9000}, borrow_limit_gpus={"p": 5000},
        lend_limit_gpus={"p": 1000}, weight=4, band=2, limits=Limits(max_gpus=7.5),
    )  # fmt: skip
    tree = Tree(QueueDocument(queues={"a": owed(p=1), "a/b": spec, "a/c": owed(p=3)}))
    below = Branch("a/b", 2000, 7500, 5000, 1000, 4, 2), Branch("a/c", 3000)
    assert branch_of(tree, "p") == Branch("", children=(Branch("a", 5000, children=below), Branch("default")))
    assert branch_of(tree, "q", "a/b") == Branch("a/b", 0, 7500, None, None, 4, 2)
    assert [limit_of(tree, "a/b", pool) for pool in ("p", "q")] == [7500, 7500]
    assert limit_of(tree, "a/c", "p") is None
    free = Tree(QueueDocument(queues={"a": QueueSpec(limit_gpus={"p": 3000}, limits=Limits(max_gpus=7.5))}))
    assert [limit_of(free, "a", pool) for pool in ("p", "q")] == [3000, 7500]


def test_standing_of_a_flat_tree_owes_all_to_its_one_leaf() -> None:
    world, bare = busy(), busy(None)
    assert standing_of(world.state, world.settings, world.now).due("web", "default") == 2000
    standing = standing_of(bare.state, bare.settings, bare.now)
    assert standing.due("default", "default") == standing.amount("default") > 0
