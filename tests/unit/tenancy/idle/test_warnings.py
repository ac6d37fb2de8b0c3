"""Warnings of idle GPUs on their way: repeated until the executor says that its task can read them."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.idle import IdleState
from tests.doubles.builders import every
from tests.unit.tenancy.idle.test_engine import RULES, rigged, run


def test_warnings_of_idle_gpus_are_sent_again_until_they_can_be_read() -> None:
    rig = rigged(RULES)
    run(rig)
    sent = every(rig.play(115), fx.GiveNotice)
    assert rig.state() is IdleState.WARNED
    notice = rig.notice()
    assert notice is not None
    assert (notice.number, notice.told, notice.warning) == (1, 0, True)
    assert len(sent) >= 1
    assert every(rig.play(30), fx.GiveNotice), "no executor has answered"


def test_warnings_of_idle_gpus_are_for_no_job_that_is_being_ended() -> None:
    rig = rigged(RULES)
    run(rig)
    rig.world.feed(ev.KillRequested(JobId("j1")))
    effects = rig.play(300)
    assert not every(effects, fx.GiveNotice)
    assert not [kind for kind in rig.kinds() if kind is EventKind.IDLE_WARNING]
