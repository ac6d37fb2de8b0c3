"""Estimates of when jobs start, each in full."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, Reservation, Spare
from mesos_gpu.policy.explain.estimate import RunTimes, after, estimate_of, gpus_of, span
from tests.doubles.builders import spec

NOW = 10_000.0
NEVER = (
    "no node would have room even if all jobs there ended: GPUs that are sick, drained or reserved for other jobs"
    " do not count"
)


def job(**fields: Any) -> Job:
    return Job(JobId("j1"), spec(**{"gpus": 1, **fields}), NOW, 1)


def held(job_id: str | None = "a", **fields: Any) -> Allocation:
    return Allocation(None if job_id is None else JobId(job_id), NOTHING, since=NOW - 300, **fields)


def kept(at: float = NOW + 600, *awaited: Allocation, **fields: Any) -> Reservation:
    given = {"agent_id": AgentId("a1"), "hostname": "h1", **fields}
    return Reservation(JobId("j1"), "ml", NOTHING, at, awaited=awaited, **given)


LIMITED = held(lasts_s=900.0)
RAN = "job a has run 5m of its timeout_s 15m on h1"


@pytest.mark.parametrize(
    ("reservation", "wanted"),
    [
        (None, Estimate(None, NEVER)),
        (kept(NOW), Estimate(NOW, "what it needs is free on h1")),
        (kept(NOW + 600, LIMITED), Estimate(NOW + 600, f"{RAN}; then a GPU is free there")),
        (
            kept(NOW + 600, held("b"), LIMITED), Estimate(NOW + 600, f"{RAN}; then a GPU is free there"),
        ),
        (
            kept(NOW + 5, held()),
            Estimate(NOW + 5, "job a is being ended on h1; then a GPU is free there"),
        ),
        (
            kept(NOW + 5, held(None, lasts_s=60.0), hostname=""),
            Estimate(NOW + 5, "a node monitor has run 5m of its timeout_s 60s; then a GPU is free there"),
        ),
        (
            kept(NOW + 600, held(lasts_s=900.0, learnt="the median of 3 finished jobs named job is 15m")),
            Estimate(
                NOW + 600,
                "job a has run 5m, and the median of 3 finished jobs named job is 15m, on h1; then a GPU is free "
                "there",
            ),
        ),
        (
            kept(NOW + 600, LIMITED, agent_id=None, hostname=""),
            Estimate(NOW + 600, "job a has run 5m of its timeout_s 15m; then queue ml may hold 1 GPU more"),
        ),
        (
            kept(
                NOW + 600, LIMITED, agent_id=None,
                spares=(Spare("ml", "p", 2000), Spare("ml/a", "p", 1000), Spare("top", "p", 1000)),
            ),
            Estimate(NOW + 600, f"{RAN}; then queue ml/a may hold 1 GPU more"),
        ),
    ],
)  # fmt: skip
def test_estimate_is_of_what_is_awaited_last(reservation: Reservation | None, wanted: Estimate) -> None:
    assert estimate_of(job(), reservation, now=NOW) == wanted


def test_estimate_of_a_job_that_is_tried_again_is_that_time() -> None:
    later = replace(job(), not_before=NOW + 1)
    assert estimate_of(later, kept(NOW), now=NOW) == Estimate(NOW + 1, "its next attempt begins then")
    now = replace(job(), not_before=NOW)
    assert estimate_of(now, kept(NOW), now=NOW) == Estimate(NOW, "what it needs is free on h1")
    assert estimate_of(now, None, beyond="it is too large", now=NOW) == Estimate(None, "it is too large")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": 0}, "then there is room for it"),
        ({"gpus": 2}, "then 2 GPUs are free there"),
        ({"gpus": 1, "gpu_milli": 250}, "then its share of 1 GPU is free there"),
        ({"gpus": 2, "tasks": 2}, "then there is room for all its 2 tasks"),
        ({"gpus": 0, "tasks": 2}, "then there is room for all its 2 tasks"),
    ],
)
def test_estimate_says_what_is_free_then(fields: dict[str, Any], words: str) -> None:
    assert estimate_of(job(**fields), kept(NOW + 600, LIMITED), now=NOW) == Estimate(
        NOW + 600, f"{RAN}; {words}"
    )


def test_estimate_by_a_limit_counts_the_gpus_of_all_tasks() -> None:
    limited = kept(NOW + 600, LIMITED, agent_id=None)
    assert estimate_of(job(gpus=1, gpu_milli=500, tasks=3), limited, now=NOW) == Estimate(
        NOW + 600, f"{RAN}; then queue ml may hold 1.5 GPUs more"
    )


@pytest.mark.parametrize(
    ("first", "timeouts_s", "wanted"),
    [
        (
            [kept(NOW + 60)], [120.0],
            Estimate(NOW + 180, "h1 is kept for job j1, which starts in 60s and has a timeout_s of 2m"),
        ),
        (
            [kept(NOW + 60), kept(NOW + 30, hostname="h2")], [20.0, 120.0],
            Estimate(NOW + 150, "h2 is kept for job j1, which starts in 30s and has a timeout_s of 2m"),
        ),
        ([kept(NOW)], [0.0], Estimate(NOW, "h1 is kept for job j1, which starts in 0s and has a timeout_s of 0s")),
        ([kept(NOW, booking="b1", words="booked till noon")], [None], Estimate(None, "h1 is booked till noon")),
    ],
)  # fmt: skip
def test_estimate_behind_others_is_the_end_of_the_last(
    first: list[Reservation], timeouts_s: list[float | None], wanted: Estimate
) -> None:
    assert after(first, timeouts_s, NOW) == wanted


@pytest.mark.parametrize(
    ("awaited", "words"),
    [
        (
            (LIMITED, held("b")),
            "the end of job b on h1 is unknown: it has no timeout_s, and no finished job of its app or name ran so "
            "long",
        ),
        ((held(None),), "the end of a node monitor on h1 is unknown: it runs as long as its node"),
    ],
)
def test_estimate_without_an_end_says_what_is_awaited(awaited: tuple[Allocation, ...], words: str) -> None:
    estimate = estimate_of(job(), kept(ENDLESS, *awaited), now=NOW)
    assert estimate.at is None
    assert estimate.basis.endswith(words)


@pytest.mark.parametrize(("at", "timeout_s"), [(NOW, None), (ENDLESS, 5.0)])
def test_estimate_behind_a_job_without_an_end_has_no_time(at: float, timeout_s: float | None) -> None:
    estimate = after([kept(at)], [timeout_s], NOW)
    assert estimate.at is None
    assert estimate.basis.startswith("h1 is kept for job j1, ")
    assert estimate.basis.endswith(" whose end is unknown")


def ended(
    name: str, took_s: float | None, app: str | None = None, state: JobState = JobState.FINISHED
) -> Job:
    made = Job(JobId("x"), spec(name=name, app=app), 0.0, 1, state=state, started_at=100.0)
    return replace(made, ended_at=None if took_s is None else 100.0 + took_s)


def test_run_times_are_of_the_same_app_and_else_of_the_same_name() -> None:
    times = RunTimes(
        [
            ended("a", 60.0), ended("a", 200.0), ended("a", 400.0, "/s"), ended("b", 7.0), ended("c", None),
            ended("a", 1.0, state=JobState.FAILED), replace(ended("d", 5.0), started_at=None),
        ]
    )  # fmt: skip

    def known(name: str, app: str | None = None) -> tuple[float, str] | None:
        return times.median_of(Job(JobId("y"), spec(name=name, app=app), 0.0, 1))

    assert known("a") == (200.0, "the median of 3 finished jobs named a is 3m")
    assert known("z", "/s") == (400.0, "the one finished job of app /s is 6m")
    assert known("a", "/t") == (200.0, "the median of 3 finished jobs named a is 3m")
    assert known("b") == (7.0, "the one finished job named b is 7s")
    assert [known(name) for name in "cde"] == [None, None, None]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0s"), (0, "0s"), (0.6, "1s"), (119, "119s"), (119.4, "119s"), (119.6, "2m"), (120, "2m"),
        (179, "2m"), (180, "3m"), (7199, "119m"), (7200, "2h00m"), (7260, "2h01m"), (45_296, "12h34m"),
        (inf, "for ever"),
    ],
)  # fmt: skip
def test_span_of_time_in_words(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_number_of_gpus_in_words() -> None:
    assert [gpus_of(count) for count in (0, 0.25, 1, 2)] == ["0 GPUs", "0.25 GPUs", "1 GPU", "2 GPUs"]
