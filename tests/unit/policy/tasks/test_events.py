"""Events that a scheduler remembers of what is saved."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.event import MAX_EVENTS, EventKind, JobEvent
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.tasks.events import remembered
from tests.doubles.builders import spec

NOTICE = Notice(4, NoticeReason.RECLAIM, "queue ml is owed them", at=100.0, until=160.0)
RECALLED = replace(NOTICE, number=5, recalled_at=130.0)


def task(notice: Notice | None, *, job: str | None = "j", **fields: Any) -> Task:
    job_id = None if job is None else JobId(job)
    return Task(TaskId("t"), AgentId("a"), "e", job_id, TaskState.RUNNING, 0.0, notice=notice, **fields)


def checkpoint(at: float | None, id: str = "j") -> Job:
    return Job(JobId(id), spec(), 0.0, 1, checkpoint_at=at)


def event(number: int, at: float, kind: EventKind, notice: Notice | None = None, job: str = "j") -> JobEvent:
    return JobEvent(number, at, kind, JobId(job), notice)


GIVEN = event(100_000, 100.0, EventKind.NOTICE, NOTICE)
END = event(160_000, 160.0, EventKind.END, NOTICE)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (task(None), []),
        (task(None, evicted="ours", kill_sent_at=160.0), []),
        (task(NOTICE, job=None), []),
        (task(NOTICE), [GIVEN]),
        (task(NOTICE, evicted="ours"), [GIVEN]),
        (task(NOTICE, kill_sent_at=160.0), [GIVEN]),
        (task(NOTICE, evicted="ours", kill_sent_at=160.0), [GIVEN, END]),
        (task(RECALLED), [GIVEN, event(130_000, 130.0, EventKind.RECALL, RECALLED)]),
        (
            task(RECALLED, evicted="ours", kill_sent_at=160.0),
            [GIVEN, event(130_000, 130.0, EventKind.RECALL, RECALLED)],
        ),
        (
            task(replace(NOTICE, until=100.0), evicted="ours", kill_sent_at=100.0),
            [event(100_000, 100.0, EventKind.END, replace(NOTICE, until=100.0))],
        ),
        (
            task(replace(NOTICE, warning=True), evicted="ours", kill_sent_at=160.0),
            [event(100_000, 100.0, EventKind.IDLE_WARNING, replace(NOTICE, warning=True))],
        ),
    ],
)  # fmt: skip
def test_notice_of_a_task_is_remembered_with_its_recall_or_its_end(
    known: Task, wanted: list[JobEvent]
) -> None:
    assert remembered([], [known]) == wanted


def test_tasks_without_events_hide_none_of_those_that_follow() -> None:
    warned = task(replace(NOTICE, warning=True, at=90.0), job="w")
    every = [task(None), task(NOTICE, job=None), warned, task(NOTICE)]
    assert [each.job_id for each in remembered([], every)] == ["w", "j"]


def test_checkpoint_of_a_job_is_remembered_and_members_of_a_gang_have_one_notice() -> None:
    jobs = [checkpoint(None, "k"), checkpoint(120.5)]
    events = remembered(jobs, [task(NOTICE, rank=0), task(NOTICE, rank=1)])
    assert events == [GIVEN, event(120_500, 120.5, EventKind.CHECKPOINT)]


def test_events_of_one_moment_are_in_order_with_numbers_that_grow() -> None:
    jobs = [checkpoint(100.0, id) for id in ("b", "a")]
    soon = checkpoint(100.001, "c")
    events = remembered([soon, *jobs], [task(NOTICE, job="b")])
    assert events == [
        event(100_000, 100.0, EventKind.CHECKPOINT, job="a"),
        event(100_001, 100.0, EventKind.NOTICE, NOTICE, "b"),
        event(100_002, 100.0, EventKind.CHECKPOINT, job="b"),
        event(100_003, 100.001, EventKind.CHECKPOINT, job="c"),
    ]


def test_first_event_has_the_number_of_its_time_and_the_latest_are_kept() -> None:
    assert [each.number for each in remembered([checkpoint(0.0)], [])] == [1]
    jobs = [checkpoint(float(at), f"j{at}") for at in range(1, MAX_EVENTS + 3)]
    events = remembered(jobs, [])
    assert (len(events), events[0].at, events[-1].at) == (MAX_EVENTS, 3.0, MAX_EVENTS + 2.0)
