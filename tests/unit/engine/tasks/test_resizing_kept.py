"""Shares that are to grow while jobs wait for what is kept for them, and what becomes of answers of a gang."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.events import ResizeRequested
from mesos_gpu.engine.tasks.resizing import on_resize_requested
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.tasks.resize import Resizing
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, Reservation, Spare
from mesos_gpu.policy.sharing.parts import GpuPart, unshared
from tests.doubles.builders import World, every, gpu
from tests.unit.engine.tasks.test_resizing import CARD, QUARTER, answer, granted, running

J9 = JobId("j9")
SAME = "job j1 cannot be resized: job j9 waits, and "


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", CARD, gpu("g1"))
    return world


def kept(**fields: Any) -> Reservation:
    return replace(Reservation(J9, "default", NOTHING, ENDLESS), **fields)


def spare(milli: int, queue: str = "default") -> dict[str, Any]:
    return {"spares": (Spare(queue, "default", milli),)}


def beside(memory_mib: int, milli: int, card: str = "g0") -> dict[str, Any]:
    part: GpuPart = replace(unshared(gpu(card), milli), memory_mib=memory_mib)
    return {"beside": (part,)}


def awaited(job: str) -> tuple[Allocation, ...]:
    return (Allocation(JobId(job), NOTHING),)


@pytest.mark.parametrize(
    ("patch", "job", "reservation", "why"),
    [
        ({"gpu_compute_pct": 35}, {}, spare(100), ""),
        ({"gpu_compute_pct": 35}, {}, spare(99), "queue default has 0.099 GPUs beside it, and 0.1 more are asked for"),
        ({"gpu_compute_pct": 35}, {}, spare(-5), "queue default has 0 GPUs beside it, and 0.1 more are asked for"),
        ({"gpu_compute_pct": 35}, {}, spare(0, "other"), ""),
        ({"gpu_compute_pct": 35}, {"queue": "lab/a"}, spare(0, "lab"),
            "queue lab has 0 GPUs beside it, and 0.1 more are asked for"),
        ({"gpu_compute_pct": 35}, {"tasks": 2}, spare(199),
            "queue default has 0.199 GPUs beside it, and 0.2 more are asked for"),
        ({"gpu_compute_pct": 35}, {"tasks": 2}, spare(200), ""),
        ({"gpu_memory_mib": 30000}, {}, spare(-5), ""),
        ({"gpu_compute_pct": 20}, {}, spare(-5), ""),
        ({"gpu_memory_mib": 30000}, {}, beside(10000, 0), ""),
        ({"gpu_memory_mib": 30000}, {}, beside(9999, 0),
            "g0 has 9999 MiB free beside its share, and 10000 MiB more are asked for"),
        ({"gpu_memory_mib": 30000}, {"tasks": 2}, beside(19999, 0),
            "g0 has 19999 MiB free beside its share, and 20000 MiB more are asked for"),
        ({"gpu_memory_mib": 30000}, {}, beside(0, 0, "g1"), ""),
        ({"gpu_memory_mib": 10000}, {}, beside(0, 0), ""),
        ({"gpu_compute_pct": 35}, {}, beside(0, 99),
            "g0 has 9.9 % of its compute free beside its share, and 10 % more are asked for"),
        ({"gpu_compute_pct": 35}, {"tasks": 2}, beside(0, 200), ""),
        ({"gpu_compute_pct": 35}, {}, {**spare(0), "awaited": awaited("j1")}, ""),
        ({"gpu_compute_pct": 35}, {}, {**spare(0), "awaited": awaited("j2")},
            "queue default has 0 GPUs beside it, and 0.1 more are asked for"),
        ({"gpu_compute_pct": 35}, {"timeout_s": 60, "kill_grace_s": 5.0}, {**spare(0), "at": 1065.0}, ""),
        ({"gpu_compute_pct": 35}, {"timeout_s": 60, "kill_grace_s": 5.0}, {**spare(0), "at": 1064.9},
            "queue default has 0 GPUs beside it, and 0.1 more are asked for"),
    ],
)  # fmt: skip
def test_share_does_not_grow_into_what_is_kept_for_a_job_that_waits(
    world: World, patch: dict[str, int | None], job: dict[str, Any], reservation: dict[str, Any], why: str
) -> None:
    running(world, **job)
    world.now += 30
    for task in list(world.state.work.tasks.values()):
        world.state.set_task(replace(task, started_at=1000.0))
    turn = Turn(world.state, world.settings, world.now)
    reserved = [kept(**reservation)]

    def ask() -> None:
        on_resize_requested(
            turn, ResizeRequested(JobId("j1"), patch), lambda: reserved, lambda job, pool, milli: None
        )

    if why:
        with pytest.raises(Conflict) as refused:
            ask()
        assert refused.value.what == SAME + why
        assert turn.effects == []
    else:
        ask()
        assert len(every(turn.effects, fx.AskResize)) == job.get("tasks", 1)


GROWN = replace(QUARTER, memory_mib=30000, memory_max_mib=30000)
#: How the first of two tasks answered, how the second one does, and what is said of the job then.
ENDS: list[tuple[dict[str, Any], dict[str, Any], str, int | None]] = [
    ({}, {}, "resized to 30000 MiB and 25 % of each GPU", 30000),
    ({}, {"refused": "no"}, "not resized: no", None),
    ({"refused": "first"}, {}, "not resized: first", None),
    ({"refused": "first"}, {"refused": "no"}, "not resized: first", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("asks_restart", "may"), [(False, False), (False, True), (True, False), (True, True)]
)
@pytest.mark.parametrize(("first", "second", "message", "memory_mib"), ENDS)
def test_job_whose_tasks_have_all_answered_is_resized_as_a_whole_or_not(
    world: World,
    asks_restart: bool,
    may: bool,
    first: dict[str, Any],
    second: dict[str, Any],
    message: str,
    memory_mib: int | None,
) -> None:
    one, two = running(world, tasks=2)
    resize = Resizing(4, GROWN, QUARTER, world.now, {"gpu_memory_mib": 30000}, restart=asks_restart)
    refused = first.get("refused", "")
    done = replace(resize, answered=True, refused=refused, restartable=bool(refused) and may)
    world.state.set_task(replace(one, resize=done, share=QUARTER if refused else GROWN))
    world.state.set_task(replace(two, resize=resize))
    before = world.job().version
    effects = answer(world, two.id, **second)
    job = world.job()
    assert job.version > before
    if refused and asks_restart and may:
        why = f"it is resized, which cannot be done while it runs: {refused}"
        assert job.message == f"{why}; it is ended here and queued again"
        assert (job.spec.gpu_memory_mib, len(every(effects, fx.Kill))) == (30000, 2)
        return
    assert (job.message, job.spec.gpu_memory_mib) == (message, memory_mib)
    undone = [] if bool(refused) == bool(second) else [one.id if not refused else two.id]
    assert [each.task_id for each in every(effects, fx.AskResize)] == undone
    for task_id in undone:
        back = world.state.work.tasks[task_id].resize
        assert back == replace(resize, number=5, share=QUARTER, before=GROWN, back=True, sent_at=world.now)
        answer(world, task_id)
        assert granted(world, task_id) == (20000, 250)
        assert world.job().message == message


def test_share_that_was_given_back_to_another_stays_smaller(world: World) -> None:
    one, two = running(world, tasks=2)
    shrunk = replace(QUARTER, memory_mib=5000, memory_max_mib=5000)
    resize = Resizing(4, shrunk, QUARTER, world.now, {"gpu_memory_mib": 5000})
    world.state.set_task(replace(one, resize=replace(resize, answered=True), share=shrunk))
    world.state.set_task(replace(two, resize=resize))
    running(world, "j2", share=replace(QUARTER, memory_mib=50000, memory_max_mib=50000, compute_milli=100))
    assert every(answer(world, two.id, refused="no"), fx.AskResize) == []
    assert world.job().message == "not resized: no"
    assert granted(world, one.id) == (5000, 250)
