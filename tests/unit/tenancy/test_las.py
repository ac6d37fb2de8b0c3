"""Attained service: levels, ranks, and what is kept of a job from launch to launch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.served import Served
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.tenancy.las import (
    HOUR_MS,
    STEPS,
    Steps,
    at_end,
    at_launch,
    in_rank,
    moved,
    rank_of,
    service_of,
    waits_since,
)
from tests.doubles.builders import spec

DAY_S = 86400.0


def _job(name: str = "j1", *, state: JobState = JobState.PENDING, at: float = 0.0, **more: object) -> Job:
    served = more.pop("served", None)
    assert served is None or isinstance(served, Served)
    number = int("".join(c for c in name if c.isdigit()) or 0)
    return Job(JobId(name), spec(**{"gpus": 1, **more}), at, number, state=state, served=served)


def _task(started_at: float | None, ended_at: float | None = None) -> Task:
    return Task(
        TaskId("j1.1"), AgentId("a1"), "j1.1", JobId("j1"), TaskState.RUNNING, 0.0,
        started_at=started_at, ended_at=ended_at,
    )  # fmt: skip


@given(st.integers(0, 10**15))
def test_las_level_holds_service_below_its_end(service: int) -> None:
    level, until = STEPS.level(service)
    assert service < until == 1000 * HOUR_MS * 8**level
    assert level == 0 or service >= until // 8


def test_service_is_gpu_time_of_all_members() -> None:
    members = [_task(10.0, 70.0), _task(None), _task(40.0)]
    assert service_of(members, 2000, 100.0) == 2000 * (60_000 + 60_000)
    assert service_of([_task(10.0, 9.0)], 1000, 100.0) == 0, (
        "a host's clock that went back takes nothing away"
    )


def test_las_rank_is_by_service_and_then_by_size() -> None:
    hour = 3600.0
    fresh, wide = _job("j1"), _job("j2", gpus=8)
    old = _job("j3", served=Served(1000 * HOUR_MS, hour))
    assert [job.id for job in in_rank([old, wide, fresh], hour)] == ["j1", "j2", "j3"]
    runs = replace(fresh, state=JobState.RUNNING)
    assert rank_of(runs, [_task(0.0)], hour - 0.001) < rank_of(old, (), hour)
    assert rank_of(runs, [_task(0.0)], hour) == rank_of(old, (), hour)


def test_priority_is_before_service_and_a_long_wait_before_both() -> None:
    now = 40 * DAY_S
    young = _job("j1", at=39 * DAY_S, priority=3)
    old = _job("j2", at=0.0, served=Served(10**12, 11 * DAY_S))
    lifted = _job("j3", at=0.0, served=Served(10**12, 10 * DAY_S), priority=-5)
    assert [job.id for job in in_rank([old, young, lifted], now)] == ["j3", "j1", "j2"]


def test_las_service_starts_from_nothing_after_thirty_days_of_waiting() -> None:
    job = _job(served=Served(10**12, waits_since=DAY_S))
    assert at_launch(job, 31 * DAY_S - 1) == job.served
    anew = at_launch(job, 31 * DAY_S)
    assert anew == Served(lifted=True)
    runs = replace(job, state=JobState.RUNNING, served=anew)
    assert rank_of(runs, [_task(0.0)], 3599.0)[0] == -1, "as long as it is on the first level"
    assert rank_of(runs, [_task(0.0)], 3600.0)[0] == 0
    assert rank_of(job, (), 31 * DAY_S - 1)[0] == 0


def test_waiting_counts_from_the_last_launch() -> None:
    job = _job(at=5.0)
    assert waits_since(job) == 5.0
    assert waits_since(replace(job, in_line_since=3.0)) == 3.0
    assert waits_since(replace(job, served=Served(1, 9.0))) == 9.0
    assert at_launch(job, 6.0) is None


def test_las_service_is_kept_from_launch_to_launch() -> None:
    job = _job(gpus=2, tasks=2)
    first = at_end(job, [_task(0.0, 10.0), _task(0.0, 12.0)], 13.0)
    assert first == Served(2000 * 22_000, 13.0)
    again = at_end(replace(job, served=first), [_task(20.0, 21.0)], 22.0)
    assert again == Served(2000 * 23_000, 22.0)
    assert at_end(_job(gpus=0), [_task(0.0, 10.0)], 11.0) is None


def test_las_line_keeps_other_queues_where_they_were() -> None:
    served = Served(10**12, 0.0)
    line = [_job("j1", served=served), _job("j2"), _job("j3"), _job("j4", gpus=1)]
    leaves = {JobId("j1"): "a", JobId("j3"): "a", JobId("j4"): "b"}
    assert [job.id for job in moved(line, leaves, 1.0)] == ["j3", "j2", "j1", "j4"]


@pytest.mark.parametrize("steps", [STEPS, Steps(8, 2), Steps(8, 2, small_first=True, lift_after_ms=1000)])
@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 8)), max_size=8))
def test_las_order_is_total_and_by_levels(steps: Steps, had: list[tuple[int, int]]) -> None:
    jobs = [_job(f"j{i}", gpus=gpus, served=Served(ms, 0.0)) for i, (ms, gpus) in enumerate(had)]
    ordered = in_rank(jobs, 0.5, steps)
    assert {job.id for job in ordered} == {job.id for job in jobs}
    levels = [steps.level(job.served.milli_ms)[0] for job in ordered if job.served]
    assert levels == sorted(levels)
