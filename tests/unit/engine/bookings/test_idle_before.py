"""Idle time of GPUs for a booking, beside a drain of its node from the moment of booking."""

from typing import Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.nodes.drain import Target
from tests.unit.engine.bookings.idle_before import WAYS, cost_of
from tests.unit.engine.bookings.worlds import HOUR, Booked

#: Jobs that wait all the time, and for how long their booking may leave GPUs idle: GPUs times seconds, of four GPUs.
LOADS: Final[dict[str, tuple[dict[str, object], int]]] = {
    "notice of 60 s": ({"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}, 4 * 20),
    "time limits of 5 minutes": ({"timeout_s": 290.0, "kill_grace_s": 10.0}, 4 * 310),
    "time limits of 20 minutes": ({"timeout_s": 1190.0, "kill_grace_s": 10.0}, 4 * 1210),
}
_STEP_S = 10.0
_AHEAD_S = HOUR // 2  # from the booking to its begin


def idle_gpu_s(load: dict[str, object], *, drain: bool) -> float:
    """GPUs times seconds that nothing held, from the booking to its begin."""
    world, idle, number = Booked(), 0.0, 0
    world.up("n1", 4)
    if drain:
        world.feed(ev.DrainRequested(Target.NODE, "n1.example", "an exam", "ann"))
    else:
        world.book(begins="12:30")
    until = world.now + _AHEAD_S
    while world.now < until:
        for name in [str(job.id) for job in world.state.work.jobs.values()]:
            job = world.job(name)
            if job.started_at and job.spec.timeout_s and world.now >= job.started_at + job.spec.timeout_s:
                for task in world.state.work.round_of(job):
                    if not task.ended:
                        world.status(task.id, "TASK_FINISHED", agent="n1")
        for _ in range(4 - sum(job.state.value == "pending" for job in world.state.work.jobs.values())):
            number += 1
            world.submit(f"j{number}", gpus=1, cpus=0.1, **load)
        world.offer_again()
        world.started()
        world.now += _STEP_S
        world.obey(world.feed(ev.Tick()))
        idle += _STEP_S * (4 - len(world.state.gpus.holders))
    return idle


@pytest.mark.parametrize("name", LOADS)
def test_booking_leaves_no_gpu_idle_longer_than_its_drain_needs(name: str) -> None:
    load, most = LOADS[name]
    assert idle_gpu_s(load, drain=False) <= most


def test_drain_leaves_all_gpus_of_its_node_idle() -> None:
    load, _ = LOADS["time limits of 5 minutes"]
    assert idle_gpu_s(load, drain=True) == 4 * _AHEAD_S


@pytest.mark.long
def test_booking_costs_a_small_part_of_a_drain_where_jobs_wait() -> None:
    """The table of docs/bookings.md, at its highest load and for one hour."""
    none, booked, drained = (cost_of(1.2, way, ahead_s=HOUR) for way in WAYS)
    of_drain = drained.idle_gpu_s - none.idle_gpu_s
    assert of_drain > 2 * HOUR, "of four GPUs for an hour"
    assert booked.idle_gpu_s - none.idle_gpu_s + booked.lost_gpu_s < of_drain / 4
    assert booked.left == drained.left == 0
