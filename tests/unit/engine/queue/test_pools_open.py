"""Pools of a job: which it may use when, in which order, and what it costs there."""

from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.queue.held import Held, Pools, has_room, waits_since
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import JobClass, Limits, Pool, QueueSpec
from mesos_gpu.policy.admission.limits import Lack
from tests.doubles.builders import World, gpu, request, spec
from tests.unit.engine.tenancy.worlds import again, most, node, owed, running, tree_world

NOW: Final = 1000.0
THREE: Final = ("fast", "slow", "old")
POOLS: Final = (
    Pool("fast", models=("H100",)),
    Pool("slow", models=("T4", "L4")),
    Pool("old", models=("K80",)),
)
QUEUES: Final = {
    "order": QueueSpec(pools=THREE, overflow_after_s=100.0),
    "order/x": QueueSpec(),
    "at-once": QueueSpec(pools=THREE, overflow_after_s=0.0),
    "any": QueueSpec(),
    "pair": QueueSpec(pools=("slow", "fast")),
}


@pytest.fixture
def world() -> World:
    """A node in each of two pools, of two models in the second, and none in the third."""
    made = tree_world(
        QUEUES, pools=POOLS, gpu_cost={"H100": 8, "T4": 2}, classes=(JobClass("night", pools=("slow",)),)
    )
    for name, *models in (("f", "H100"), ("s", "T4", "L4")):
        cards = tuple(gpu(f"{name}{i}", model) for i, model in enumerate(models))
        made.state.put(Node(AgentId(name), name, inventory=Inventory(cards)))
    return made


def pools_of(world: World) -> Pools:
    return Pools(world.state, world.state.quota.tree, NOW)


def held_of(world: World) -> Held:
    charges = charges_of(world.state, world.settings)
    return Held(world.state, charges, NOW)


def seat_in(queue: str, pool: str) -> GuaranteedAdmission:
    return GuaranteedAdmission(queue, pool, (0,), 1000, NOW)


def job_of(queue: str = "order", *, at: float = NOW, **fields: Any) -> Job:
    return Job(JobId("j"), spec(**{"queue": queue, "gpus": 1, **fields}), at, 1)


@pytest.mark.parametrize(
    ("waited_s", "count"),
    [
        (-50.0, 1),
        (0.0, 1),
        (99.5, 1),
        (100.0, 2),
        (199.0, 2),
        (200.0, 3),
        (900.0, 3),
    ],
)
def test_pools_of_an_order_open_one_after_another(world: World, waited_s: float, count: int) -> None:
    pools, job = pools_of(world), job_of("order/x", at=NOW - waited_s)
    assert pools.every(job) == THREE
    assert (pools.count(job), pools.now(job)) == (count, THREE[:count])
    begun = NOW - waited_s
    opens = {pool: 0.0 if i < count else begun + i * 100 for i, pool in enumerate(THREE)}
    assert {pool: pools.opens_at(job, pool) for pool in (*THREE, "unknown")} == {**opens, "unknown": 0.0}
    assert pools.next(job) == (None if count == 3 else (THREE[count], opens[THREE[count]]))
    runs = replace(job, state=JobState.RUNNING)
    assert (pools.count(runs), pools.now(runs), pools.next(runs)) == (3, THREE, None)


@pytest.mark.parametrize("queue", ["at-once", "pair"])
def test_pools_without_a_wait_are_open_at_once(world: World, queue: str) -> None:
    pools, job = pools_of(world), job_of(queue)
    every = pools.every(job)
    assert every == (THREE if queue == "at-once" else ("slow", "fast"))
    assert (pools.now(job), pools.next(job)) == (every, None)
    assert [pools.opens_at(job, pool) for pool in every] == [0.0] * len(every)


@pytest.mark.parametrize(
    ("queue", "fields", "every"),
    [
        ("order", {"gpu_model": ("L4",)}, ("slow", "fast", "old")),
        ("order", {"gpu_model": ("L4", "H100")}, THREE),
        ("order", {"gpu_model": ("K80",)}, THREE),
        ("order", {"job_class": "night"}, ("slow",)),
        ("any", {"gpu_model": ("T4",)}, ("default", "fast", "old", "slow")),
    ],
)
def test_pools_without_what_is_asked_for_come_last_in_an_order(
    world: World, queue: str, fields: dict[str, Any], every: tuple[str, ...]
) -> None:
    pools = pools_of(world)
    assert pools.every(job_of(queue, **fields)) == every
    assert pools.models == {"fast": {"H100"}, "slow": {"T4", "L4"}}
    if len(every) == 1:
        assert pools.count(job_of(queue, **fields)) == 1


