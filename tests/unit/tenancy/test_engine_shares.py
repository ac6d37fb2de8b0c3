"""Dues of queues in the engine: by what is held and asked for, by what the pools have, and by past use."""

from dataclasses import replace

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.tenancy.past_uses import micro
from mesos_gpu.engine.tenancy.shares import Shares
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
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
from mesos_gpu.model.usage import PastUse
from tests.doubles.builders import World, gpu

POOL = "default"
DOCUMENT = QueueDocument(
    queues={
        "ml": QueueSpec(guarantee_gpus={POOL: Guarantee(4000)}),
        "ml/a": QueueSpec(guarantee_gpus={POOL: Guarantee(2000)}),
        "ml/b": QueueSpec(),
        "web": QueueSpec(guarantee_gpus={POOL: Guarantee(2000)}),
    },
    half_life_s=1000,
)


def made(document: QueueDocument = DOCUMENT, count: int = 8) -> World:
    world = World()
    world.register()
    world.feed(ev.QueuesChanged(document, 0))
    world.node("a1", *(gpu(f"g{i}") for i in range(count)))
    return world


def shares(world: World) -> Shares:
    charges = charges_of(world.state, world.settings)
    return Shares(world.state, charges, world.now)


def held(world: World) -> dict[tuple[str, str], tuple[int, int, int]]:
    charges = charges_of(world.state, world.settings)
    return charges.sums.leaves


def dues(world: World, pool: str = POOL) -> dict[str, int]:
    now = shares(world)
    return {path: now.due(path, pool) for path in world.state.quota.queues.queues}


def test_dues_count_what_is_held_and_waited_for() -> None:
    world = made()
    assert dues(world) == {"ml": 0, "ml/a": 0, "ml/b": 0, "web": 0}
    world.submit("j1", gpus=8, queue="ml/b", preemptible=True)
    assert world.job("j1").task_id is not None
    assert dues(world) == {"ml": 8000, "ml/a": 0, "ml/b": 8000, "web": 0}
    world.submit("j2", gpus=3, queue="web", preemptible=True)
    assert dues(world) == {"ml": 5000, "ml/a": 0, "ml/b": 5000, "web": 3000}
    world.submit("j3", gpus=8, queue="ml/a", preemptible=True)
    # web is due its 2 and half of what is over, ml its 4 and the other half; of that a is guaranteed 2.
    assert dues(world) == {"ml": 5000, "ml/a": 3500, "ml/b": 1500, "web": 3000}
    world.feed(ev.KillRequested(world.job("j3").id))
    assert dues(world) == {"ml": 5000, "ml/a": 0, "ml/b": 5000, "web": 3000}


def test_dues_are_worked_out_again_only_after_a_change() -> None:
    world = made()
    world.submit("j1", gpus=8, queue="ml/b", preemptible=True)
    dues(world)
    known = world.state.books.notes["shares"]
    before = known.dues
    world.now += 1
    dues(world)
    assert known.dues is before
    world.submit("j2", gpus=1, queue="web", preemptible=True)
    dues(world)
    assert known.dues is not before


def test_dues_leave_out_broken_and_drained_gpus() -> None:
    world = made()
    world.submit("j1", gpus=8, queue="ml/b", preemptible=True)
    world.submit("j2", gpus=8, queue="web", preemptible=True)
    assert dues(world)["ml"] + dues(world)["web"] == 8000
    world.report("a1", *(gpu(f"g{i}", health=Health.SICK if i < 2 else Health.OK) for i in range(8)))
    assert dues(world)["ml"] + dues(world)["web"] == 6000
    world.feed(ev.DrainRequested(Target.GPU, "g7", "fan", "ann", None))
    assert dues(world)["ml"] + dues(world)["web"] == 5000
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "fan", "ann", None))
    assert dues(world)["ml"] + dues(world)["web"] == 0


def test_pools_are_divided_apart_and_models_by_their_cost() -> None:
    document = QueueDocument(
        queues={"a": QueueSpec(guarantee_gpus={"fast": Guarantee(4000)}), "b": QueueSpec()},
        pools=(Pool("fast", ("H100",)),),
        gpu_cost={"H100": 4},
    )
    world = made(document, 2)
    world.node("h1", gpu("h0", "H100"), gpu("h1", "H100"))
    world.submit("j1", gpus=2, queue="a", gpu_model=("H100",), preemptible=True)
    world.submit("j2", gpus=8, queue="b", preemptible=True)
    assert dues(world, "fast") == {"a": 6000, "b": 2000}
    assert dues(world) == {"a": 0, "b": 2000}
    assert dues(world, "none") == {"a": 0, "b": 0}


def test_jobs_of_a_queue_that_is_held_are_not_waited_for() -> None:
    world = made(QueueDocument(queues={"a": QueueSpec(stop=Stop.HOLD), "b": QueueSpec()}))
    world.submit("j1", gpus=16, queue="a")
    world.submit("j2", gpus=16, queue="b")
    assert dues(world) == {"a": 0, "b": 8000}


