"""What the account of the chaos knows beside what the scheduler was told: hosts that have another agent, bookings."""

from dataclasses import replace

from mesos_gpu.model.bookings.booking import Booking, BookingSpec
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from tests.chaos.acts import Act, do
from tests.chaos.rules import bookings, charges, idle, stops
from tests.chaos.world import World


def _with_a_job() -> World:
    world = World(1)
    for a, b in ((1, 1), (5, 9)):
        for act in (Act("submit", a, b), Act("go on", 0, 1), Act("go on", 0, 1)):
            do(world, act)
    return world


def test_chaos_account_allows_a_launch_to_be_given_up_after_a_report_of_the_other_agent() -> None:
    world = _with_a_job()
    run = world.mesos.runs[TaskId("j1.1")]
    world.mesos.die(run.agent)
    new = world.mesos.rename(run.agent)
    assert not world.witness.given_up(run.id, world.now), "nobody has said that it is gone"
    world.witness.note_followed(new.id, new.hostname)
    assert world.witness.given_up(run.id, world.now)
    world.mesos.die(new)
    last = world.mesos.rename(new)
    assert world.witness.given_up(run.id, world.now), "though the one that has reported is gone, too"
    assert last.id not in world.witness.followed
    assert new.id not in world.witness.followed, "nobody has reported since"


def test_chaos_account_keeps_no_room_for_jobs_that_outlast_the_begin_of_a_booking() -> None:
    world = _with_a_job()
    job = world.witness.disk.jobs[JobId("j1")]
    waits = replace(
        job, spec=replace(job.spec, preemptible=True, notice_s=0.0, kill_grace_s=5.0, timeout_s=None)
    )
    assert [_taken(world, waits, in_s) for in_s in (9, 11)] == [2, 0]
    assert _taken(world, replace(waits, spec=replace(waits.spec, preemptible=False)), 11) == 2


def _taken(world: World, job: Job, in_s: int) -> int:
    begins = int(world.now) + in_s
    spec = BookingSpec("exam", "nobody", job.spec.gpus + 1, "now", 60)
    world.witness.disk.bookings["b"] = Booking("b", spec, "ann", 0.0, "1970-01-12", begins, begins + 60)
    return bookings.slots_taken_soon(world.witness, job, world.now)


def test_chaos_account_of_ready_gpus_lies_between_used_and_noted() -> None:
    ready = charges.Ready(100.0, gpus=4, used=1, noted=3)
    ready.pass_to(110.0)
    assert (round(ready.least, -2), round(ready.most, -2), ready.unsure) == (10_000, 30_000, False)
    ready.pass_to(105.0)
    assert ready.unsure, "the clock was set back"


def test_chaos_account_allows_room_without_offers_to_be_forgotten_sooner() -> None:
    world = _with_a_job()
    (agent, *_), account = world.mesos.agents.values(), world.witness
    account.unseen_since = {agent.id: world.now - 20.0}
    made = [world.now - 25.0, world.now - 20.0, world.now - 15.0]
    assert [stops._may_be_forgotten(account, agent, at, world.now) for at in made] == [False, True, True]
    assert stops._may_be_forgotten(account, agent, made[0], world.now + 11.0)
    account.unseen_since = {}
    assert not stops._may_be_forgotten(account, agent, made[2], world.now)


def test_chaos_account_of_work_is_unchanged_by_a_repeated_report() -> None:
    world, task_id, gpu_id = _with_a_job(), TaskId("j1.1"), GpuId("g00")
    for seen_ms, busy_ms in ((10_000, 9_000), (20_000, 18_000), (20_000, 18_000)):
        use = TaskUse(task_id, gpu_id, world.now, work=Work(0.0, seen_ms, busy_ms))
        idle.hear(world.witness, [use], world.now)
    assert world.witness.idling.known[task_id, gpu_id].worked_ms == 20_000
