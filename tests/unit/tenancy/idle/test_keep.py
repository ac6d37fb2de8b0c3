"""Jobs that are kept from being ended for idle GPUs: for a while, as long as their rules let them, and no longer."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, NotAccepted, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.idle import IdleState
from tests.doubles.builders import every, saved_of
from tests.unit.tenancy.idle.test_engine import PRESSURE, RULES, Rig, ended, rigged, run

KEEPING = replace(RULES, max_keep_s=1000)
JOB = JobId("j1")


def keep(rig: Rig, for_s: float | None = 500, until: float | None = None, job: JobId = JOB) -> None:
    rig.world.feed(ev.KeepAsked(job, for_s, until, "ann"))


def test_kept_job_is_not_warned_and_counts_from_the_start_later() -> None:
    rig = rigged(KEEPING)
    run(rig)
    keep(rig)
    effects = rig.play(500)
    assert not every(effects, fx.GiveNotice)
    rig.play(90)
    assert rig.state() is IdleState.SUSPECT
    rig.play(20)
    assert rig.state() is IdleState.WARNED
    assert rig.kinds() == [EventKind.KEPT, EventKind.KEEP_ENDED, EventKind.IDLE_WARNING]
    kept, ended, _ = rig.world.state.work.events
    assert kept.words.startswith("kept by ann from being ended for idle GPUs until ")
    assert ended.words == "it is not kept any longer"
    assert rig.world.state.work.idlenesses[JOB].keep_until is None


@pytest.mark.parametrize(("at", "kind"), [(120, EventKind.IDLE_OVER), (175, EventKind.IDLE_OVER)])
def test_keep_calls_off_a_warning_and_a_notice(at: float, kind: EventKind) -> None:
    rig = rigged(KEEPING)
    run(rig)
    rig.play(at)
    before = rig.state()
    keep(rig)
    assert before in (IdleState.WARNED, IdleState.NOTICE)
    assert rig.state() is IdleState.ACTIVE
    notice = rig.notice()
    assert notice is not None
    assert not notice.stands
    assert not notice.warning
    assert kind in rig.kinds()
    effects = rig.play(500)
    assert not every(effects, fx.Kill)


def test_keep_lasts_over_a_restart_and_no_longer() -> None:
    rig = rigged(KEEPING)
    run(rig)
    keep(rig)
    rig.world.state = State.restored(rig.world.now, saved_of(rig.world.state))
    rig.world.register()
    rig.play(490)
    assert rig.world.state.work.idlenesses[JOB].kept_by == "ann"
    assert every(rig.play(300), fx.Kill)


def test_keep_withdrawn_counts_idle_time_from_then_on() -> None:
    rig = rigged(KEEPING)
    run(rig)
    keep(rig)
    rig.play(100)
    rig.world.feed(ev.KeepWithdrawn(JOB))
    assert JOB not in rig.world.state.work.idlenesses
    rig.play(110)
    assert rig.state() is IdleState.WARNED


def test_kept_job_stays_under_pressure() -> None:
    rig = rigged(replace(PRESSURE, max_keep_s=1000))
    run(rig, gpus=2)
    rig.play(300)
    keep(rig)
    rig.world.submit("j2", queue="ml", gpus=1)
    rig.play(100)
    notice = rig.notice()
    assert notice is None or not notice.stands


REFUSED: dict[str, tuple[Callable[[Rig], ev.Event], type[Exception], str]] = {
    "too long": (lambda _: ev.KeepAsked(JOB, 1001, None), NotAccepted, "may be kept for 1000 s from now"),
    "until too late": (
        lambda rig: ev.KeepAsked(JOB, None, rig.world.now + 2000),
        NotAccepted,
        r"\(max_keep_s\).* is later",
    ),
    "over already": (lambda rig: ev.KeepAsked(JOB, None, rig.world.now - 1), NotAccepted, "has passed"),
    "no such job": (lambda _: ev.KeepAsked(JobId("x"), 5, None), NotFound, "there is no job x"),
    "not kept": (lambda _: ev.KeepWithdrawn(JOB), Conflict, "is not kept"),
}


@pytest.mark.parametrize(("event", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_keep_that_is_refused_changes_nothing(
    event: Callable[[Rig], ev.Event], error: type[Exception], words: str
) -> None:
    rig = rigged(KEEPING)
    run(rig)
    with pytest.raises(error, match=words):
        rig.world.feed(event(rig))
    assert not rig.world.state.work.idlenesses


def test_keep_of_a_job_at_its_end_is_refused() -> None:
    rig = rigged(KEEPING)
    run(rig)
    rig.play(210)
    assert rig.state() is IdleState.RETURNED
    with pytest.raises(Conflict):
        keep(rig)
    ended(rig)
    with pytest.raises(Conflict, match="is killed"):
        keep(rig)
