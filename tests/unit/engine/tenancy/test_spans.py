"""Spans of what tasks hold: whom they are put down to, how long their jobs waited, and why they ended."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.tenancy.accounts import reason_of
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.saves import FoldRecords, KeepRecord
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tenancy import JobClass, QueueDocument, QueueSpec
from mesos_gpu.model.usage import DAY_MS, Closed, Span, SpanEnd
from tests.doubles.builders import World, every, gpu, offer

CLASSES = (JobClass(name="batch", charge_percent=50),)
DOCUMENT = QueueDocument(queues={"ml": QueueSpec()}, gpu_cost={"A100": 3}, classes=CLASSES)
WHOSE = {"queue": "ml", "job_class": "batch", "user": "ann", "gpus": 2}


def made() -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    world.feed(ev.QueuesChanged(DOCUMENT, 0))
    return world


def started(world: World, name: str = "j1", **fields: object) -> TaskId:
    world.submit(name, **{**WHOSE, **fields})
    world.offers(offer(f"{name}-o", "a1", gpus=2))
    task_id = world.job(name).task_id
    assert task_id is not None, world.job(name).message
    world.status(task_id, "TASK_RUNNING")
    return task_id


def records(effects: list[fx.Effect]) -> list[Closed]:
    return [effect.record for effect in every(effects, KeepRecord)]


def account(span: Span) -> tuple[str, str, str, str, int]:
    return span.owner, span.queue, span.job_class, span.app, span.charge_percent


def test_spans_are_put_down_to_the_owner_the_queue_and_the_class_of_the_job() -> None:
    world = made()
    span = world.state.ledger.spans[started(world)]
    assert account(span) == ("ann?", "ml", "batch", "", 50)
    assert [(part.model, part.gpu_milli, part.cost_milli) for part in span.parts] == [("A100", 2000, 6000)]


def test_spans_of_jobs_that_never_ran_are_put_down_alike() -> None:
    world = made()
    world.submit("j1", **WHOSE, cpus=640)
    world.tick(30.0)
    (record,) = records(world.feed(ev.KillRequested(JobId("j1"))))
    assert account(record.span) == ("ann?", "ml", "batch", "", 50)
    assert (record.span.wait_ms, record.span.wanted_milli) == (30_000, 2000)
    assert (record.span.begins_ms, record.ends_ms) == (1_030_000, 1_030_000)
    assert (record.lost_ms, record.refunded_ms, record.reason) == (0, 0, SpanEnd.KILLED)


def test_spans_have_the_wait_of_each_launch_and_a_gang_says_it_once() -> None:
    world = World()
    world.register()
    world.submit("j1", gpus=1, tasks=2)
    world.tick(20.0)
    world.node("a1", gpu("g0"), gpu("g1"))
    waits = {task_id: (span.wait_ms, span.wanted_milli) for task_id, span in world.state.ledger.spans.items()}
    assert waits == {"j1.1.0": (20_000, 2000), "j1.1.1": (0, 0)}


def test_spans_of_a_second_launch_wait_from_when_the_job_may_start_again() -> None:
    world = made()
    task_id = started(world, max_attempts=3)
    world.tick(100.0)
    world.status(task_id, "TASK_FAILED")
    again_at = world.job().not_before
    assert again_at > world.now
    world.tick(60.0)
    world.report("a1", gpu("g0"), gpu("g1"))
    world.offers(offer("o2", "a1", gpus=2))
    (span,) = world.state.ledger.spans.values()
    assert (span.task_id, span.wait_ms) == ("j1.2", round((world.now - again_at) * 1000))


def test_spans_that_change_while_the_clock_is_set_back_are_not_negative() -> None:
    world = made()
    task_id = started(world)
    began_ms = world.state.ledger.spans[task_id].begins_ms
    world.now -= 500.0
    other = replace(DOCUMENT, gpu_cost={"A100": 5})
    assert records(world.feed(ev.QueuesChanged(other, 1))) == [], "nothing was held as it was"
    span = world.state.ledger.spans[task_id]
    assert (span.begins_ms, span.cost_milli) == (began_ms, 10_000)
    (record,) = records(world.status(task_id, "TASK_FINISHED"))
    assert record.ends_ms == record.span.begins_ms == began_ms


def test_spans_that_change_follow_each_other_without_a_gap() -> None:
    world = made()
    task_id = started(world)
    world.tick(10.0)
    (record,) = records(world.feed(ev.QueuesChanged(replace(DOCUMENT, gpu_cost={"A100": 5}), 1)))
    span = world.state.ledger.spans[task_id]
    assert (record.reason, record.ends_ms, span.wait_ms, span.wanted_milli) == (
        SpanEnd.RULES, span.begins_ms, 0, 0,
    )  # fmt: skip


ENDS = {
    "finished": (TaskState.FINISHED, {}, SpanEnd.FINISHED),
    "failed": (TaskState.FAILED, {}, SpanEnd.FAILED),
    "killed": (TaskState.KILLED, {}, SpanEnd.KILLED),
    "lost": (TaskState.LOST, {}, SpanEnd.LOST),
    "given up": (TaskState.ABANDONED, {}, SpanEnd.LOST),
    "evicted": (TaskState.LOST, {"evicted": "its card is sick"}, SpanEnd.EVICTED),
    "preempted": (TaskState.LOST, {"evicted": "for j2", "preempted_for": JobId("j2")}, SpanEnd.PREEMPTION),
}


@pytest.mark.parametrize(("state", "fields", "reason"), ENDS.values(), ids=ENDS)
def test_span_reasons_follow_from_the_end_of_the_task(
    state: TaskState, fields: dict[str, object], reason: SpanEnd
) -> None:
    world = made()
    task = world.state.work.tasks[started(world)]
    assert reason_of(replace(task, state=state, **fields)) is reason  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", NoticeReason)
def test_span_reasons_are_those_of_a_notice_that_stands(reason: NoticeReason) -> None:
    world = made()
    task = world.state.work.tasks[started(world)]
    notice = Notice(1, reason, "", at=1000.0, until=1060.0)
    noticed = replace(task, state=TaskState.LOST, evicted="it had its notice", notice=notice)
    assert reason_of(noticed) is SpanEnd(reason.value)
    assert reason_of(replace(noticed, state=TaskState.FINISHED)) is SpanEnd.FINISHED, "it made it in time"


def test_span_of_a_task_that_is_forgotten_is_lost() -> None:
    assert reason_of(None) is SpanEnd.LOST


def test_spans_are_summed_up_once_a_day_when_they_are_old_enough() -> None:
    world = made()
    world.now = world.settings.memory.keep_spans_s + 3 * DAY_MS / 1000 - 1
    (first,) = every(world.feed(ev.Tick()), FoldRecords)
    assert every(world.feed(ev.Tick()), FoldRecords) == []
    world.now += 1
    (second,) = every(world.feed(ev.Tick()), FoldRecords)
    assert second != first
