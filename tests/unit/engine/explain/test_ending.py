"""Known coming ends of jobs that run: by drains, bookings, notices and time limits."""

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.ending import coming_end
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.tasks.notice import ComingEnd, NoticeReason
from tests.unit.engine.bookings.worlds import HOUR, NOON, Booked

QUEUED = "it is then queued again, and no attempt is used"


@pytest.fixture
def world() -> Booked:
    """A node of four GPUs; it is noon in UTC."""
    made = Booked()
    made.up("n1", 4)
    return made


def end_of(world: Booked, name: str = "train") -> ComingEnd | None:
    return coming_end(world.state, world.now, world.job(name))


def summary(world: Booked, name: str = "train") -> str:
    return why_of(world.state, world.settings, world.now, world.job(name)).summary


def drain(world: Booked, deadline_s: float | None) -> None:
    world.feed(ev.DrainRequested(Target.NODE, "n1.example", "new driver", "ann", deadline_s))


def test_end_is_unknown_of_a_job_that_waits_or_runs_undisturbed(world: Booked) -> None:
    world.run("train")
    world.submit("large", gpus=8)
    assert (end_of(world), end_of(world, "large")) == (None, None)
    drain(world, None)
    assert end_of(world) is None, "a drain without a deadline ends nothing"
    assert summary(world) == "it is running"


def test_end_by_a_drain_is_its_deadline_until_that_is_taken_back(world: Booked) -> None:
    world.run("train")
    drain(world, 2.0 * HOUR)
    why = "node n1.example was drained by ann: new driver"
    assert end_of(world) == ComingEnd(NOON + 2 * HOUR, NoticeReason.DRAIN, why, QUEUED)
    assert summary(world) == f"it is running; it ends by 14:00Z, in 2h00m: {why}; {QUEUED}"
    world.feed(ev.UndrainRequested(Target.NODE, "n1.example"))
    assert end_of(world) is None


def test_end_by_a_notice_is_told_once(world: Booked) -> None:
    world.run("train", notice_s=60.0)
    drain(world, float(HOUR))
    world.go(HOUR - 50)
    assert world.job("train").message.endswith("it is ended in 60 s and queued again")
    assert summary(world).count("was drained by ann") == 1
    end = end_of(world)
    assert end is not None
    assert (end.at, end.reason) == (NOON + HOUR, NoticeReason.DRAIN)


def test_end_is_the_first_of_several(world: Booked) -> None:
    world.run("train", timeout_s=0.5 * HOUR, max_attempts=3)
    drain(world, float(HOUR))
    limit = ComingEnd(
        NOON + 1800, NoticeReason.TIME_LIMIT, "its time limit of 1800 s ends", "attempt 2 of 3 follows"
    )
    assert end_of(world) == limit
    drain(world, 0.25 * HOUR)
    end = end_of(world)
    assert end is not None
    assert (end.at, end.reason) == (NOON + 900, NoticeReason.DRAIN)


def test_end_by_a_time_limit_of_the_last_attempt_is_final(world: Booked) -> None:
    world.run("train", timeout_s=60.0)
    end = end_of(world)
    assert end is not None
    assert end.then == "it is then not started again"


def test_end_by_a_booking_is_its_begin_as_soon_as_its_nodes_are_chosen(world: Booked) -> None:
    world.book()
    world.run("long", gpus=2, preemptible=True, notice_s=600.0, kill_grace_s=10.0)
    world.run("train", gpus=2, preemptible=True, notice_s=60.0, kill_grace_s=10.0)
    assert end_of(world) is None, "its nodes are not chosen yet"
    world.go(HOUR - 609)
    end, other = end_of(world), end_of(world, "long")
    assert end is not None
    assert other is not None
    assert (other.at, other.why) == (NOON + HOUR - 10, "booking exam begins"), "it has notice"
    assert (end.at, end.reason) == (NOON + HOUR, NoticeReason.CALENDAR)
    assert end.why == "its GPUs are booked from Tue 2026-11-24 13:00 (UTC) on for queue exam, as exam"


def test_end_on_a_booking_is_the_end_of_its_time(world: Booked) -> None:
    world.book()
    world.go(HOUR + 3)
    world.run("train", queue="exam", booking="exam")
    end = end_of(world)
    assert end is not None
    assert (end.at, end.why) == (NOON + 2 * HOUR, "booking exam, on which it runs, ends")


def test_end_is_not_told_of_a_job_that_is_being_ended(world: Booked) -> None:
    world.run("train")
    drain(world, 60.0)
    world.feed(ev.KillRequested(JobId("train")))
    assert end_of(world) is None
