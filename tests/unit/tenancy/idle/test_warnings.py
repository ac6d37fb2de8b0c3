"""Warnings of idle GPUs on their way: repeated until the executor says that its task can read them."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.tasks.idle import IdleState
from mesos_gpu.testing.builders import every
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