def test_dues_of_a_queue_are_bounded_by_the_demand_of_its_jobs() -> None:
    queues = {"a": QueueSpec(limits=Limits(max_gpus=2.5)), "b": QueueSpec(limit_gpus={POOL: 4000})}
    world = made(QueueDocument(queues=queues))
    for i in range(8):
        world.submit(f"a{i}", gpus=2, queue="a")
        world.submit(f"b{i}", gpus=2, queue="b")
    assert dues(world) == {"a": 2500, "b": 4000}


def test_past_use_counts_by_the_minute_and_only_over_the_guarantee() -> None:
    document = replace(DOCUMENT, history_percent=100)
    world = made(document)
    world.submit("j1", gpus=16, queue="ml/b", preemptible=True)
    world.submit("j2", gpus=16, queue="web", preemptible=True)
    even = dues(world)
    assert (even["ml"], even["web"]) == (5000, 3000)
    world.state.put(PastUse("web", "*", 10**6, micro(world.now)))
    assert (dues(world)["ml"], dues(world)["web"]) == (6000, 2000)  # what it is guaranteed is never less
    world.state.put(PastUse("ml/b", "*", 3 * 10**6, micro(world.now)))
    assert (dues(world)["ml"], dues(world)["web"]) == (4500, 3500)
    minute = shares(world).minute
    assert minute == 960_000_000
    world.now = 1019.9
    assert shares(world).minute == minute


def test_users_of_a_leaf_stand_by_what_they_have_used_for_their_shares() -> None:
    world = made(replace(DOCUMENT, queues={"ml": QueueSpec(user_shares={"ann": 4, "eve": 0})}))
    now = micro(world.now)
    assert dict(shares(world).ranks("ml")) == {}
    for user, value in (("*", 0), ("ann", 7000), ("bob", 2000), ("cid", 1000), ("dan", 2000), ("eve", 0)):
        world.state.put(PastUse("ml", user, value, now))
    assert shares(world).ranks("ml") == {"cid": 0, "ann": 1, "bob": 2, "dan": 2, "eve": 4}
    assert shares(world).rank("ml", "new") == 0
    assert shares(world).start_value("ml", "new") == 1000
    world.state.put(PastUse("ml", "cid", 9000, now))
    assert shares(world).rank("ml", "cid") == 3
    assert shares(world).ranks("gone") == {}


def test_user_who_takes_ever_new_names_gets_no_more_than_the_one_who_had_the_least() -> None:
    """A new name begins where the first of those stands who are there: ties are broken by who came first."""
    world = made(QueueDocument(queues={"ml": QueueSpec()}))
    now = micro(world.now)
    for user, value in (("*", 9000), ("ann", 5000), ("bob", 4000)):
        world.state.put(PastUse("ml", user, value, now))
    for i in range(20):
        start = shares(world).start_value("ml", f"name{i}")
        assert start == 4000
        world.state.put(PastUse("ml", f"name{i}", start + 500, now))
        assert shares(world).rank("ml", "bob") == 0
        assert shares(world).rank("ml", f"name{i}") >= 1


def test_jobs_of_a_class_want_nothing_of_pools_that_it_may_not_use() -> None:
    classes = (JobClass("slow", pools=(POOL,)),)
    document = QueueDocument(
        queues={"a": QueueSpec()}, pools=(Pool("fast", ("H100",)),), classes=classes, gpu_cost={"H100": 4}
    )
    world = made(document, 2)
    world.node("h1", gpu("h0", "H100"))
    world.submit("j1", gpus=8, queue="a", job_class="slow")
    assert (dues(world)["a"], dues(world, "fast")["a"]) == (2000, 0)


def test_dues_by_drf_are_fewer_gpus_for_a_queue_with_many_cpus() -> None:
    document = QueueDocument(queues={"a": QueueSpec(), "b": QueueSpec()})
    plain, dominant = made(document), made(replace(document, fairness=Fairness.DRF))
    for world in (plain, dominant):
        world.submit("j1", gpus=16, cpus=32, queue="a")
        world.submit("j2", gpus=16, cpus=4, queue="b")
    assert dues(plain) == {"a": 4000, "b": 4000}
    assert dues(dominant)["a"] < 2800
    assert dues(dominant)["b"] > 5200


def test_dues_by_drf_count_jobs_without_gpus() -> None:
    world = made(QueueDocument(queues={"a": QueueSpec()}, fairness=Fairness.DRF))
    world.submit("j1", cpus=2, queue="a")
    assert world.job("j1").task_id is not None
    assert held(world) == {("a", POOL): (0, 2000, 128)}
    world.status("j1.1", "TASK_FINISHED")
    assert held(world) == {}
