"""Jobs go elsewhere so that another has room on one node: at once, seldom, and for little lost work."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.tenancy.notices import give, goes_elsewhere
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import Stop
from tests.doubles.builders import saved_of
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes

HOUR = 3600.0


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    return world


def host_of(world: Tenants, name: str) -> AgentId:
    return world.state.work.tasks[world.job(name).task_id or ""].agent_id  # type: ignore[index]


def in_pieces(world: Tenants, after_s: float = HOUR, **dev: Any) -> None:
    """Two nodes of 4 GPUs of which 2 are free each, beside borrowers of queue dev; `after_s` later."""
    world.agents(2, 4)
    world.document(dev=queue(**dev), ops=queue())
    for name, gpus in (("a", 2), ("b", 2), ("c", 2), ("d", 2)):
        world.runs(name, "dev", gpus)
    ends = {host_of(world, name): name for name in "abcd"}
    assert len(ends) == 2
    world.now += after_s
    for name in ends.values():
        world.ends(name)
    for name in "abcd":
        if world.job(name).state is JobState.RUNNING:
            world.feed(ev.CheckpointTold(JobId(name)))


def test_move_takes_a_borrower_elsewhere_if_little_is_lost(world: Tenants) -> None:
    in_pieces(world)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    (moved,) = world.passes(5)
    there = host_of(world, moved)
    assert world.obeys() == {moved}
    world.starts()
    assert world.job("large").state is world.job(moved).state is JobState.RUNNING
    assert host_of(world, "large") == there != host_of(world, moved)
    assert world.job(moved).room_made_at is None
    assert not world.passes(60), "that was all"


def test_move_of_a_job_is_not_repeated_within_an_hour(world: Tenants) -> None:
    in_pieces(world)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    (moved,) = world.passes(5)
    world.obeys()
    world.starts()
    (stays,) = (name for name in "abcd" if name != moved and world.job(name).state is JobState.RUNNING)
    world.document(dev=queue(), ops=queue(), far=queue(fence=True))
    world.ends("large")
    world.runs("kept", "far", 2)
    world.ends(stays)
    world.feed(ev.CheckpointTold(JobId(moved)))
    world.submit("again", queue="ops", gpus=4, preemptible=True)
    assert not world.passes(60)
    world.now += HOUR
    world.feed(ev.CheckpointTold(JobId(moved)))
    assert world.passes(60) == {moved}


def test_move_is_not_made_for_a_borrower_if_much_is_lost(world: Tenants) -> None:
    in_pieces(world)
    world.now += HOUR  # since the checkpoint
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    assert not world.passes(20)


def test_move_does_not_cross_a_fence(world: Tenants) -> None:
    in_pieces(world, fence=True)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    assert not world.passes(20)


def test_move_keeps_its_place_during_the_notice(world: Tenants) -> None:
    in_pieces(world, notice_s=30.0)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    assert not world.passes(5)
    (told,) = (
        t.job_id for t in world.state.work.tasks.values() if t.notice and t.notice.stands and not t.ended
    )
    assert "so that job large has room on one node" in world.job(str(told)).message
    world.submit("greedy", queue="ops", gpus=2, preemptible=True)
    assert world.passes(40) == {told}
    world.obeys()
    world.starts()
    assert world.job("large").state is world.job(str(told)).state is JobState.RUNNING
    assert world.job("greedy").state is JobState.PENDING, "it would have had either place"


def test_move_is_called_off_when_its_taker_needs_no_room(world: Tenants) -> None:
    in_pieces(world, notice_s=30.0)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    assert not world.passes(5)
    world.feed(ev.KillRequested(JobId("large")))
    assert not world.passes(60)
    assert all(not world.job(name).room_on for name in "abcd" if world.job(name).state is JobState.RUNNING)
    world.submit("small", queue="ops", gpus=2, preemptible=True)
    world.passes(5)
    assert world.job("small").state is JobState.STARTING


def test_drain_of_a_queue_moves_no_job_that_just_came(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(), ops=queue(4))
    world.runs("dev0", "dev", 4)
    world.submit("owner", queue="ops", gpus=4, preemptible=True)
    assert world.passes(5) == {"dev0"}
    world.obeys()
    assert (world.job("owner").state, bool(world.job("owner").room_on)) == (JobState.STARTING, True)
    world.document(dev=queue(), ops=queue(4, stop=Stop.DRAIN))
    assert world.passes(2) == {"owner"}
    assert not goes_elsewhere(world.state, world.job("owner"))


def test_move_is_dropped_for_a_job_that_ends_sooner_for_another_reason(world: Tenants) -> None:
    in_pieces(world, notice_s=30.0)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    world.passes(5)
    (moved,) = (job for job in world.state.work.jobs.values() if goes_elsewhere(world.state, job))
    turn = Turn(world.state, world.settings, world.now)
    give(turn, moved, NoticeReason.CALENDAR, "its hours end", notice_s=10.0)
    world.feed(ev.KillRequested(JobId("large")))
    world.passes(2)
    assert world.job(moved.id).room_on == ()
    assert not goes_elsewhere(world.state, world.job(moved.id))
    assert world.passes(20) == {moved.id}


def test_move_keeps_its_place_over_a_restart(world: Tenants) -> None:
    in_pieces(world, notice_s=30.0)
    world.submit("large", queue="ops", gpus=4, preemptible=True)
    world.passes(5)
    (moved,) = (
        job for job in world.state.work.jobs.values() if job.room_on and job.state is JobState.RUNNING
    )
    saved = saved_of(world.state)
    assert {job.id: job.room_on for job in saved.jobs if job.id == moved.id} == {moved.id: moved.room_on}


def test_move_of_seated_jobs_frees_a_node_for_a_job_with_a_seat(world: Tenants) -> None:
    """Both nodes have a small job with a seat, and the rest is borrowed: no victims would free a whole node."""
    world.agents(2, 4)
    world.document(small=queue(shapes(1, 4)), large=queue(shapes(1, 4)), dev=queue())
    world.runs("dev0", "dev", 3)
    world.runs("dev1", "dev", 3)
    for name in ("s0", "s1"):
        world.runs(name, "small", 1)
    assert host_of(world, "s0") != host_of(world, "s1")
    world.now += HOUR
    world.submit("whole", queue="large", gpus=4)
    stopped = world.passes(5)
    assert len(stopped & {"s0", "s1"}) == 1, stopped
    assert stopped >= {"dev0", "dev1"}, "one makes room for whole, the other for who goes elsewhere"
    world.obeys()
    world.starts()
    states = {name: world.job(name).state for name in ("whole", "s0", "s1")}
    assert set(states.values()) == {JobState.RUNNING}, states
    assert not world.passes(60)


def test_move_leaves_a_seated_job_without_another_place(world: Tenants) -> None:
    world.agents(2, 4)
    world.document(small=queue(shapes(1, 4)), large=queue(shapes(1, 4)), dev=queue())
    world.runs("keeps", "small", 3, preemptible=False)
    world.runs("s0", "small", 1)
    world.runs("dev0", "dev", 3)
    world.runs("s1", "dev", 1)
    world.now += HOUR
    world.submit("whole", queue="large", gpus=4)
    world.passes(5)
    world.obeys()
    world.starts()
    assert world.job("keeps").state is JobState.RUNNING
    assert world.job("s0").state is JobState.RUNNING


def test_starving_borrower_has_room_kept_though_its_start_is_unknown(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(starve_after_s=1000.0), ops=queue())
    world.runs("long", "dev", 3)
    world.submit("large", queue="dev", gpus=4, preemptible=True)
    world.passes(5)
    world.runs("small", "ops", 1)
    world.ends("small")
    world.passes(1100)
    world.submit("late", queue="ops", gpus=1, preemptible=True)
    world.passes(5)
    assert world.job("late").state is JobState.PENDING, "large starves: what it needs is kept"


def test_gang_with_a_seat_gets_its_nodes_by_moves(world: Tenants) -> None:
    """Each node has a small job with a seat beside a borrower; they end one after the other."""
    world.agents(3, 4)
    world.document(small=queue(shapes(1, 4)), large=queue(shapes(2, 4)), dev=queue())
    for i in range(3):
        world.runs(f"dev{i}", "dev", 3)
    for i in range(3):
        world.runs(f"s{i}", "small", 1, cpus=0.1, mem_mib=32)
    hosts = {host_of(world, f"s{i}") for i in range(3)}
    assert len(hosts) == 3
    world.submit("gang", queue="large", gpus=4, tasks=2)
    told = world.passes(5)
    assert len(told & {"s0", "s1", "s2"}) == 2, told
    for name in sorted(told, reverse=True):
        world.ends(name, "TASK_KILLED")
        world.passes(1)
    world.starts()
    world.passes(1)
    world.starts()
    states = {name: world.job(name).state for name in ("gang", "s0", "s1", "s2")}
    assert set(states.values()) == {JobState.RUNNING}, states
    assert len({host_of(world, f"s{i}") for i in range(3)}) == 1


def test_room_kept_for_two_jobs_starts_the_one_that_a_limit_allows(world: Tenants) -> None:
    """Room kept for each counts against the limit; neither is in the way of the one before it."""
    world.agents(2, 1)
    world.document(dev=queue(), ops=queue())
    for name in ("x", "y"):
        world.runs(name, "ops")
    for name, priority in (("second", 0), ("first", 5)):
        world.submit(name, queue="dev", gpus=1, preemptible=True, priority=priority)
    for name, there in (("second", "x"), ("first", "y")):
        room = replace(world.job(name), room_made_at=world.now, room_on=(host_of(world, there),))
        world.state.set_job(room)
    world.document(dev=queue(limit_gpus={"default": 1000}), ops=queue())
    for name in ("x", "y"):
        world.ends(name)
    world.passes(10)
    assert world.job("first").state is not JobState.PENDING
    assert world.job("second").state is JobState.PENDING
