"""Seats in the engine, part by part: what GPUs there are, what jobs want and have of them, and who is seated."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.charges import capacity_by_pool
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.tenancy.seats import Admissions, Asked, Ground, seat
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking, BookingSpec, BookingState, Place
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Budget, Guarantee, OnEmpty, Pool, QueueDocument, QueueSpec, Shape
from mesos_gpu.policy.tenancy.seats import Ask
from tests.doubles.builders import World, gpu, spec

POOLS = Pool("fast", ("H100",)), Pool("old", ("T4",))
COSTS = {"H100": 3}


def owed(**gpus: int) -> QueueSpec:
    return QueueSpec(guarantee_gpus={pool: Guarantee(count * 1000) for pool, count in gpus.items()})


def made(queues: dict[str, QueueSpec] | None = None, **more: Any) -> World:
    """Nodes of eight A100, of four H100, and of two T4."""
    world = World()
    world.register()
    for name, model, count in (("a1", "A100", 8), ("h1", "H100", 4), ("t1", "T4", 2)):
        world.node(name, *(gpu(f"{name}-{i}", model) for i in range(count)), cpus=64)
    fields = {"pools": POOLS, "gpu_cost": COSTS, **more}
    world.state.put(QueueDocument(version=1, queues=queues or {"ml": owed(default=4)}, **fields))
    return world


def ground_of(world: World) -> Ground:
    return Ground(world.state, world.state.quota.tree, world.now)


def waits(world: World, name: str = "j1", at: float = 0.0, **fields: Any) -> Job:
    job = Job(JobId(name), spec(**{"queue": "ml", "gpus": 1, "preemptible": True, **fields}), at or world.now,
              world.state.work.next_sequence)  # fmt: skip
    world.state.set_job(job)
    return world.job(name)


def runs(world: World, name: str, *cards: str, held: GuaranteedAdmission | None = None, **fields: Any) -> Job:
    """A job with a task for each card."""
    job = waits(world, name, **{"tasks": len(cards), **fields})
    ids = [TaskId(f"{name}.1.{rank}") for rank in range(len(cards))]
    world.state.set_job(replace(job, state=JobState.RUNNING, task_id=ids[0], launches=1, seat=held))
    for rank, (task_id, card) in enumerate(zip(ids, cards, strict=True)):
        agent = card.partition("-")[0]
        world.state.set_task(
            Task(
                task_id, AgentId(agent), task_id, job.id, TaskState.RUNNING, world.now, gpus=(GpuId(card),),
                hostname=f"{agent}.example", started_at=world.now, launch=1, rank=rank,
            )
        )  # fmt: skip
    return world.job(name)


def test_ground_has_all_gpus_by_pool_and_cost() -> None:
    world = made()
    ground = ground_of(world)
    assert capacity_by_pool(ground.state, ground.tree) == {"default": 8000, "fast": 12_000, "old": 2000}
    assert [ground.pool_of(world.state.cluster.nodes.get(AgentId(name))) for name in ("h1", "a1", "x")] == [
        "fast", "default", "default",
    ]  # fmt: skip


WANTS = {
    "any model, the cheapest first": ({}, {}, (("default", 1000), ("old", 1000), ("fast", 3000))),
    "one model": ({}, {"gpu_model": ("H100",), "gpus": 2}, (("fast", 6000),)),
    "a model of no node": ({}, {"gpu_model": ("B200",)}, ()),
    "of several tasks, each": ({}, {"tasks": 3, "gpu_model": ("A100",)}, (("default", 1000),)),
    "a share": ({}, {"gpu_milli": 500}, (("default", 500), ("old", 500), ("fast", 1500))),
    "in the order of its queue": (
        {"queues": {"ml": QueueSpec(pools=("fast", "default"), overflow_after_s=0.0)}}, {},
        (("fast", 3000), ("default", 1000)),
    ),
    "without costs, by name": ({"gpu_cost": {}}, {}, (("default", 1000), ("fast", 1000), ("old", 1000))),
    "without pools, the dearest": ({"pools": ()}, {}, (("default", 3000),)),
    "without both": ({"pools": (), "gpu_cost": {}}, {"gpu_model": ("B200",), "gpus": 2}, (("default", 2000),)),
}  # fmt: skip


@pytest.mark.parametrize(("document", "fields", "wants"), WANTS.values(), ids=WANTS)
def test_job_wants_room_in_the_pools_that_it_may_use(
    document: dict[str, Any], fields: dict[str, Any], wants: tuple[tuple[str, int], ...]
) -> None:
    world = made(**document)
    assert ground_of(world).wants(waits(world, **fields)) == wants


GRANTED = {
    "one card": (("a1-0",), {}, ("default", 1000)),
    "a dear card": (("h1-0",), {}, ("fast", 3000)),
    "in two pools, the most, where the first is": (("t1-0", "h1-0"), {}, ("old", 3000)),
    "without pools": (("h1-0",), {"pools": ()}, ("default", 3000)),
    "without costs": (("h1-0",), {"gpu_cost": {}}, ("fast", 1000)),
    "without both": (("h1-0",), {"pools": (), "gpu_cost": {}}, ("default", 1000)),
}


@pytest.mark.parametrize(("cards", "document", "granted"), GRANTED.values(), ids=GRANTED)
def test_job_that_runs_takes_what_its_cards_cost(
    cards: tuple[str, ...], document: dict[str, Any], granted: tuple[str, int]
) -> None:
    world = made(**document)
    job = runs(world, "j1", *cards)
    assert ground_of(world).granted(job) == granted


def take(card: str) -> Take:
    return Take(AgentId(card.partition("-")[0]), gpus=(GpuId(card),))


LAUNCHES = {
    "in the pool of its seat": (("h1-0",), GuaranteedAdmission("ml", "fast", (0,), 3000, 1.0), 3000),
    "at less than its seat": (("h1-0",), GuaranteedAdmission("ml", "fast", (0,), 4000, 1.0), 3000),
    "at more than its seat": (("h1-0",), GuaranteedAdmission("ml", "fast", (0,), 2999, 1.0), None),
    "in another pool": (("a1-0",), GuaranteedAdmission("ml", "fast", (0,), 3000, 1.0), None),
    "of two tasks, the dearer": (
        ("a1-0", "h1-0"),
        GuaranteedAdmission("ml", "default", (0, 0), 3000, 1.0),
        3000,
    ),
}


@pytest.mark.parametrize(("cards", "given", "milli"), LAUNCHES.values(), ids=LAUNCHES)
def test_job_takes_its_seat_where_it_is_launched(
    cards: tuple[str, ...], given: GuaranteedAdmission, milli: int | None
) -> None:
    world = made()
    job = waits(world)
    takes = [take(card) for card in cards]
    seating = Admissions(ground_of(world), {job.id: given})
    assert seating.at_launch(job, takes) == (None if milli is None else replace(given, milli=milli))
    assert Admissions(ground_of(world)).at_launch(job, takes) is None
    assert seating.seat_for(job) == given
    own = replace(given, since=7.0)
    assert seating.seat_for(replace(job, seat=own)) == own
    assert seating.is_guaranteed(job)
    assert not Admissions(ground_of(world)).is_guaranteed(job)
    assert Admissions(ground_of(world)).is_guaranteed(waits(world, "j2", gpus=0))


BOOKED = BookingSpec("exam", "ml", 1, "2026-11-24T13:00", 3600, pool="default", from_guarantee=True)
BOOKINGS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "with its cards": ({}, {}, (3000, 4000)),
    "without cards, of its first model": ({"models": ("H100",)}, {"places": ()}, (1000, 4000)),
    "without cards, of any": ({"gpus": 2}, {"places": ()}, (2000, 4000)),
    "that is not active": ({}, {"state": BookingState.PREPARING}, (4000, 4000)),
    "out of no guarantee": ({"from_guarantee": False}, {}, (4000, 4000)),
    "of another pool": ({"pool": "fast"}, {}, (4000, 4000)),
}


@pytest.mark.parametrize(("booked", "fields", "cells"), BOOKINGS.values(), ids=BOOKINGS)
def test_cells_are_without_what_is_booked_out_of_them(
    booked: dict[str, Any], fields: dict[str, Any], cells: tuple[int, ...]
) -> None:
    shapes = {"default": Guarantee(8000, (Shape(2, 4),))}
    world = made({"ml": QueueSpec(guarantee_gpus=shapes)})
    assert ground_of(world).cells == {("ml", "default"): (4000, 4000)}
    places = (Place(AgentId("a1"), "a1.example", (GpuId("a1-0"),)),)
    booking = Booking(
        "b1", replace(BOOKED, **booked), "ann", 0.0, "2026-11-24", 1, 2, BookingState.ACTIVE, places
    )
    world.state.put(replace(booking, **fields))
    assert ground_of(world).cells == {("ml", "default"): cells}


def test_cells_are_scaled_where_the_document_says_so() -> None:
    queues = {"a": owed(default=12), "b": owed(default=4)}
    assert ground_of(made(queues)).cells == {("a", "default"): (12_000,), ("b", "default"): (4000,)}
    assert ground_of(made(queues, overbook=True)).cells == {
        ("a", "default"): (6000,),
        ("b", "default"): (2000,),
    }


def seated(
    world: World, **more: Any
) -> tuple[dict[str, GuaranteedAdmission], dict[str, GuaranteedAdmission | None]]:
    """The seats that jobs which wait are given, and those of all jobs then."""
    seating = seat(Turn(world.state, world.settings, world.now), **{"may_start": lambda *_: True, **more})
    given = {str(job_id): each for job_id, each in seating.given.items()}
    return given, {
        str(job.id): job.seat for job in world.state.work.jobs.values() if job.state is JobState.RUNNING
    }


def of(
    queue: str = "ml", milli: int = 1000, since: float = 1000.0, cells: tuple[int, ...] = (0,)
) -> GuaranteedAdmission:
    return GuaranteedAdmission(queue, "default", cells, milli, since)


def test_seats_go_to_those_that_run_and_wait_in_their_order() -> None:
    world = made({"ml": owed(default=3)}, pools=(), gpu_cost={})
    runs(world, "r1", "a1-0", held=of(since=5.0))
    runs(world, "r2", "a1-1")
    waits(world, "w1", at=1.0)
    waits(world, "w2", at=2.0)
    version = world.job("r2").version
    assert seated(world) == ({"w1": of()}, {"r1": of(since=5.0), "r2": of()})
    assert world.job("r2").version == version + 1


def test_seat_that_a_document_takes_is_seen_in_the_job() -> None:
    world = made({"ml": owed(default=1)}, pools=(), gpu_cost={}, at=900.0)
    runs(world, "r1", "a1-0", held=of(since=5.0))
    runs(world, "r2", "a1-1", held=of(since=6.0))
    versions = [world.job(name).version for name in ("r1", "r2")]
    assert seated(world) == ({}, {"r1": of(since=5.0), "r2": None})
    assert [world.job(name).version for name in ("r1", "r2")] == [versions[0], versions[1] + 1]
    assert world.job("r2").spared_until > 1e9


WHO: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "that waits": ({}, {}, True),
    "that may not start yet": ({}, {"not_before": 1000.5}, False),
    "that may start now": ({}, {"not_before": 1000.0}, True),
    "that may not start yet, with room": ({}, {"not_before": 2000.0, "room_made_at": 900.0}, True),
    "without GPUs": ({"gpus": 0}, {}, False),
    "that is too large": ({"gpus": 5}, {}, False),
    "of another queue": ({"queue": "other"}, {}, False),
}


@pytest.mark.parametrize(("fields", "state", "has"), WHO.values(), ids=WHO)
def test_seat_is_given_to_a_job(fields: dict[str, Any], state: dict[str, Any], has: bool) -> None:
    world = made({"ml": owed(default=4), "other": QueueSpec()}, pools=(), gpu_cost={})
    waits(world, **fields)
    world.state.set_job(replace(world.job(), **state))
    assert seated(world)[0].keys() == ({"j1"} if has else set())
    assert seated(world, may_start=lambda *_: False)[0] == {}


def test_seat_is_given_where_a_job_may_start() -> None:
    world = made({"ml": owed(default=4, fast=12)})
    waits(world)
    asked = list[tuple[str, str]]()

    def may_start(job: Job, pool: str) -> bool:
        asked.append((str(job.id), pool))
        return pool != "default"

    assert seated(world, may_start=may_start)[0] == {
        "j1": GuaranteedAdmission("ml", "fast", (0,), 3000, 1000.0)
    }
    assert asked == [("j1", "default"), ("j1", "old"), ("j1", "fast")]


def test_seat_is_not_given_to_one_that_must_borrow() -> None:
    empty = Budget(0, on_empty=OnEmpty.BORROW)
    world = made({"ml": replace(owed(default=4), budget=empty)}, pools=(), gpu_cost={})
    world.feed(ev.Tick())
    runs(world, "r1", "a1-0")
    waits(world, "w1")
    assert seated(world) == ({}, {"r1": None})


@pytest.mark.parametrize(("after_s", "kept"), [(500.0, True), (500.5, False)])
def test_cells_are_kept_for_the_first_job_that_has_waited_too_long(after_s: float, kept: bool) -> None:
    world = made({"ml": replace(owed(default=4), starve_after_s=after_s)}, pools=(), gpu_cost={})
    runs(world, "r1", "a1-0", held=of(since=5.0))
    waits(world, "large", at=500.0, gpus=4)
    waits(world, "small", at=600.0)
    assert seated(world)[0].keys() == (set() if kept else {"small"})


def test_job_would_be_seated_when_others_have_ended() -> None:
    world = made({"ml": owed(default=2)}, pools=(), gpu_cost={})
    holder = runs(world, "r1", "a1-0", "a1-1", held=of(since=5.0, cells=(0, 0)))
    runs(world, "r2", "a1-2")
    job, other = waits(world, gpus=2), waits(world, "j2")
    seating = Admissions(ground_of(world))
    assert not seating.would_seat(job, [], ["default"])
    assert seating.would_seat(job, [holder.id], ["default"])
    assert not seating.would_seat(job, [holder.id], ["fast"])
    given = Admissions(ground_of(world), {other.id: of(), job.id: of(milli=2000)})
    assert given.would_seat(job, [holder.id], ["default"]), "no room was made for the other"
    world.state.set_job(replace(other, room_made_at=5.0))
    world.state.set_job(replace(world.job(), room_made_at=5.0))
    assert not given.would_seat(world.job(), [holder.id], ["default"])


def test_line_that_is_asked_twice_is_worked_out_once() -> None:
    worked = list[str]()

    def asks() -> Any:
        for name in "ab":
            worked.append(name)
            yield Ask(JobId(name), ())

    line = Asked(asks())
    first = iter(line)
    assert next(first).job_id == "a"
    assert [ask.job_id for ask in line] == ["a", "b"]
    assert [ask.job_id for ask in first] == ["b"]
    assert worked == ["a", "b"]
