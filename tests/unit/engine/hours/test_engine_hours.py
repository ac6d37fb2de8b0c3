"""Queues by day and by night in a bare engine: guarantees, notices before a change, and jobs that are spared."""

from datetime import datetime
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.queue_why import queue_why
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.document import MAX_BACK_S, found_of
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import Guarantee, Hours, QueueDocument, QueueSpec
from tests.doubles.builders import saved_of
from tests.unit.engine.tenancy.lending import Tenants

VIENNA = "Europe/Vienna"
NIGHT = ("22:00", "06:00")


def owed(gpus: int) -> dict[str, Guarantee]:
    return {"default": Guarantee(gpus * 1000)}


def at(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def night_and_day(notice_s: float = 60.0) -> dict[str, QueueSpec]:
    """Notebooks have four GPUs by day, batch has them by night."""
    return {
        "batch": QueueSpec(hours=(Hours(*NIGHT, zone=VIENNA, guarantee_gpus=owed(4)),), notice_s=notice_s),
        "notebooks": QueueSpec(
            guarantee_gpus=owed(4),
            hours=(Hours(*NIGHT, zone=VIENNA, guarantee_gpus=owed(0)),),
            notice_s=notice_s,
        ),
    }


def world_at(moment: float, queues: dict[str, QueueSpec], gpus: int = 4) -> Tenants:
    world = Tenants()
    world.now = moment - 1000
    world.register()
    world.agents(1, gpus)
    world.document_of(queues)
    world.passes(1)
    world.now = moment
    world.passes(1)
    return world


def goes_to(world: Tenants, moment: float) -> set[str]:
    """Let time go on to a moment, at once if that is far off; the jobs that are asked to end meanwhile."""
    if moment - world.now > 80:
        world.now = moment - 10
        world.offer_again()
    return world.passes(int(moment - world.now))


def notice_of(world: Tenants, name: str) -> Any:
    (task,) = world.state.work.round_of(world.job(name))
    return task.notice if task.notice is not None and task.notice.stands else None


# Of each time of the year, when it is 22:00 in Vienna, and 06:00 then.
NIGHTS = {
    "in winter": ("2026-11-24T21:00", "2026-11-25T05:00"),
    "in summer": ("2026-07-01T20:00", "2026-07-02T04:00"),
    "when clocks are set forward": ("2026-03-28T21:00", "2026-03-29T04:00"),
    "when clocks are set back": ("2026-10-24T20:00", "2026-10-25T05:00"),
}


@pytest.mark.parametrize(("evening", "morning"), NIGHTS.values(), ids=NIGHTS)
def test_job_owed_gpus_by_new_hours_starts_on_time(evening: str, morning: str) -> None:
    world = world_at(at(evening) - 3000, night_and_day(20.0))
    world.runs("notebook", "notebooks", 4)
    assert world.seat_of("notebook") == "notebooks"
    world.submit("batch", queue="batch", gpus=4, preemptible=True)
    assert goes_to(world, at(evening) - 30) == set()
    assert notice_of(world, "notebook") is None
    goes_to(world, at(evening) - 10)
    notice = notice_of(world, "notebook")
    assert notice.until == pytest.approx(at(evening), abs=2)
    assert "when the hours of queues change" in notice.why
    assert goes_to(world, at(evening) - 3) == set(), "it has its notice, and its GPUs still"
    assert goes_to(world, at(evening) + 2) == {"notebook"}
    world.obeys()
    world.starts()
    assert (world.job("batch").state, world.seat_of("batch")) == (JobState.RUNNING, "batch")
    assert world.job("notebook").state is JobState.PENDING
    goes_to(world, at(morning) - 30)
    assert notice_of(world, "batch") is None
    assert goes_to(world, at(morning) + 2) == {"batch"}
    world.obeys()
    world.starts()
    assert (world.job("notebook").state, world.seat_of("notebook")) == (JobState.RUNNING, "notebooks")


def test_change_of_hours_ends_no_job_if_none_waits() -> None:
    evening = at("2026-11-24T21:00")
    world = world_at(evening - 300, night_and_day())
    world.runs("notebook", "notebooks", 4)
    assert goes_to(world, evening - 5) == set()
    assert goes_to(world, evening + 65) == set()
    assert world.seat_of("notebook") is None, "it borrows now"
    assert notice_of(world, "notebook") is None
    world.submit("late", queue="batch", gpus=2, preemptible=True)
    world.passes(5)
    assert notice_of(world, "notebook") is not None, "hours spare nobody as a new document does"


def test_job_submitted_shortly_before_new_hours_waits_for_the_whole_notice() -> None:
    evening = at("2026-11-24T21:00")
    world = world_at(evening - 300, night_and_day())
    world.runs("notebook", "notebooks", 4)
    goes_to(world, evening - 20)
    world.submit("batch", queue="batch", gpus=1, preemptible=True)
    told_at = world.now
    world.passes(5)
    assert notice_of(world, "notebook").until >= told_at + 60


def test_notice_for_new_hours_is_called_off_if_the_waiting_job_is_gone() -> None:
    evening = at("2026-11-24T21:00")
    world = world_at(evening - 300, night_and_day())
    world.runs("notebook", "notebooks", 4)
    world.submit("batch", queue="batch", gpus=4, preemptible=True)
    goes_to(world, evening - 30)
    assert notice_of(world, "notebook") is not None
    world.feed(ev.KillRequested(world.job("batch").id))
    assert goes_to(world, evening + 45) == set()
    assert notice_of(world, "notebook") is None


def test_limit_by_the_hour_holds_back_by_day_and_lets_start_on_time() -> None:
    evening = at("2026-11-24T21:00")
    batch = QueueSpec(
        limit_gpus={"default": 0},
        hours=(Hours(*NIGHT, zone=VIENNA, limit_gpus={"default": 4000}, guarantee_gpus=owed(4)),),
        notice_s=60.0,
    )
    world = world_at(evening - 300, {"batch": batch, "day": QueueSpec(notice_s=60.0)})
    world.runs("day", "day", 4)
    world.submit("batch", queue="batch", gpus=4, preemptible=True)
    goes_to(world, evening - 100)
    told = why_of(world.state, world.settings, world.now, world.job("batch"))
    assert told.can_ever_run
    assert "may hold 0 GPUs" in told.summary
    assert told.summary.endswith("from 21:00Z on queue batch is guaranteed 4 GPUs and may hold 4 GPUs")
    assert told.estimate is not None
    assert told.estimate.at == pytest.approx(evening + 5, abs=70), "after the hours change, and a grace"
    assert "with the hours from 21:00Z on" in told.estimate.basis
    assert "from 21:00Z on queue batch" in queue_why(world.state, world.settings, "batch", world.now).summary
    goes_to(world, evening - 20)
    assert notice_of(world, "day") is not None
    world.submit("greedy", queue="day", gpus=1, preemptible=True)
    world.ends("day", "TASK_FAILED")
    world.passes(3)
    assert world.job("greedy").state is JobState.PENDING, "the room is kept"
    goes_to(world, evening + 2)
    world.starts()
    assert world.job("batch").state is JobState.RUNNING


def test_job_that_could_start_in_other_hours_is_taken_in() -> None:
    world = world_at(at("2026-11-24T12:00"), night_and_day())
    world.submit("firm", queue="batch", gpus=4)
    assert world.job("firm").state is JobState.PENDING
    with pytest.raises(NotAccepted, match="no room for it even when all of it is free"):
        world.submit("never", queue="notebooks", gpus=5)


@pytest.mark.parametrize("back_s", [5.0, MAX_BACK_S - 1])
def test_hours_do_not_come_twice_when_a_clock_is_set_back_a_little(back_s: float) -> None:
    evening = at("2026-11-24T21:00")
    world = world_at(evening - 300, night_and_day())
    goes_to(world, evening + 2)
    night = world.state.quota.tree
    world.now -= back_s
    for _ in range(5):
        world.tick(1.0)
        assert world.state.quota.tree is night
    world.now = at("2026-11-25T05:00") + 1
    world.tick(1.0)
    assert world.state.quota.tree is not night


def test_scheduler_that_starts_believes_its_clock() -> None:
    evening = at("2026-11-24T21:00")
    world = world_at(evening - 300, night_and_day())
    goes_to(world, evening + 2)
    for now, guarantee in ((evening + 2, owed(4)), (evening - 60, {})):
        tree = State.restored(now, saved_of(world.state)).quota.tree
        assert tree.specs["batch"].guarantee_gpus == guarantee


def test_clock_that_was_far_ahead_is_believed_when_it_is_right_again() -> None:
    evening = at("2026-11-24T21:00")
    world = world_at(evening - 3600, night_and_day())
    world.now = evening + 60
    world.tick(1.0)
    assert world.state.quota.tree.specs["batch"].guarantee_gpus == owed(4)
    world.now = evening - 3600
    world.tick(1.0)
    assert world.state.quota.tree.specs["batch"].guarantee_gpus == {}


def test_queue_document_is_checked_with_each_of_its_hours() -> None:
    world = world_at(at("2026-11-24T12:00"), night_and_day())
    queues = night_and_day()
    queues["notebooks"] = QueueSpec(guarantee_gpus=owed(4))
    faults = found_of(world.state, world.settings, QueueDocument(queues=queues), world.now).faults
    assert [path for path, _ in faults] == ["/queues"]
    assert "guarantee 8 of pool default together, which has 4" in faults[0][1]
    assert "(with the hours of 2026-11-24T21:00Z)" in faults[0][1]
    above = {"a": QueueSpec(), "a/b": QueueSpec(hours=(Hours("08:00", "09:00", guarantee_gpus=owed(1)),))}
    ((path, why),) = found_of(world.state, world.settings, QueueDocument(queues=above), world.now).faults
    assert (path, "are guaranteed 1 of pool default" in why) == ("/queues/a/guarantee_gpus", True)
    assert not found_of(world.state, world.settings, QueueDocument(queues=night_and_day()), world.now).faults


def test_new_document_of_hours_still_spares_jobs_whose_seats_it_takes() -> None:
    world = world_at(at("2026-11-24T12:00"), night_and_day())
    world.runs("notebook", "notebooks", 4)
    other = {"batch": QueueSpec(guarantee_gpus=owed(4)), "notebooks": QueueSpec()}
    world.document_of(other)
    world.submit("batch", queue="batch", gpus=4, preemptible=True)
    assert world.passes(30) == set()