@pytest.mark.parametrize(
    ("queue", "fields", "open_to", "seat", "parts"),
    [
        ("any", {}, ("fast", "slow"), None, [{"fast", "slow"}]),
        ("any", {"preemptible": True}, ("slow",), seat_in("any", "fast"), [set(), {"slow"}]),
        (
            "any",
            {"preemptible": True},
            ("fast", "slow"),
            seat_in("any", "fast"),
            [{"fast"}, {"fast", "slow"}],
        ),
        ("any", {"preemptible": False}, ("fast", "slow"), seat_in("any", "fast"), [{"fast"}]),
        ("at-once", {}, ("old", "fast"), None, [{"fast"}, {"old"}]),
        ("order", {"preemptible": True}, ("slow", "fast"), seat_in("order", "slow"), [{"slow"}, {"fast"}]),
    ],
)
def test_place_is_looked_for_in_the_pool_of_the_seat_first(
    world: World,
    queue: str,
    fields: dict[str, Any],
    open_to: tuple[str, ...],
    seat: GuaranteedAdmission | None,
    parts: list[set[str]],
) -> None:
    assert list(pools_of(world).preferred(job_of(queue, **fields), open_to, seat)) == parts


def test_job_waits_since_it_was_handed_in_is_due_or_its_last_task_ended(world: World) -> None:
    state, job = world.state, job_of(at=10.0)
    assert waits_since(state, job) == 10.0
    assert waits_since(state, replace(job, not_before=20.0)) == 20.0
    task = Task(TaskId("t"), AgentId("f"), "t", job.id, TaskState.FAILED, 5.0, ended_at=30.0)
    state.work.tasks[task.id] = task
    assert waits_since(state, replace(job, not_before=20.0, task_id=task.id)) == 30.0
    state.work.tasks[task.id] = replace(task, ended_at=None)
    assert waits_since(state, replace(job, task_id=task.id)) == 10.0


@pytest.mark.parametrize(
    ("made_at", "on", "has"),
    [(None, ("f",), False), (5.0, (), False), (5.0, ("f",), True), (0.0, ("f",), True)],
)
def test_room_is_there_when_it_was_made_on_nodes(
    made_at: float | None, on: tuple[str, ...], has: bool
) -> None:
    assert has_room(replace(job_of(), room_made_at=made_at, room_on=tuple(map(AgentId, on)))) is has


# --- what queues hold


@pytest.mark.parametrize(
    ("wanted", "pool", "cost"),
    [
        ((), "fast", 8000), ((), "slow", 2000), ((), "old", 8000), (("L4",), "slow", 1000), (("T4",), "fast", 2000),
        (("T4", "L4"), "slow", 2000), (("K80",), "old", 1000), (("K80", "T4"), "old", 2000),
    ],
)  # fmt: skip
def test_job_costs_what_the_dearest_gpu_does_that_it_may_get(
    world: World, wanted: tuple[str, ...], pool: str, cost: int
) -> None:
    held = held_of(world)
    assert [held.cost_of(job_of(gpu_model=wanted), pool) for _ in range(2)] == [cost] * 2
    assert held.cost_of(job_of(gpu_model=wanted, gpus=2, tasks=3), pool) == 6 * cost
    assert held.cost_of(job_of(gpus=0), pool) == 0
    plain = held_of(tree_world({"order": QueueSpec()}))
    assert plain.cost_of(job_of(gpu_model=wanted, gpus=2), "default") == 2000


@pytest.mark.parametrize(
    ("queue", "fields", "names"),
    [
        ("any", {}, ["fast", "slow"]),
        ("any", {"gpu_model": ("T4", "K80")}, ["slow"]),
        ("at-once", {}, ["fast", "slow"]),
        ("order", {"gpu_model": ("K80",)}, []),
        ("order", {}, ["fast"]),
    ],
)
def test_pools_with_what_a_job_asks_for_have_nodes(
    world: World, queue: str, fields: dict[str, Any], names: list[str]
) -> None:
    assert held_of(world).pools_with(job_of(queue, **fields)) == names


