"""Spans and records as a whole: amounts, accounts, times, and reasons of their end."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.tenancy.accounts import unmet
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.saves import FoldRecords, KeepRecord
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tenancy import Guarantee, JobClass, Pool, QueueDocument, QueueSpec
from mesos_gpu.model.usage import DAY_MS, Account, Closed, Part, Span, SpanEnd
from mesos_gpu.policy.accounts.sums import Figures
from tests.doubles.builders import World, every, gpu, offer

BATCH = JobClass(name="batch", charge_percent=50)
DOCUMENT = QueueDocument(queues={"ml": QueueSpec()}, gpu_cost={"A100": 3}, classes=(BATCH,))
OWED = replace(DOCUMENT, queues={"ml": QueueSpec(guarantee_gpus={"default": Guarantee(6000)})})
IN_POOLS = replace(DOCUMENT, pools=(Pool("big", ("A100",)),))
PART = Part("A100", 2000, 6000)


def made(document: QueueDocument | None = DOCUMENT) -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    if document is not None:
        world.feed(ev.QueuesChanged(document, 0))
    return world


def started(world: World, name: str = "j1", **fields: Any) -> Span:
    """A job that waits seven seconds, and runs."""
    world.submit(name, **{"queue": "ml", "user": "ann", "gpus": 2, "cpus": 640, **fields})
    world.tick(7.0)
    job = world.job(name)
    world.state.set_job(replace(job, spec=replace(job.spec, cpus=1)))
    world.offers(offer(f"{name}-o", "a1", gpus=2))
    world.status(f"{name}.1", "TASK_RUNNING")
    return world.state.ledger.spans[TaskId(f"{name}.1")]


def records(effects: list[fx.Effect]) -> list[Closed]:
    return [effect.record for effect in every(effects, KeepRecord)]


SPAN = Span(
    TaskId("j1.1"), JobId("j1"), "ann?", "ml", "", "", "", (PART,), borrowed=True, charge_percent=100,
    begins_ms=1_007_000, wait_ms=7000, wanted_milli=2000,
)  # fmt: skip
SPANS: dict[str, tuple[QueueDocument | None, dict[str, str], Span]] = {
    "in a tree": (DOCUMENT, {}, SPAN),
    "of a class": (DOCUMENT, {"job_class": "batch"}, replace(SPAN, job_class="batch", charge_percent=50)),
    "of an app": (DOCUMENT, {"app": "/web"}, replace(SPAN, app="/web")),
    "with a seat": (OWED, {}, replace(SPAN, borrowed=False)),
    "in a pool": (IN_POOLS, {}, replace(SPAN, pool="big")),
    "without a tree": (None, {}, replace(SPAN, borrowed=False, parts=(Part("A100", 2000, 2000),))),
}


@pytest.mark.parametrize(("document", "fields", "span"), SPANS.values(), ids=SPANS)
def test_span_says_all_of_what_a_task_holds(
    document: QueueDocument | None, fields: dict[str, str], span: Span
) -> None:
    assert started(made(document), **fields) == span


def ended(world: World, state: str, **fields: Any) -> Closed:
    """The task ends ten seconds after its begin, as it is with those fields."""
    world.tick(10.0)
    task = world.state.work.tasks[TaskId("j1.1")]
    world.state.set_task(replace(task, **fields))
    (record,) = records(world.status("j1.1", state))
    assert TaskId("j1.1") not in world.state.ledger.spans
    return record


@pytest.mark.parametrize(
    ("state", "reason"), [("TASK_FINISHED", SpanEnd.FINISHED), ("TASK_FAILED", SpanEnd.FAILED)]
)
def test_record_of_a_task_that_ends_by_itself_loses_nothing(state: str, reason: SpanEnd) -> None:
    world = made()
    span = started(world)
    assert ended(world, state) == Closed(span, 1_017_000, 0, 0, reason)


LOST = {
    "without a checkpoint": (None, 10_000),
    "with one of before": (1_005.0, 10_000),
    "with one": (1_011.5, 5500),
    "with one of this moment": (1_017.0, 0),
    "with one by a clock that is ahead": (1_050.0, 0),
}


@pytest.mark.parametrize(("checkpoint_at", "lost_ms"), LOST.values(), ids=LOST)
def test_record_of_work_that_is_lost_is_refunded_from_the_checkpoint_on(
    checkpoint_at: float | None, lost_ms: int
) -> None:
    world = made()
    span = started(world)
    world.state.set_job(replace(world.job(), checkpoint_at=checkpoint_at))
    notice = Notice(1, NoticeReason.RECLAIM, "", at=1010.0, until=1e9)
    record = ended(world, "TASK_KILLED", notice=notice, evicted="it had its notice")
    assert record == Closed(span, 1_017_000, lost_ms, lost_ms, SpanEnd.RECLAIM)


@pytest.mark.parametrize(
    ("late_s", "refunded_ms"), [(0.0, 0), (0.999, 0), (1.0, 1000), (8.5, 8000), (60.0, 10_000)]
)
def test_record_of_an_end_that_is_heard_late_is_refunded_in_whole_seconds(
    late_s: float, refunded_ms: int
) -> None:
    world = made()
    span = started(world)
    world.tick(10.0)
    status = Status(TaskId("j1.1"), "TASK_FINISHED", AgentId("a1"), uuid="dXVpZA==", at=world.now - late_s)
    (record,) = records(world.feed(ev.StatusArrived(status)))
    assert record == Closed(span, 1_017_000, 0, refunded_ms, SpanEnd.FINISHED)


def test_record_of_a_wait_in_vain_says_who_waited_and_for_what() -> None:
    world = made()
    world.submit("j1", queue="ml", user="ann", gpus=2, tasks=3, cpus=640, job_class="batch", app="/web")
    world.tick(30.0)
    span = Span(
        TaskId("j1.0"), JobId("j1"), "ann?", "ml", "batch", "/web", "", (Part("", 0, 0),), borrowed=False,
        charge_percent=50, begins_ms=1_030_000, wait_ms=30_000, wanted_milli=6000,
    )  # fmt: skip
    effects = world.feed(ev.KillRequested(JobId("j1")))
    assert records(effects) == [Closed(span, 1_030_000, 0, 0, SpanEnd.KILLED)]


CHANGED = {
    "of the costs": (
        replace(DOCUMENT, gpu_cost={"A100": 5}),
        SpanEnd.RULES,
        {"parts": (Part("A100", 2000, 10_000),)},
    ),
    "of the guarantees": (OWED, SpanEnd.SEAT, {"borrowed": False}),
    "of the pools": (IN_POOLS, SpanEnd.RULES, {"pool": "big"}),
}


@pytest.mark.parametrize(("document", "reason", "fields"), CHANGED.values(), ids=CHANGED)
def test_span_is_followed_by_another_at_a_change(
    document: QueueDocument, reason: SpanEnd, fields: dict[str, Any]
) -> None:
    world = made()
    span = started(world)
    world.tick(10.0)
    effects = world.feed(ev.QueuesChanged(document, 1))
    assert records(effects) == [Closed(span, 1_017_000, 0, 0, reason)]
    after = replace(span, begins_ms=1_017_000, wait_ms=0, wanted_milli=0, **fields)
    assert list(world.state.ledger.spans.values()) == [after]
    assert records(world.tick(5.0)) == []
    assert ended(world, "TASK_FINISHED").span == after


def test_span_that_changes_at_its_begin_is_the_other_from_the_begin_on() -> None:
    world = made()
    span = started(world)
    assert records(world.feed(ev.QueuesChanged(OWED, 1))) == []
    assert list(world.state.ledger.spans.values()) == [replace(span, borrowed=False)]


def test_span_keeps_its_costs_while_its_node_tells_of_no_models() -> None:
    world = made()
    span = started(world)
    world.tick(10.0)
    world.report("a1")
    assert records(world.feed(ev.QueuesChanged(replace(DOCUMENT, version=7), 1))) == []
    assert list(world.state.ledger.spans.values()) == [span]


def test_unmet_demand_is_that_of_all_jobs_that_wait_for_gpus() -> None:
    world = made()
    world.submit("j1", queue="ml", user="ann", gpus=2, tasks=2, cpus=640, job_class="batch", app="/web")
    world.tick(10.0)
    world.submit("j2", queue="ml", gpus=1, cpus=640)
    world.submit("j3", queue="ml", gpus=0, cpus=640)
    array = ev.JobSubmitted(JobId("sweep-1"), replace(world.job("j2").spec, name="sweep", array="0-9%4"))
    world.feed(array)
    world.tick(5.0)
    owner = unmet(world.state, world.now)[1][0].owner
    assert unmet(world.state, world.now) == [
        (Account("ann?", "ml", "batch", "/web", "", ""), Figures(unmet=4000 * 15_000)),
        (Account(owner, "ml", "", "", "", ""), Figures(unmet=1000 * 5000)),
        (Account(owner, "ml", "", "", "", ""), Figures(unmet=4 * 1000 * 5000)),
    ]


def test_records_are_summed_up_when_a_day_is_old_enough() -> None:
    world = World()
    keep_s = world.settings.memory.keep_spans_s
    day_s = DAY_MS // 1000
    world.now = keep_s + 3 * day_s - 0.5
    assert every(world.feed(ev.Tick()), FoldRecords) == [FoldRecords(2 * DAY_MS)]
    world.now += 0.5
    assert every(world.feed(ev.Tick()), FoldRecords) == [FoldRecords(3 * DAY_MS)]
    world.now -= 1
    assert every(world.feed(ev.Tick()), FoldRecords) == [], "a clock that is set back sums up nothing twice"


def test_seat_of_a_job_is_what_makes_its_span_no_borrowed_one() -> None:
    world = made(OWED)
    started(world)
    assert world.job().seat == GuaranteedAdmission("ml", "default", (0,), 6000, 1007.0)


def test_unmet_demand_of_an_array_counts_tasks_behind_its_first_draft_once() -> None:
    world = made()
    world.submit("job", gpus=1, queue="ml", cpus=640)
    wanted = replace(world.job("job").spec, name="sweep", array="0-9%5", cpus=1, max_attempts=3)
    world.feed(ev.KillRequested(JobId("job")))
    world.feed(ev.JobSubmitted(JobId("sweep-1"), wanted))
    world.offers(offer("o", "a1", gpus=1))
    task = next(task for task in world.state.work.tasks.values() if task.job_id is not None)
    world.status(task.id, "TASK_RUNNING")
    world.status(task.id, "TASK_FAILED")
    world.now += 100.0
    waiting = [world.state.work.jobs[job_id].index for _, job_id in world.state.work.queue]
    assert waiting == [0, 2], "one waits again, and one is the first draft"
    assert [each.unmet for _, each in unmet(world.state, world.now)] == [1000 * 99_000, 3 * 1000 * 100_000]
