"""HiveD's anomaly: a queue's gang waits longer among others than if the queue were alone on its nodes.

With shapes it does not, beyond notice, grace and minimum run; with a number of GPUs it does, and why says so.
"""

import pytest

from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import Guarantee, MinRuntime
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    return world


def in_pieces(world: Tenants, owed: Guarantee, *, preemptible: bool = True) -> None:
    """Two jobs of 2 GPUs of team have seats, each on a node of its own, beside borrowers; other has its node."""
    world.agents(3, 4)
    world.document(team=queue(owed), other=queue(shapes(1, 4)))
    world.runs("its", "other", 4)
    assert world.seat_of("its") == "other"
    for i in range(2):
        world.runs(f"lent{i}", "other", 2)
        world.runs(f"filler{i}", "other", 2)
    for i in range(2):
        world.ends(f"filler{i}")
        world.runs(f"small{i}", "team", 2, preemptible=preemptible)
    assert [world.seat_of(f"small{i}") for i in range(2)] == ["team", "team"]
    hosts = {world.state.work.round_of(world.job(name))[0].agent_id for name in ("small0", "small1")}
    assert len(hosts) == 2, "they lie in pieces"


def starts_within(world: Tenants, name: str, most_s: int) -> int:
    """Let time pass, and whoever is told to end do so; after how many seconds the job starts."""
    for passed_s in range(most_s + 1):
        if world.job(name).state is not JobState.PENDING:
            return passed_s
        world.passes(1)
        world.tick(0.01)
        world.obeys()
        world.starts()
    return most_s + 1


def test_shapes_move_a_neighbour_and_free_the_whole_node_at_once(world: Tenants) -> None:
    in_pieces(world, shapes(2, 4))
    world.submit("whole", queue="team", gpus=4)
    assert starts_within(world, "whole", 10) <= 10
    moved = next(world.job(name) for name in ("small0", "small1") if world.job(name).stopped)
    assert starts_within(world, str(moved.id), 10) <= 10, "its seat is owed to it elsewhere"
    names = ("whole", "small0", "small1", "its")
    assert {world.seat_of(name) for name in names} == {"team", "other"}
    assert not any(world.job(name).stopped > 1 for name in names)
    assert {world.job(name).state for name in ("lent0", "lent1")} == {JobState.PENDING}
    assert not world.passes(120), "and that is all"


def test_notice_of_a_move_names_its_taker_and_reason(world: Tenants) -> None:
    in_pieces(world, shapes(2, 4))
    world.submit("whole", queue="team", gpus=4)
    for _ in range(6):
        world.passes(1)
    told = [
        task
        for task in world.state.work.tasks.values()
        if task.notice is not None and task.notice.by == "whole"
    ]
    (mover,) = [task for task in told if str(task.job_id).startswith("small")]
    assert mover.notice is not None
    assert mover.notice.reason is NoticeReason.RECLAIM
    assert "so that job whole has room on one node" in mover.notice.why
    assert mover.notice.why.startswith("goes to a")


def test_guarantee_by_number_waits_and_why_reports_gpus_in_pieces(world: Tenants) -> None:
    """Others hold what they are guaranteed where it needs a node, and may not be stopped."""
    world.agents(3, 4)
    world.document(team=queue(6), other=queue(6))
    for i in range(3):
        world.runs(f"other{i}", "other", 2, preemptible=False)
        world.runs(f"filler{i}", "team", 2)
    for i in range(3):
        world.ends(f"filler{i}")
    world.submit("whole", queue="team", gpus=4)
    alone = Tenants()
    alone.register()
    alone.agents(1, 4)
    alone.document(team=queue(6))
    alone.submit("whole", queue="team", gpus=4)
    alone.offer_again()
    assert starts_within(alone, "whole", 10) <= 10, "alone it would run"
    assert starts_within(world, "whole", 60) > 60
    told = why_of(world.state, world.settings, world.now, world.job("whole")).summary
    assert told.endswith(
        "guaranteed by queue team: 6 GPUs are free, on 3 nodes with at most 2 each; 6 GPUs are held by jobs within "
        "guarantees; queue team is guaranteed a number of GPUs, which may be scattered over nodes"
    ), told


def test_non_preemptible_job_does_not_move_for_a_shape(world: Tenants) -> None:
    in_pieces(world, shapes(2, 4), preemptible=False)
    world.submit("whole", queue="team", gpus=4)
    assert starts_within(world, "whole", 60) > 60
    assert not any(job.stopped for job in world.state.work.jobs.values())
    world.ends("small0")
    assert starts_within(world, "whole", 10) <= 10


def test_job_without_another_place_does_not_move_for_a_shape(world: Tenants) -> None:
    in_pieces(world, shapes(2, 4))
    for i in range(2):
        world.ends(f"lent{i}")
    world.document(team=queue(shapes(2, 4)), other=queue(shapes(1, 4), fence=True))
    for i in range(2):
        world.runs(f"fenced{i}", "other", 2)
    world.submit("whole", queue="team", gpus=4)
    assert starts_within(world, "whole", 60) > 60
    assert not any(job.stopped for job in world.state.work.jobs.values())


def test_shapes_move_no_job_while_borrowers_are_only_protected(world: Tenants) -> None:
    world.agents(3, 4)
    protects = MinRuntime(60.0, 600.0)
    world.document(team=queue(shapes(2, 4)), other=queue(shapes(1, 4), min_runtime_s=protects))
    world.runs("its", "other", 4)
    world.runs("small", "team", 2)
    world.runs("lent", "other", 4)
    world.submit("whole", queue="team", gpus=4)
    waited = starts_within(world, "whole", 90)
    assert 50 <= waited <= 75
    assert world.job("small").stopped == 0
