"""Chaos with queues whose hours change and pools that not all may use: it holds, and bugs put in are found."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import step
from mesos_gpu.engine.queue.held import Pools
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tenancy import Hours, QueueDocument, QueueSpec, Weekday
from mesos_gpu.policy.times import hours
from mesos_gpu.policy.times.hours import span_at
from mesos_gpu.wire.tenancy.rules import faults
from tests.chaos import run as chaos
from tests.chaos.times.hours import in_force
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs

REAL_WINDOW = hours._window
YEAR_S = 366 * 86_400
CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from((0, 1, 30, 59)))


def _hours_are_of_utc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hours, "_window", lambda entry: (*REAL_WINDOW(entry)[:3], "UTC"))


def _old_hours_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "keep_hours", lambda turn: None)


def _nobody_waits_to_overflow(patch: pytest.MonkeyPatch) -> None:
    def count(pools: Pools, job: Job) -> int:
        return len(pools.every(job))

    patch.setattr(Pools, "count", count)


OF_HOURS = {"no queue is over its limit at any level", "seats are what is guaranteed"}
BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "hours are of UTC": (_hours_are_of_utc, OF_HOURS),
    "the limits of the old hours are kept": (_old_hours_are_kept, OF_HOURS),
    "nobody waits to overflow": (_nobody_waits_to_overflow, {"no job overflows before its time"}),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_chaos_of_hours_and_pools_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (chaos.HOURS,))
    assert_found(rules, monkeypatch)


@runs(800)
def test_chaos_of_hours_finds_no_violation(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.HOURS,))
    assert_holds(steps, 1, "QueuesChanged", "JobSubmitted", "Launch")


@settings(max_examples=30)
@given(
    CLOCKS,
    CLOCKS | st.just("24:00"),
    st.sets(st.sampled_from(Weekday), min_size=1),
    st.sampled_from(("UTC", "Europe/Vienna", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")),
    st.integers(0, YEAR_S),
)
def test_hours_of_policy_and_chaos_agree(
    begins: str, ends: str, days: set[Weekday], zone: str, after_s: int
) -> None:
    if begins == ends:
        return
    entry = Hours(begins, ends, tuple(each for each in Weekday if each in days), zone, weight=7)
    document = QueueDocument(queues={"a": QueueSpec(hours=(entry,))})
    assert not list(faults(document))
    moment = 1_790_000_000.0 + after_s
    assert span_at(document, moment).document == in_force(document, moment)
