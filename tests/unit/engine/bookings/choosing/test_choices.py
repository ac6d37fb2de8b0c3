"""Nodes that a booking gets, provisionally and for good, the moments at which it is looked at, and its messages."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.errors import Conflict, NotAccepted
from mesos_gpu.model.bookings.booking import Booking, BookingState, Place
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import Pool, QueueDocument, QueueSpec
from tests.doubles.builders import gpu
from tests.unit.engine.bookings.worlds import HOUR, NOON, Booked

STOPPABLE = {"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}
BEGINS = NOON + HOUR


def made(**sizes: int) -> Booked:
    """Nodes of so many GPUs, without bookings."""
    world = Booked()
    for name, gpus in sizes.items():
        world.up(name, gpus)
    return world


def known(world: Booked) -> Provisional:
    provisional = world.state.calendar.provisional
    assert isinstance(provisional, Provisional)
    return provisional


def chosen(world: Booked, name: str = "exam") -> list[str]:
    """The GPUs that a booking has, or would get now."""
    booking = world.booking(name)
    places: tuple[Place, ...] = (
        booking.places if booking.state.has_nodes else known(world).places.get(name, ())
    )
    for place in places:
        assert place.hostname == f"{place.agent_id}.example"
    return [str(card) for place in places for card in place.gpus]


def cards(node: str, *numbers: int) -> list[str]:
    return [f"{node}-{number}" for number in numbers]


def on(world: Booked, name: str, *held: str, **fields: Any) -> None:
    """A job that runs on those cards, a task on each."""
    before = set(world.state.work.live)
    world.submit(name, **{"cpus": 0.1, "gpus": len(held), **fields})
    world.offer_again()
    world.started()
    assert set(world.state.work.live) - before
    assert world.on(name) == set(held), world.on(name)


def test_booking_is_on_the_smallest_node_then_on_the_first_by_name() -> None:
    world = made(n1=4, n2=2, n3=2)
    world.book(gpus=2)
    assert chosen(world) == cards("n2", 0, 1)
    world.book("next", gpus=2)
    assert chosen(world, "next") == cards("n3", 0, 1)
    world.book("other", gpus=2)
    assert chosen(world, "other") == cards("n1", 0, 1)


def test_booking_of_several_nodes_has_each_once() -> None:
    world = made(n1=4, n2=4, n3=2)
    world.book(nodes=2, gpus=4)
    assert chosen(world) == cards("n1", 0, 1, 2, 3) + cards("n2", 0, 1, 2, 3)


WHO: dict[str, tuple[dict[str, Any], list[str]]] = {
    "ends before": ({"timeout_s": 3000.0}, cards("n1", 0, 1)),
    "ends at the very begin": ({"timeout_s": HOUR - 5.0, "kill_grace_s": 5.0}, cards("n1", 0, 1)),
    "grace ends after the begin": ({"timeout_s": HOUR - 4.0, "kill_grace_s": 5.0}, cards("n2", 0, 1)),
    "has no end": ({}, cards("n2", 0, 1)),
    "has notice before": (STOPPABLE, cards("n2", 0, 1)),
    "may use it": ({"queue": "exam", "timeout_s": 2.0 * HOUR}, cards("n1", 0, 1)),
}


@pytest.mark.parametrize(("fields", "gets"), WHO.values(), ids=WHO)
def test_booking_gets_the_node_where_nobody_is_displaced(fields: dict[str, Any], gets: list[str]) -> None:
    world = made(n1=2)
    on(world, "j1", *cards("n1", 0, 1), **fields)
    world.up("n2", 2)
    world.book(gpus=2)
    assert chosen(world) == gets


def test_booking_displaces_who_can_be_told_before_who_cannot() -> None:
    world = made(n1=2)
    on(world, "stays", *cards("n1", 0, 1))
    world.up("n2", 2)
    on(world, "leaves", *cards("n2", 0, 1), **STOPPABLE)
    world.up("n3", 2)
    on(world, "late", *cards("n3", 0, 1), **{**STOPPABLE, "notice_s": 600.0})
    world.state.calendar.bookings = {}
    world.now += 1800
    world.book(gpus=2, begins="12:35")
    assert chosen(world) == cards("n2", 0, 1)


def test_booking_of_several_nodes_displaces_a_gang_once() -> None:
    """A gang has a card of n1 and of n2, so n2 costs less than n3 once the gang leaves n1."""
    world = made(n1=2)
    on(world, "one", *cards("n1", 0), **STOPPABLE)
    on(world, "short", *cards("n1", 1))
    world.up("n2", 2)
    on(world, "two", *cards("n2", 0), **STOPPABLE)
    world.obey(world.feed(ev.KillRequested(JobId("short"))))
    on(world, "gang", *cards("n1", 1), *cards("n2", 1), **{**STOPPABLE, "tasks": 2, "gpus": 1})
    world.up("n3", 2)
    on(world, "three", *cards("n3", 0, 1), **STOPPABLE)
    for name, run_s in {"one": 10, "two": 200, "gang": 200, "three": 250}.items():
        world.state.set_job(replace(world.job(name), started_at=world.now - run_s))
    world.book(nodes=2, gpus=2)
    assert chosen(world) == cards("n1", 0, 1) + cards("n2", 0, 1)


def test_booking_takes_idle_cards_before_those_of_others() -> None:
    world = made(n1=4)
    on(world, "leaves", *cards("n1", 0, 1), **STOPPABLE)
    world.book(gpus=2)
    assert chosen(world) == cards("n1", 2, 3)
    world.book("wide", gpus=2, begins="13:30")
    assert chosen(world, "wide") == cards("n1", 0, 1)


UNFIT = {
    "closed": lambda world: world.feed(ev.DrainRequested(Target.NODE, "n1.example", "fan", "ann", None)),
    "lost": lambda world: world.feed(ev.AgentLost(AgentId("n1"))),
    "with a sick card": lambda world: world.report("n1", gpu("n1-0"), gpu("n1-1", health=Health.SICK)),
    "with fewer cards": lambda world: world.report("n1", gpu("n1-0")),
}


@pytest.mark.parametrize("spoil", UNFIT.values(), ids=UNFIT)
def test_booking_has_no_place_on_a_node(spoil: Any) -> None:
    world = made(n1=2, n2=4)
    world.book(gpus=2)
    assert chosen(world) == cards("n1", 0, 1)
    spoil(world)
    assert chosen(world) == cards("n2", 0, 1)
    assert known(world).next_at == BEGINS


def test_booking_is_of_one_model_and_in_its_pool() -> None:
    world = made(n1=2)
    world.up("n2", 2, "T4")
    world.feed(
        ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec()}, pools=(Pool("old", ("T4",)),)), 0)
    )
    world.book("old", gpus=1, pool="old")
    world.book("fast", gpus=2, models=("A100",))
    assert (chosen(world, "old"), chosen(world, "fast")) == (cards("n2", 0), cards("n1", 0, 1))
    world.feed(
        ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec()}, pools=(Pool("old", ("T4", "A100")),)), 1)
    )
    assert chosen(world, "old") == cards("n2", 0), "it is in that pool still"


def test_booking_leaves_what_others_have_then_and_no_longer() -> None:
    world = made(n1=2, n2=2)
    world.book("first", gpus=2)
    world.book("beside", gpus=2, begins="13:30")
    world.book("after", gpus=2, begins="14:00", lasts_s=1800)
    assert [chosen(world, name) for name in ("first", "beside", "after")] == [
        cards("n1", 0, 1), cards("n2", 0, 1), cards("n1", 0, 1),
    ]  # fmt: skip


def test_booking_leaves_room_for_a_later_one_that_only_one_node_serves() -> None:
    world = made(n1=2)
    world.up("n2", 2, "T4")
    on(world, "leaves", *cards("n2", 0, 1), gpu_model=("T4",), **STOPPABLE)
    world.book("narrow", gpus=2, models=("A100",), begins="13:30")
    world.book("wide", gpus=2)
    assert (chosen(world, "wide"), chosen(world, "narrow")) == (cards("n2", 0, 1), cards("n1", 0, 1))


def next_at(world: Booked) -> float:
    return known(world).next_at - BEGINS


def test_booking_needs_something_at_its_begin_its_end_and_for_each_that_is_told() -> None:
    world = made(n1=4)
    world.book(purge_after_s=900)
    assert next_at(world) == 0.0
    world.run("leaves", gpus=4, **STOPPABLE)
    assert next_at(world) == -70.0
    world.go(HOUR - 69)
    assert world.booking().state is BookingState.PREPARING
    assert next_at(world) == 0.0, "the job has its notice"
    world.go(70)
    assert world.booking().is_active
    assert next_at(world) == pytest.approx(900.0, abs=3.0), "unused it is given back then"
    world.run("mine", queue="exam", gpus=4, **STOPPABLE)
    assert next_at(world) == HOUR - 70.0
    world.go(HOUR - 70)
    assert next_at(world) == HOUR, "its own job has its notice"


def test_booking_that_is_never_given_back_needs_nothing_before_its_end() -> None:
    world = made(n1=4)
    world.book(purge_after_s=0)
    world.go(HOUR + 1)
    assert next_at(world) == HOUR


def test_bookings_that_are_known_are_kept_in_mind_until_they_end() -> None:
    world = made(n1=4)
    world.book("first", gpus=2)
    world.book("second", gpus=2)
    assert set(known(world).places) == {"first", "second"}
    world.feed(ev.BookingCancelled("first"))
    assert set(known(world).places) == {"second"}
    world.go(HOUR + 1)
    assert known(world).places == {}, "it has its nodes"
    world.feed(ev.BookingCancelled("second"))
    assert known(world).next_at == float("inf")


def test_owner_is_told_which_nodes_are_chosen_and_what_is_lacking() -> None:
    world = made(n1=4, n2=4)
    world.book(nodes=2)
    world.run("leaves", gpus=4, **STOPPABLE)
    world.go(HOUR - 69)
    begins = "it begins Tue 2026-11-24 13:00"
    assert world.booking().message == f"its nodes are chosen: n2.example, n1.example; {begins}"
    world.feed(ev.AgentLost(AgentId("n2")))
    lacks = "1 of its 2 nodes is lacking: no other is sound, or can be free in time"
    world.go(1)
    assert (world.booking().message, world.booking().told) == (lacks, True)
    world.up("n3", 4)
    world.go(1)
    assert (world.booking().message, world.booking().told) == (
        "what was lacking is replaced by n3.example",
        False,
    )
    world.feed(ev.AgentLost(AgentId("n3")))
    world.up("n4", 4)
    world.go(1)
    assert world.booking().message == "what was lacking is replaced by n4.example"


def test_owner_of_a_booking_that_begins_with_free_nodes_is_told_of_them() -> None:
    world = made(n1=4)
    world.book()
    world.go(HOUR + 1)
    lasts = "it has begun, and lasts until Tue 2026-11-24 14:00"
    assert world.booking().message == lasts
    assert world.booking().places == (Place(AgentId("n1"), "n1.example", tuple(world.booking().gpus)),)


def notice_of(world: Booked, name: str) -> Any:
    return world.state.work.tasks[TaskId(f"{name}.1")].notice


def test_job_that_came_before_the_nodes_were_chosen_is_told_when_it_has_begun() -> None:
    world = made(n1=4, n2=4)
    world.book(purge_after_s=0)
    world.run("two", gpus=4, **STOPPABLE)
    world.go(HOUR + 1)
    mine = chosen(world)[0].partition("-")[0]
    assert world.booking().is_active
    other = {"n1": "n2", "n2": "n1"}[mine]
    running = world.state.work.round_of(world.job("two"))
    assert [task.agent_id for task in running if not task.ended] == [other]
    world.feed(ev.AgentLost(AgentId(mine)))
    world.go(2)
    assert chosen(world)[:1] == cards(other, 0)
    notice = notice_of(world, "two")
    assert (notice.reason, notice.why, notice.until - notice.at) == (
        NoticeReason.CALENDAR, "booking exam has begun", 60.0,
    )  # fmt: skip


@pytest.mark.parametrize(("before_s", "left_s"), [(70.0, 60.0), (68.5, 58.5), (67.0, 60.0)])
def test_job_that_is_told_a_little_late_has_the_rest_and_else_all_of_its_notice(
    before_s: float, left_s: float
) -> None:
    world = made(n1=4)
    world.run("leaves", gpus=4, **STOPPABLE)
    world.now = BEGINS - before_s
    world.book()
    world.feed(ev.Tick())
    notice = notice_of(world, "leaves")
    assert notice is not None
    assert notice.until - notice.at == pytest.approx(left_s)


def test_booking_that_no_scheduler_saw_fails_and_old_ones_are_forgotten() -> None:
    world = made(n1=4)
    world.book()
    world.now = BEGINS + HOUR
    world.feed(ev.Tick())
    over = world.booking()
    assert (over.state, over.message, over.ended_at, over.last) == (
        BookingState.FAILED, "no scheduler ran during its time", BEGINS + HOUR, BookingState.FAILED,
    )  # fmt: skip
    world.state.calendar.provisional = None
    world.now += 30 * 86_400.0
    world.feed(ev.Tick())
    assert world.state.calendar.bookings
    world.now += 0.5
    world.state.calendar.provisional = None
    world.feed(ev.Tick())
    assert world.state.calendar.bookings == {}


OUTCOMES = {
    "used": (True, 0, BookingState.OVER, "its time is over"),
    "unused": (False, 0, BookingState.RETURNED, "its time is over, and "),
    "given back": (False, 900, BookingState.RETURNED, "used it for 900 s, so it was given back"),
}


@pytest.mark.parametrize(("used", "purge_after_s", "state", "message"), OUTCOMES.values(), ids=OUTCOMES)
def test_booking_ends_with_what_became_of_it(
    used: bool, purge_after_s: int, state: BookingState, message: str
) -> None:
    world = made(n1=4)
    world.book(purge_after_s=purge_after_s)
    world.go(HOUR + 1)
    if used:
        world.run("mine", queue="exam", gpus=4)
        world.status("mine.1", "TASK_FINISHED", agent="n1")
    active = world.booking()
    world.go(HOUR)
    over = world.booking()
    assert over.ended_at is not None
    assert over == replace(
        active, state=state, places=(), message=over.message, ended_at=over.ended_at, last=state, counted_at=0.0,
        used_gpus=0, idle_gpu_ms=over.idle_gpu_ms, used_at=over.used_at,
    )  # fmt: skip
    assert message in over.message
    assert over.ended_at == pytest.approx(BEGINS + (purge_after_s or HOUR), abs=2.0)
    assert over.idle_gpu_ms == pytest.approx(4000 * (over.ended_at - BEGINS), abs=9000)


def test_booking_is_made_and_changed_with_all_that_it_says() -> None:
    world = made(n1=4)
    booked = world.book(gpus=2, lasts_s=1800)
    spec = replace(booked.spec, begins="2026-11-24T13:00")
    assert booked == Booking(
        "exam", spec, "ann", NOON, "2026-11-24", int(BEGINS), int(BEGINS) + 1800,
        message="it begins Tue 2026-11-24 13:00"
    )  # fmt: skip
    world.now += 5
    asked = replace(spec, gpus=4, begins="2026-11-25T09:00", lasts_s=HOUR)
    world.feed(ev.BookingChanged("exam", asked))
    begins = int(NOON) + 21 * HOUR
    assert world.booking() == replace(
        booked, spec=asked, day="2026-11-25", begins=begins, ends=begins + HOUR,
        message="it begins Wed 2026-11-25 09:00"
    )  # fmt: skip
    assert known(world).next_at == begins


def test_booking_that_lasts_is_changed_in_its_length_alone() -> None:
    world = made(n1=4)
    world.book(purge_after_s=0)
    world.go(HOUR + 1)
    active = world.booking()
    asked = replace(active.spec, lasts_s=2 * HOUR, users=("ann",))
    world.feed(ev.BookingChanged("exam", asked))
    assert world.booking() == replace(
        active, spec=asked, ends=int(BEGINS) + 2 * HOUR, message="it lasts until Tue 2026-11-24 15:00"
    )  # fmt: skip
    with pytest.raises(Conflict, match="has begun"):
        world.feed(ev.BookingChanged("exam", replace(asked, gpus=2)))
    with pytest.raises(NotAccepted, match="has lasted longer than 1 s"):
        world.feed(ev.BookingChanged("exam", replace(asked, lasts_s=1)))