@pytest.mark.parametrize(
    ("queue", "tasks", "together", "parts"),
    [
        ("any", 1, ("slow", "fast"), [("fast",), ("slow",)]),
        ("any", 2, ("slow", "fast"), [("fast",), ("slow",), ("fast", "slow")]),
        ("any", 2, ("slow",), [("fast",), ("slow",)]),
        ("order", 2, ("slow", "fast"), [("fast",), ("slow",)]),
    ],
)
def test_room_is_looked_for_in_each_pool_and_for_a_gang_in_all_together(
    world: World, queue: str, tasks: int, together: tuple[str, ...], parts: list[tuple[str, ...]]
) -> None:
    assert held_of(world).parts(job_of(queue, tasks=tasks), ("slow", "fast"), together) == parts


def test_node_is_in_one_pool_or_in_each_that_it_may_be_in(world: World) -> None:
    world.state.put(Node(AgentId("new"), "new", monitor_launches=1))
    held = held_of(world)
    assert [held.pool_of(AgentId(name)) for name in ("f", "s", "gone")] == ["fast", "slow", "default"]
    assert held.is_in(AgentId("f"), ("fast",))
    assert not held.is_in(AgentId("f"), ("slow", "old"))
    assert not held.is_in(AgentId("new"), ("fast", "slow", "old"))
    assert held.is_in(AgentId("new"), ("fast", "slow", "old", "default"))
    assert held_of(tree_world({"any": QueueSpec()})).pool_of(AgentId("f")) == "default"


@pytest.mark.parametrize(
    ("on", "may"),
    [(("f",), True), (("f", "s"), True), (("x",), False), (("f", "x"), False), (("gone",), True)],
)
def test_room_is_of_use_on_nodes_of_pools_that_the_job_may_use(
    world: World, on: tuple[str, ...], may: bool
) -> None:
    world.state.put(Node(AgentId("x"), "x", inventory=Inventory((gpu("x0", "K80"),))))
    job = replace(job_of("pair"), room_on=tuple(map(AgentId, on)))
    assert held_of(world).may_use_room(job) is may


def take_of(world: World, agent: str, name: str, queue: str, **fields: Any) -> Take:
    job = replace(job_of(queue, **fields), id=JobId(name))
    gpus = tuple(card.id for card in world.state.cluster.nodes[AgentId(agent)].gpus)[:1]
    return Take(AgentId(agent), job, request(gpus=1), gpus=gpus)


def test_take_is_charged_to_its_queue_and_those_above_until_it_is_undone(world: World) -> None:
    held = held_of(world)
    monitor, bare = Take(AgentId("f")), Take(AgentId("f"), job_of())
    first, second = take_of(world, "f", "a", "order/x", user="ann"), take_of(world, "s", "b", "any")
    before = held.revision
    for take in (monitor, bare, first, second):
        held.take(take)
    assert held.revision == before + 2
    charge = Charge("order/x", "ann", "fast", 8000, 8000, 1000, 128)
    assert held.taken_below("order/x") == held.taken_below("order") == [(first.job, charge)]
    assert [job.id for job, _ in held.taken_below("")] == ["a", "b"]
    amounts = {
        ("order/x", "fast"): 8000,
        ("order", "fast"): 8000,
        ("", "fast"): 8000,
        ("any", "slow"): 2000,
        ("any", "fast"): 0,
    }
    assert {key: held.amount(*key) for key in amounts} == amounts
    for take in (second, first, bare, monitor):
        held.undo(take)
    assert {held.amount(*key) for key in amounts} == {0}
    assert held.taken_below("") == []


@pytest.mark.parametrize(("compute", "rate"), [(250, 2000), (500, 4000)])
def test_take_of_a_larger_instance_is_charged_as_it_is_and_counts_as_asked_for(
    world: World, compute: int, rate: int
) -> None:
    take = take_of(world, "f", "a", "order", gpu_milli=250)
    take = replace(take, share=Share(compute, 10240, 10240, Method.MIG))
    charge = held_of(world).charge_of_take(take)
    assert charge is not None
    assert (charge.milli, charge.rate) == (2000, rate)


