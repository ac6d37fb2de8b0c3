"""Grants of what executors say that their tasks have: no more than their cards can have for them."""

from dataclasses import replace

import pytest

from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.tasks.resizing import changes, question
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.tasks.resize import ResizeAnswer, Resizing
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.resize import encode_answer
from tests.doubles.builders import World, gpu
from tests.unit.engine.tasks.test_resizing import CARD, QUARTER, running

G0, G1 = GpuId("g0"), GpuId("g1")
Amounts = tuple[int, int, int]  # memory, the most of it, compute


def share(memory_mib: int, memory_max_mib: int, compute_milli: int) -> Share:
    return replace(QUARTER, memory_mib=memory_mib, memory_max_mib=memory_max_mib, compute_milli=compute_milli)


def amounts(of: Share | None) -> Amounts:
    assert of is not None
    return of.memory_mib, of.memory_max_mib, of.compute_milli


def two_cards(own: Share, on_g0: Share | None = None, on_g1: Share | None = None) -> tuple[World, Task]:
    """A task with shares of two cards of 80000 and 60000 MiB, and others beside it."""
    world = World(settings=Settings.of("executor", "monitor").changed(gpu_compute_overcommit=1.5))
    world.register()
    world.node("a1", CARD, replace(gpu("g1"), sharing=Sharing(60000)))
    (task,) = running(world, share=own, gpus=2)
    world.state.set_task(task := replace(task, gpus=(G0, G1)))
    for name, card, other in (("o0", G0, on_g0), ("o1", G1, on_g1)):
        if other is not None:
            world.state.set_task(
                Task(
                    TaskId(name),
                    AgentId("a1"),
                    name,
                    None,
                    TaskState.RUNNING,
                    world.now,
                    gpus=(card,),
                    share=other,
                )
            )
    return world, task


def say(world: World, number: int, said: Amounts, **more: str) -> Task:
    world.status("j1.1", "TASK_RUNNING", data=encode_answer(ResizeAnswer(number, *said, **more)))  # type: ignore[arg-type]
    return world.state.work.tasks[TaskId("j1.1")]


@pytest.mark.parametrize(
    ("own", "on_g0", "on_g1", "said", "granted", "is_known"),
    [
        ((20000, 20000, 250), None, None, (5000, 6000, 100), (5000, 6000, 100), True),
        ((20000, 20000, 250), None, None, (60000, 60000, 1500), (60000, 60000, 1500), True),
        ((20000, 20000, 250), None, None, (90000, 90000, 2000), (60000, 60000, 1500), False),
        ((20000, 20000, 250), None, None, (60000, 90000, 1500), (60000, 60000, 1500), True),
        ((20000, 20000, 250), None, None, (60001, 60001, 1500), (60000, 60000, 1500), False),
        ((20000, 20000, 250), None, None, (60000, 60000, 1501), (60000, 60000, 1500), False),
        ((20000, 70000, 250), None, None, (20000, 90000, 250), (20000, 70000, 250), True),
        ((10000, 10000, 250), None, (50000, 50000, 700), (30000, 30000, 900), (10000, 30000, 800), False),
        ((5000, 5000, 250), None, (50000, 50000, 700), (30000, 30000, 900), (10000, 30000, 800), False),
        ((20000, 20000, 250), (50000, 50000, 700), None, (40000, 40000, 900), (30000, 40000, 800), False),
        ((20000, 20000, 250), (1000, 1000, 1400), None, (40000, 40000, 900), (40000, 40000, 250), False),
        ((20000, 20000, 250), None, None, (0, 0, 0), (20000, 20000, 250), True),
    ],
)
def test_task_that_is_asked_what_it_has_is_granted_what_others_leave(
    own: Amounts,
    on_g0: Amounts | None,
    on_g1: Amounts | None,
    said: Amounts,
    granted: Amounts,
    is_known: bool,
) -> None:
    world, task = two_cards(share(*own), *(None if each is None else share(*each) for each in (on_g0, on_g1)))
    asked = Resizing(0, share(*own), share(*own), world.now)
    assert question(task, world.now) == replace(task, resize=asked)
    world.state.set_task(question(task, world.now))
    task = say(world, 3, said)
    assert amounts(task.share) == granted
    known = replace(asked, number=3, share=share(*granted), answered=True) if is_known else asked
    assert task.resize == known


def test_task_without_a_share_or_with_the_question_is_not_asked_again() -> None:
    world, task = two_cards(QUARTER)
    asked = question(task, world.now)
    assert question(asked, world.now + 5) is asked
    whole = replace(task, share=None)
    assert question(whole, world.now) is whole
    resized = replace(task, resize=Resizing(4, share(30000, 30000, 100), QUARTER, world.now))
    counts = share(30000, 30000, 250)
    assert question(resized, 7.0).resize == Resizing(0, QUARTER, counts, 7.0), "what it may have got counts"
    learnt = replace(asked, resize=Resizing(0, QUARTER, QUARTER, world.now, answered=True))
    assert question(learnt, 7.0).resize == Resizing(0, QUARTER, QUARTER, 7.0)


@pytest.mark.parametrize(
    ("said", "granted"),
    [
        ((90000, 90000, 900), (30000, 30000, 500)),
        ((30000, 90000, 900), (30000, 30000, 500)),
        ((90000, 30000, 900), (30000, 30000, 500)),
        ((20000, 20000, 250), (20000, 20000, 250)),
        ((10000, 15000, 100), (10000, 15000, 100)),
    ],
)
def test_refused_resize_leaves_no_more_than_its_cards_count(said: Amounts, granted: Amounts) -> None:
    world, task = two_cards(QUARTER)
    resize = Resizing(2, share(30000, 30000, 500), QUARTER, world.now)
    world.state.set_task(replace(task, resize=resize))
    task = say(world, 2, said, refused="it cannot")
    assert amounts(task.share) == granted
    assert task.resize == replace(resize, answered=True, refused="it cannot")


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ((100, 100, 250), (100, 100, 250), {}),
        ((100, 100, 250), (200, 200, 250), {"gpu_memory_mib": 200}),
        ((100, 100, 250), (100, 300, 250), {"gpu_memory_max_mib": 300}),
        ((100, 300, 250), (200, 300, 250), {"gpu_memory_mib": 200}),
        ((100, 300, 250), (200, 400, 250), {"gpu_memory_mib": 200, "gpu_memory_max_mib": 400}),
        ((100, 300, 250), (200, 200, 250), {"gpu_memory_mib": 200}),
        ((100, 100, 250), (100, 100, 505), {"gpu_compute_pct": 50}),
        ((100, 100, 250), (100, 100, 9), {"gpu_compute_pct": 1}),
        ((100, 100, 250), (100, 100, 20), {"gpu_compute_pct": 2}),
    ],
)
def test_changes_of_a_request_are_those_of_its_share(
    old: Amounts, new: Amounts, changed: dict[str, int]
) -> None:
    assert changes(share(*old), share(*new)) == changed
