"""Attained service at its borders: the first start again, places of jobs, and the next level."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.served import Served
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.tenancy.las import (
    Steps,
    at_end,
    at_launch,
    is_due,
    moves_at,
    rank_of,
    service_of,
    waits_since,
)
from tests.doubles.builders import spec

#: Levels end at 1, 4 and 16 seconds of a whole GPU; a job that waits 10 seconds starts from level 0.
STEPS = Steps(1000, 4, small_first=True, lift_after_ms=10_000)


def job(served: Served | None = None, *, state: JobState = JobState.PENDING, **fields: object) -> Job:
    own = {"gpus": 2, "tasks": 3, **fields}
    priority = own.pop("priority", 0)
    return Job(JobId("j1"), spec(**own, priority=priority), 100.0, 1, state=state, served=served)


def task(started_at: float | None, ended_at: float | None = None) -> Task:
    return Task(
        TaskId("j1.1"), AgentId("a1"), "j1.1", JobId("j1"), TaskState.RUNNING, 0.0, started_at=started_at,
        ended_at=ended_at,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("service", "level"),
    [
        (0, (0, 1_000_000)), (999_999, (0, 1_000_000)), (1_000_000, (1, 4_000_000)), (3_999_999, (1, 4_000_000)),
        (4_000_000, (2, 16_000_000)), (16_000_000, (3, 64_000_000)),
    ],
)  # fmt: skip
def test_level_of_service_begins_where_the_one_before_ends(service: int, level: tuple[int, int]) -> None:
    assert STEPS.level(service) == level


def test_rank_of_service_is_its_level_and_size_and_that_of_the_lifted_is_before_all() -> None:
    assert STEPS.rank_of(0, 500, lifted=False) == (0, 500)
    assert STEPS.rank_of(1_000_000, 500, lifted=False) == (1, 500)
    assert STEPS.rank_of(999_999, 500, lifted=True) == (-1,)
    assert STEPS.rank_of(1_000_000, 500, lifted=True) == (1, 500)
    assert replace(STEPS, small_first=False).rank_of(4_000_000, 500, lifted=False) == (2, 0)


def test_job_waits_since_it_went_back_to_its_queue_or_came_to_it() -> None:
    made = job()
    assert waits_since(made) == 100.0
    assert waits_since(replace(made, in_line_since=0.0)) == 0.0, "at the epoch, too"
    assert waits_since(replace(made, in_line_since=105.0, served=Served(5))) == 105.0
    assert waits_since(replace(made, in_line_since=105.0, served=Served(5, 0.0))) == 0.0


def test_job_starts_anew_when_it_has_waited_long_enough() -> None:
    made = job(Served(7, 100.0))
    assert [is_due(made, now, STEPS) for now in (109.999, 110.0, 111.0)] == [False, True, True]
    assert not is_due(made, 1e9, replace(STEPS, lift_after_ms=None))
    assert not is_due(replace(made, state=JobState.RUNNING), 111.0, STEPS)
    assert at_launch(made, 109.999, STEPS) == Served(7, 100.0)
    assert at_launch(made, 110.0, STEPS) == Served(lifted=True)


RANKS = {
    "of one of which nothing is known": (job(), 105.0, (0, 0, 0, 6000)),
    "by priority": (job(priority=4), 105.0, (0, -4, 0, 6000)),
    "by what it has had": (job(Served(1_000_000, 100.0)), 105.0, (0, 0, 1, 6000)),
    "of one that waits long": (job(Served(9_000_000, 100.0), priority=4), 110.0, (-1, -4, -1)),
    "of one that was lifted": (job(Served(9, 100.0, lifted=True)), 105.0, (-1, 0, -1)),
    "of one that was lifted, and has had more since": (
        job(Served(1_000_000, 100.0, lifted=True)), 105.0, (0, 0, 1, 6000),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("waits", "now", "rank"), RANKS.values(), ids=RANKS)
def test_rank_of_a_job_that_waits(waits: Job, now: float, rank: tuple[int, ...]) -> None:
    members = [task(100.0, 104.0)]
    assert rank_of(waits, members, now, STEPS) == rank, "tasks of a job that waits do not count"


@pytest.mark.parametrize(
    ("served", "ran_s", "rank"),
    [
        (None, 0.499, (0, 0, 0, 6000)), (None, 0.5, (0, 0, 1, 6000)), (None, 2.0, (0, 0, 2, 6000)),
        (Served(999_000, lifted=True), 0.0, (-1, 0, -1)), (Served(999_000, lifted=True), 0.001, (0, 0, 1, 6000)),
        (Served(0, 100.0), 100.0, (0, 0, 4, 6000)),
    ],
)  # fmt: skip
def test_rank_of_a_job_that_runs_counts_what_it_has_had_until_now(
    served: Served | None, ran_s: float, rank: tuple[int, ...]
) -> None:
    runs = job(served, state=JobState.RUNNING)
    assert rank_of(runs, [task(200.0)], 200.0 + ran_s, STEPS) == rank


def test_service_of_tasks_is_counted_in_whole_milliseconds() -> None:
    members = [task(10.0004, 10.0016), task(11.0), task(None, 99.0), task(13.0, 12.0)]
    assert service_of(members, 250, 11.5) == 250 * (2 + 500)
    assert service_of([], 250, 11.5) == 0


def test_job_that_runs_moves_to_its_next_level_a_moment_after_it_has_had_enough() -> None:
    runs = job(Served(400_000), state=JobState.RUNNING)
    members = [task(199.95)] * 3  # 3 tasks of 2 GPUs, 50 ms each: 300 GPU milliseconds
    assert moves_at(runs, members, 200.0, STEPS) == 200.0 + (50 + 1) / 1000
    assert rank_of(runs, members, 200.051, STEPS)[2] == 1
    assert moves_at(replace(runs, served=None), members, 200.0, STEPS) == 200.0 + (117 + 1) / 1000
    none = job(state=JobState.RUNNING, gpus=0)
    assert moves_at(none, [task(1.0)], 200.0, STEPS) == 200.0 + 1000.001


def test_service_that_is_kept_at_the_end_of_a_launch() -> None:
    members = [task(100.0, 101.0), task(100.0)]
    assert at_end(job(), members, 102.0) == Served(2000 * 3000, 102.0)
    before = Served(5, 90.0, lifted=True)
    assert at_end(job(before), members, 102.0) == Served(5 + 2000 * 3000, 102.0, lifted=True)
    assert at_end(job(before, gpus=0), members, 102.0) is None
