"""Reservations on an agent while a card is shared, their use, and their return."""

import json
from dataclasses import replace
from itertools import pairwise

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.offer import Offer, Scalar
from mesos_gpu.wire.mesos.reservations import owner_of, reserved
from tests.doubles.builders import every, offer, only
from tests.unit.engine.gpus.test_covers import (
    PLAIN,
    QUARTER,
    amounts,
    cover_task,
    rest,
    run,
    shared,
    submit,
    world_of,
)


def test_reservation_by_role_has_the_gpu_and_what_its_keeper_takes() -> None:
    world = world_of(shared("g1"), role="gpu", principal="me")
    world.state.cluster.drop_offers()
    rest(world, "o2", 1, kind=PLAIN)
    launch = only(submit(world, "j1", **QUARTER), fx.Launch)
    cover, fraction = launch.tasks
    assert launch.unreserve == ()
    assert amounts(launch.reserve) == {"gpus": 1, "cpus": 0.011, "mem": 33}
    assert {owner_of(each) for each in (*cover.resources, *cover.executor_resources)} == {"fw-1"}
    assert not any(map(owner_of, (*fraction.resources, *fraction.executor_resources)))
    kind = json.loads(launch.reserve[0].kind)
    assert (kind["role"], kind["reservation"]["principal"]) == ("gpu", "me")


def test_reservation_that_comes_back_is_given_back_or_covers_a_card_again() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    rest(world, "o2", 1, kind=PLAIN)
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, world.state.work.tasks[TaskId("j1.1")])
    world.status(cover.id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
    world.tick(1)
    launch = only(world.offers(_reserved_offer("o3", "fw-1", cpus=0.011, mem=33, gpus=1)), fx.Launch)
    assert (launch.reserve, launch.unreserve) == ((), ())
    assert [item.task.covers for item in launch.tasks] == ["g1"]
    run(world, cover_task(world))
    world.status("j1.1", "TASK_FINISHED")
    world.tick(61)
    world.status(cover_task(world).id, "TASK_KILLED")
    launch = only(world.offers(_reserved_offer("o4", "fw-1", cpus=0.001, mem=1, gpus=1)), fx.Launch)
    assert launch.tasks == ()
    assert amounts(launch.unreserve) == {"gpus": 1, "cpus": 0.001, "mem": 1}


def _reserved_offer(name: str, by: str, **given: float) -> Offer:
    scalars = tuple(reserved(Scalar(kind, amount, PLAIN), "gpu", None, by) for kind, amount in given.items())
    plain = (Scalar("cpus", 4.0, PLAIN), Scalar("mem", 4096.0, PLAIN))
    return replace(offer(name), resources=(*scalars, *plain))


KEPT: dict[str, float] = {"cpus": 0.011, "mem": 33, "gpus": 1}


def test_reservation_of_another_framework_of_the_role_is_left_alone() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    assert every(world.offers(_reserved_offer("o2", "fw-2", **KEPT)), fx.Launch) == []
    assert every(submit(world, "whole", gpus=1), fx.Launch) == []
    assert every(submit(world, "j1", **QUARTER), fx.Launch) == []
    assert only(submit(world, "no GPU", gpus=0), fx.Launch).unreserve == ()


def test_reservation_from_before_they_named_their_framework_is_given_back() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    launch = only(world.offers(_reserved_offer("o2", "shared GPU", **KEPT)), fx.Launch)
    assert amounts(launch.unreserve) == KEPT


def test_reservation_that_the_master_keeps_is_given_back_ever_more_rarely() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    tried = []
    for n in range(600):
        effects = [*world.offers(_reserved_offer(f"o{n}", "fw-1", **KEPT)), *world.tick(1)]
        tried += [world.now for launch in every(effects, fx.Launch) if launch.unreserve]
        world.state.cluster.drop_offers()
    waits = [round(later - now) for now, later in pairwise(tried)]
    assert waits[:4] == [1, 2, 4, 8]
    assert len(tried) < 12
    world.offers(replace(offer("plain"), resources=(Scalar("gpus", 1, PLAIN),)))  # an operator did it
    world.state.cluster.drop_offers()
    assert only(world.offers(_reserved_offer("again", "fw-1", **KEPT)), fx.Launch).unreserve


def test_job_that_waits_is_not_told_that_it_could_have_what_is_reserved_still() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    for n in range(3):
        world.offers(_reserved_offer(f"o{n}", "fw-1", **KEPT))
    assert list(world.state.cluster.offers) == ["o1", "o2"], "it is tried again in a moment"
    submit(world, "whole", gpus=1)
    assert world.job("whole").state is JobState.PENDING
    why = why_of(world.state, world.settings, world.now, world.job("whole"))
    assert [(each.reason, each.left) for each in why.funnel] == [(Stage.GPUS, 0)]


def test_reservation_of_an_executor_is_given_back_right_after_that_of_its_task() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    for name, given in (
        ("o2", {"gpus": 1.0, "cpus": 0.001, "mem": 1.0}),
        ("o3", {"cpus": 0.01, "mem": 32.0}),
    ):
        assert (
            amounts(only(world.offers(_reserved_offer(name, "fw-1", **given)), fx.Launch).unreserve) == given
        )
        world.state.cluster.drop_offers()


def test_reservation_that_the_master_refuses_is_done_without() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    rest(world, "o2", 1, kind=PLAIN)
    world.submit("j1", **QUARTER)
    world.status(cover_task(world).id, "TASK_ERROR", reason="REASON_TASK_INVALID")
    world.tick(1)
    launch = only(rest(world, "o3", 1, kind=PLAIN), fx.Launch)
    assert launch.reserve == ()
    assert [item.task.covers for item in launch.tasks] == ["g1"]
    assert not any(map(owner_of, launch.tasks[0].resources))


def test_gpu_reserved_already_for_our_role_is_not_reserved_again() -> None:
    world = world_of(shared("g1"), role="gpu")
    world.state.cluster.drop_offers()
    rest(world, "o2", 1, kind='{"role":"gpu"}')
    assert only(submit(world, "j1", **QUARTER), fx.Launch).reserve == ()