def test_held_knows_what_tasks_were_charged_when_it_began() -> None:
    world = tree_world({"a": QueueSpec(), "a/x": QueueSpec(), "b": QueueSpec()})
    node(world, "n1", 4)
    for i, queue in enumerate(("a/x", "b", "a/x")):
        world.submit(f"j{i + 1}", queue=queue, gpus=1, cpus=0.1)
        again(world, "n1", 3 - i)
    held = held_of(world)
    tasks = {task.job_id: task for task in world.state.work.tasks.values() if task.job_id is not None}
    assert held.tasks_below("a") == [tasks[JobId("j1")], tasks[JobId("j3")]]
    assert held.tasks_below("b") == [tasks[JobId("j2")]]
    assert held.charge_of(tasks[JobId("j2")]).queue == "b"
    assert held.holdings(Lack(1, "a", "default")) == {"j1": 1000, "j3": 1000}
    assert held.holdings(Lack(1, "", "default")) == {"j1": 1000, "j2": 1000, "j3": 1000}
    assert held.holdings(Lack(1, "", "other")) == {}
    assert held.holdings(Lack(1, "a", user="ann")) == {}
    assert held.holdings(Lack(1, "b", counts_jobs=True)) == {"j2": 1}
    assert held.pools_of_jobs([JobId("j2")]) == {"default"}


@pytest.mark.parametrize(
    ("queue", "kept", "of_five"),
    [
        ("ops", 5000, 999),
        ("dev", 5000, 999),
        ("dev/x", 2000, 666),
        ("dev/y", 5000, 999),
        ("lab", 3000, 333),
        ("free", 5000, 999),
    ],
)
def test_lend_limits_of_queues_beside_keep_what_is_idle(queue: str, kept: int, of_five: int) -> None:
    world = tree_world(
        {
            "dev": QueueSpec(guarantee_gpus=owed(4)),
            "dev/x": QueueSpec(guarantee_gpus=owed(4), lend_limit_gpus={"default": 1000}),
            "dev/y": QueueSpec(),
            "lab": QueueSpec(guarantee_gpus=owed(2), lend_limit_gpus={"default": 0}),
            "ops": QueueSpec(guarantee_gpus=owed(9)),
            "free": QueueSpec(lend_limit_gpus={"default": 0}),
        }
    )
    held = held_of(world)
    assert held.kept_from(queue, "default", 15_000) == kept
    assert held.kept_from(queue, "default", 5000) == of_five, "guarantees are scaled"
    assert held.kept_from(queue, "other", 15_000) == 0
    full = held_of(world)
    full.sums.amounts["dev/x", "default"] = 5000
    assert full.kept_from("ops", "default", 15_000) == 2000, "no less than nothing is kept where more is held"


def test_lend_limits_keep_less_with_each_take_until_it_is_undone() -> None:
    keeps = QueueSpec(guarantee_gpus=owed(4), lend_limit_gpus={"default": 1000})
    world = tree_world({"dev": QueueSpec(), "dev/x": keeps, "dev/y": QueueSpec(), "ops": QueueSpec()})
    node(world, "n1", 4)
    held, take = held_of(world), take_of(world, "n1", "t", "dev/x", gpus=1)
    assert held.kept_from("ops", "default", 15_000) == 3000
    held.take(take)
    assert [held.kept_from(queue, "default", 15_000) for queue in ("ops", "dev/y", "dev/x")] == [
        2000,
        2000,
        0,
    ]
    held.undo(take)
    assert [held.kept_from(queue, "default", 15_000) for queue in ("ops", "dev/y", "dev/x")] == [
        3000,
        3000,
        0,
    ]


def test_gpu_of_an_unknown_node_is_charged_to_the_default_pool(world: World) -> None:
    held = held_of(world)
    take = Take(AgentId("gone"), job_of(), request(gpus=1), gpus=(GpuId("g"),))
    charge = held.charge_of_take(take)
    assert charge is not None
    assert (charge.pool, charge.milli) == ("default", 8000)


def test_limit_of_a_user_counts_models_that_nodes_have() -> None:
    world = tree_world(
        {"ops": QueueSpec()},
        pools=(Pool("fast", models=("H100",)),), gpu_cost={"H100": 2}, users={"ann": Limits(max_gpus=1)},
    )  # fmt: skip
    node(world, "a1", 1, "T4")
    world.submit("j1", queue="ops", gpus=1, user="ann", preemptible=True)
    again(world, "a1", 1)
    assert running(world) == {"j1"}


def test_pool_whose_limits_leave_no_room_is_named_by_why() -> None:
    world = tree_world({"ops": QueueSpec(limit_gpus=most(1))}, pools=(Pool("fast", models=("H100",)),))
    node(world, "a1", 2, "T4")
    for name in ("j1", "j2"):
        world.submit(name, queue="ops", gpus=1, preemptible=True)
        again(world, "a1", 2)
    assert running(world) == {"j1"}
    why = why_of(world.state, world.settings, world.now, world.job("j2"))
    assert "a1.example, which is in pool default, whose limits leave no room for the job" in why.summary
