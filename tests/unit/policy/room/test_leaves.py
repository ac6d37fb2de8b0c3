"""Leaves of queues: times at which limits have room for a job, and what is to spare then."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.policy.capacity.fit import Chosen
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, Reservation, Spare
from mesos_gpu.policy.room.reservation import (
    Limit,
    QuotaRelease,
    after_launch,
    decisive,
    ends_by,
    leave_of,
    leave_of_all,
    outlasts,
    with_leaves,
)
from mesos_gpu.policy.sharing.parts import GpuPart
from tests.doubles.builders import request, spec

NOW = 100.0
KEPT = Reservation(JobId("kept"), "q", Resources(cpus=1), 150.0, spare=Resources(cpus=5, gpus=3))


def holds(name: str, milli: int, ends_at: float) -> Allocation:
    return Allocation(JobId(name), Resources(gpus=1), ends_at=ends_at, counted_milli=milli)


SOON, LATER, PAST = holds("soon", 2000, 110.0), holds("later", 3000, 120.0), holds("past", 1000, 50.0)
NEVER = holds("never", 1000, ENDLESS)


@pytest.mark.parametrize(
    ("limit", "want", "held", "leave"),
    [
        (1000, 1001, (), None),
        (1000, 1000, (), QuotaRelease(NOW, 0)),
        (6000, 1000, (LATER, SOON), QuotaRelease(NOW, 0)),
        (5999, 1000, (LATER, SOON), QuotaRelease(110.0, 1999, (SOON,))),
        (5000, 2000, (LATER, SOON), QuotaRelease(110.0, 0, (SOON,))),
        (5000, 2001, (LATER, SOON), QuotaRelease(120.0, 2999, (SOON, LATER))),
        (3000, 3000, (LATER, NEVER, SOON), QuotaRelease(ENDLESS, 0, (SOON, LATER, NEVER))),
        (1500, 1000, (PAST,), QuotaRelease(NOW, 500, (PAST,))),
    ],
)
def test_limit_leaves_room_when_enough_has_ended(
    limit: int, want: int, held: tuple[Allocation, ...], leave: QuotaRelease | None
) -> None:
    assert leave_of(limit, want, held, NOW) == leave


def limit(queue: str, milli: int, *held: Allocation) -> Limit:
    return Limit(queue, "pool", milli, held)


def test_leave_of_several_limits_is_the_last_and_tells_what_others_have_to_spare_then() -> None:
    own, above = limit("a.b", 3000, SOON, LATER), limit("a", 8000, SOON, LATER, NEVER)
    assert leave_of_all([own, above], 1500, NOW) == (
        QuotaRelease(120.0, 1500, (SOON, LATER)),
        (Spare("a.b", "pool", 1500), Spare("a", "pool", 8000 - 1000 - 1500)),
    )


def test_leave_counts_what_a_limit_waits_for_as_given_back_though_it_ends_with_no_time() -> None:
    """All wait for endless jobs: each limit is without what it waits for, and all else stays."""
    other = holds("other", 500, ENDLESS)
    first, second = limit("a", 1000, NEVER), limit("b", 2000, NEVER, LATER, other)
    leave, spares = leave_of_all([first, second], 600, NOW) or (None, ())
    assert leave == QuotaRelease(ENDLESS, 400, (NEVER,))
    assert spares == (Spare("a", "pool", 400), Spare("b", "pool", 2000 - 500 - 600))


def test_leave_of_a_limit_has_nothing_to_spare_of_what_it_does_not_wait_for() -> None:
    twin = holds("twin", 2000, 110.0)
    assert leave_of_all([limit("a", 4000, SOON, twin)], 1000, NOW) == (
        QuotaRelease(110.0, 1000, (SOON,)),
        (Spare("a", "pool", 1000),),
    )


def test_leave_of_several_limits_is_none_where_one_is_too_small_or_there_are_none() -> None:
    assert leave_of_all([limit("a", 5000), limit("b", 999)], 1000, NOW) is None
    assert leave_of_all([limit("b", 999), limit("a", 5000)], 1000, NOW) is None
    assert leave_of_all([], 1000, NOW) is None


def test_reservation_with_leaves_waits_for_the_latest_and_tells_all_spares() -> None:
    kept = replace(KEPT, awaited=(PAST,), spares=(Spare("z", "old", 7),))
    early = (QuotaRelease(120.0, 0, (LATER,)), [limit("a", 5000, LATER, NEVER)], 1000)
    late = (
        QuotaRelease(200.0, 0, (SOON,)),
        [limit("b", 5000, SOON, holds("x", 9, 200.0), holds("y", 90, 201.0))],
        500,
    )
    assert with_leaves(kept, [early]) == replace(kept, spares=(*kept.spares, Spare("a", "pool", 3000)))
    assert with_leaves(kept, [early, late]) == replace(
        kept,
        at=200.0,
        awaited=(SOON,),
        spares=(*kept.spares, Spare("a", "pool", 3000), Spare("b", "pool", 5000 - 90 - 500)),
    )
    same = (QuotaRelease(150.0, 0, (SOON,)), list[Limit](), 1)
    assert with_leaves(kept, [same]) == kept, "the node is awaited as long"
    assert with_leaves(kept, []) == kept


def test_launch_without_limit_ends_never_and_another_by_its_limit_and_grace() -> None:
    assert ends_by(spec(), NOW) == ENDLESS
    assert ends_by(spec(timeout_s=60.0, kill_grace_s=5.0), NOW) == NOW + 65


@pytest.mark.parametrize(
    ("ends_at", "at", "outlasting"),
    [(149.0, 150.0, False), (150.0, 150.0, False), (150.5, 150.0, True), (0.0, ENDLESS, True)],
)
def test_launch_outlasts_a_reservation_that_begins_before_its_end(
    ends_at: float, at: float, outlasting: bool
) -> None:
    assert outlasts(ends_at, replace(KEPT, at=at)) is outlasting


def test_decisive_reservation_is_the_one_whose_last_task_ends_last() -> None:
    free = KEPT
    first = replace(KEPT, awaited=(PAST, SOON, LATER))
    last = replace(KEPT, awaited=(PAST, PAST, holds("x", 1, 130.0)))
    assert decisive([free, first, last]) is last
    assert decisive([last, first, free]) is last
    assert decisive([free]) is free
    assert decisive([]) is None


def test_reservation_after_a_launch_has_less_to_spare_only_of_what_was_taken() -> None:
    share = Share(200, 1000, 1000, Method.SHIM_WINDOWS)
    parts = (GpuPart(GpuId("g0"), 500, 4000), GpuPart(GpuId("g1"), 600, 5000))
    kept = replace(KEPT, beside=parts, spares=(Spare("q", "p", 900), Spare("q", "r", 800)))
    ask = request(2, 0, 1)
    taken = [("q", "p", 300), ("other", "r", 5)]
    whole, shared = (
        Chosen(AgentId("a"), (GpuId("g0"),)),
        Chosen(AgentId("a"), (GpuId("g1"), GpuId("g9")), share),
    )
    assert after_launch(kept, ask, here=False) == kept
    assert after_launch(kept, ask, here=False, takes=taken, chosen=shared) == replace(
        kept, spares=(Spare("q", "p", 600), Spare("q", "r", 800))
    )
    here = replace(kept, spare=Resources(cpus=3, gpus=2))
    assert after_launch(kept, ask, here=True) == after_launch(kept, ask, here=True, chosen=whole) == here
    less = GpuPart(GpuId("g1"), 400, 4000, Method.SHIM_WINDOWS, shares=1)
    assert after_launch(kept, ask, here=True, chosen=shared) == replace(here, beside=(parts[0], less))
