"""Parts of bookings, one by one: which jobs may use them or have notice for them, idle GPUs, and their charges."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.bookings.beginning import begin, is_to_begin, lacking_words, offered_at
from mesos_gpu.engine.bookings.notices import end_notice_at, goes_on, notice_at, on_places
from mesos_gpu.engine.bookings.using import charge, count_used, counted_up, idle_gpu_ms, purged_at
from mesos_gpu.engine.calendar.booked import (
    Booked as Bookings,
)
from mesos_gpu.engine.calendar.booked import (
    booked_for,
    booking_called,
    booking_over,
    check_booking,
    holders_of,
    jobs_of,
    may_use,
    named_jobs,
    others_on,
    owner_in,
    part_of,
    unfinished,
    users_of,
)
from mesos_gpu.engine.calendar.leads import ends_by_limit, lead_of, notice_of
from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.bookings.booking import Booking, BookingSpec, BookingState, Charge, Place
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Guarantee, Hours, Pool, QueueDocument, QueueSpec
from mesos_gpu.model.usage import Closed, MeasuredWork, Part, Span, SpanEnd
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from tests.doubles.builders import every, spec
from tests.unit.engine.bookings.worlds import HOUR, NOON, Booked

BEGINS, ENDS = int(NOON) + HOUR, int(NOON) + 2 * HOUR
SPEC = BookingSpec("exam", "exam", 2, "2026-11-24T13:00", HOUR)
PLACES = (Place(AgentId("n1"), "n1.example", (GpuId("n1-0"), GpuId("n1-1"))),)
BOOKED = Booking("b1", SPEC, "ann", NOON, "2026-11-24", BEGINS, ENDS)
ACTIVE = replace(BOOKED, state=BookingState.ACTIVE, places=PLACES, counted_at=float(BEGINS))


def job_of(name: str = "j1", *, state: JobState = JobState.PENDING, **fields: Any) -> Job:
    asked = {"queue": "exam", "gpus": 1, "user": "bob", **fields}
    return Job(JobId(name), spec(**asked), NOON, 1, state=state)


@pytest.fixture
def world() -> Booked:
    """Two nodes without bookings."""
    made = Booked()
    made.up("n1", 4)
    made.up("n2", 2, "T4")
    return made


def turn_of(world: Booked, now: float | None = None) -> Turn:
    return Turn(world.state, world.settings, world.now if now is None else now)


def running(world: Booked, name: str, *gpus: str, **fields: Any) -> Job:
    """A job that holds those cards since now."""
    job = replace(job_of(name, state=JobState.RUNNING, **fields), task_id=TaskId(f"{name}.1"), launches=1)
    world.state.set_job(job)
    task = Task(
        TaskId(f"{name}.1"), AgentId("n1"), name, job.id, TaskState.RUNNING, world.now,
        gpus=tuple(map(GpuId, gpus)), hostname="n1.example", started_at=world.now,
    )  # fmt: skip
    world.state.set_task(task)
    return job


MAY = {
    "of its queue": ({}, {}, True),
    "of a queue below": ({}, {"queue": "exam/x"}, True),
    "of another queue": ({}, {"queue": "examiners"}, False),
    "of one of its users": ({"users": ("bob?", "bob")}, {}, True),
    "of another user": ({"users": ("eve",)}, {}, False),
    "that asks for it by name": ({}, {"booking": "exam"}, True),
    "that asks for it by id": ({}, {"booking": "b1"}, True),
    "that asks for another one": ({}, {"booking": "other"}, False),
    "without GPUs": ({}, {"gpus": 0}, False),
    "of a share": ({}, {"gpu_milli": 500}, False),
}


@pytest.mark.parametrize(("booked", "fields", "may"), MAY.values(), ids=MAY)
def test_booking_may_be_used_by_whole_jobs_of_its_queue_and_users(
    booked: dict[str, Any], fields: dict[str, Any], may: bool
) -> None:
    assert may_use(replace(BOOKED, spec=replace(SPEC, **booked)), job_of(**fields)) is may


def test_booking_is_called_by_its_id_and_by_its_name_while_it_has_not_ended(world: Booked) -> None:
    over = replace(BOOKED, id="b0", state=BookingState.OVER)
    other = replace(BOOKED, id="b2", spec=replace(SPEC, name="b1"))
    world.state.calendar.bookings |= {"b0": over, "b2": other, "b1": BOOKED}
    assert [booking_called(world.state, name) for name in ("b0", "b1", "exam", "gone")] == [
        over,
        BOOKED,
        BOOKED,
        None,
    ]
    del world.state.calendar.bookings["b1"]
    assert (booking_called(world.state, "b1"), booking_called(world.state, "exam")) == (other, None)


def test_job_whose_booking_has_ended_never_starts_again(world: Booked) -> None:
    world.state.calendar.bookings = {"b0": replace(BOOKED, id="b0", state=BookingState.OVER), "b1": BOOKED}
    said = {
        name: booking_over(world.state, job_of(booking=name)) for name in ("b0", "b1", "exam", "gone", None)
    }
    over = "its booking b0 has ended", "its booking gone has ended"
    assert said == {"b0": over[0], "b1": "", "exam": "", "gone": over[1], None: ""}


FAULTS = {
    "none asked for": ({"queue": "x"}, ()),
    "one that it may use": ({"booking": "b1"}, ()),
    "none is there": ({"booking": "x"}, (("/booking", "there is no booking x, or it has ended"),)),
    "it has ended": ({"booking": "b0"}, (("/booking", "there is no booking b0, or it has ended"),)),
    "for others": (
        {"booking": "b1", "queue": "x"}, (("/booking", "booking b1 is for other queues, or for other users"),),
    ),
    "a share": (
        {"booking": "b1", "gpu_milli": 500},
        (("/gpus", "must be whole GPUs, at least one, for a job with a booking"),),
    ),
    "without GPUs, of none": (
        {"booking": "x", "gpus": 0},
        (
            ("/booking", "there is no booking x, or it has ended"),
            ("/gpus", "must be whole GPUs, at least one, for a job with a booking"),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "faults"), FAULTS.values(), ids=FAULTS)
def test_booking_that_a_job_asks_for_is_checked(
    world: Booked, fields: dict[str, Any], faults: tuple[tuple[str, str], ...]
) -> None:
    users = replace(BOOKED, spec=replace(SPEC, users=("bob",)))
    world.state.calendar.bookings = {"b0": replace(BOOKED, id="b0", state=BookingState.OVER), "b1": users}
    asked = job_of(**fields).spec
    if not faults:
        check_booking(world.state, asked, "")
        check_booking(world.state, replace(asked, user=None), "bob")
        return
    with pytest.raises(NotAccepted) as refused:
        check_booking(world.state, asked, "")
    assert refused.value.faults == faults


def test_bookings_stand_by_their_begin_and_id_without_those_that_ended(world: Booked) -> None:
    early = replace(BOOKED, id="z", begins=BEGINS - 1)
    over = replace(BOOKED, id="b0", state=BookingState.FAILED)
    second = replace(ACTIVE, id="b2")
    world.state.calendar.bookings = {each.id: each for each in (second, over, BOOKED, early)}
    assert unfinished(world.state) == [early, BOOKED, second]


OWNERS = {
    "its own queue": ("a/b", "p", True, "a/b"),
    "the next above it": ("a/b/c", "p", True, "a/b"),
    "by hours alone": ("a/d", "p", True, "a/d"),
    "of another pool": ("a/b", "q", True, "a"),
    "of a pool without guarantees": ("a/b", "r", True, ""),
    "not out of a guarantee": ("a/b", "p", False, ""),
    "of a queue that is not there": ("x", "p", True, ""),
}


@pytest.mark.parametrize(("queue", "pool", "of_guarantee", "owner"), OWNERS.values(), ids=OWNERS)
def test_booking_is_taken_out_of_the_nearest_guarantee(
    queue: str, pool: str, of_guarantee: bool, owner: str
) -> None:
    p, q = {"p": Guarantee(1000)}, {"q": Guarantee(1000)}
    night = Hours("22:00", "06:00", guarantee_gpus=p), Hours("06:00", "07:00")
    document = QueueDocument(
        queues={"a": QueueSpec(guarantee_gpus=q), "a/b": QueueSpec(guarantee_gpus=p), "a/b/c": QueueSpec(),
                "a/d": QueueSpec(hours=night)},
    )  # fmt: skip
    asked = replace(SPEC, queue=queue, pool=pool, from_guarantee=of_guarantee)
    assert owner_in(document, asked) == owner


def test_jobs_on_a_booking_are_told_apart(world: Booked) -> None:
    mine, other = running(world, "mine", "n1-0", "n1-1"), running(world, "other", "n1-2", queue="x")
    state, three = (
        world.state,
        replace(ACTIVE, places=(replace(PLACES[0], gpus=(*PLACES[0].gpus, GpuId("n1-2"))),)),
    )
    state.calendar.bookings = {"b1": three}
    assert holders_of(state, map(GpuId, ("n1-0", "n1-2", "n1-3"))) == {"n1-0": mine, "n1-2": other}
    assert users_of(state, three) == {"n1-0": mine, "n1-1": mine}
    assert (jobs_of(state, three), others_on(state, three, three.gpus)) == ([mine], [other])
    assert (booked_for(state, mine), booked_for(state, other)) == (three, None)
    state.calendar.bookings = {"b1": replace(three, state=BookingState.PREPARING)}
    assert booked_for(state, mine) is None
    state.calendar.bookings = {"b0": replace(three, id="b0", places=()), "b1": three}
    assert booked_for(state, mine) == three
    assert booked_for(state, replace(mine, state=JobState.PENDING)) is None


def test_jobs_that_name_a_booking_are_those_that_have_not_ended(world: Booked) -> None:
    jobs = [
        job_of("a", booking="exam"), job_of("b", booking="b1"), job_of("c"), job_of("d", booking="x"),
        job_of("e", booking="exam", state=JobState.FINISHED),
    ]  # fmt: skip
    world.state.work.jobs |= {job.id: job for job in jobs}
    assert named_jobs(world.state, BOOKED) == jobs[:2]


def test_provisional_nodes_are_needed_soon_ten_seconds_before() -> None:
    assert [Provisional(next_at=100.0).is_soon(now) for now in (89.9, 90.0, 101.0)] == [False, True, True]


@pytest.mark.parametrize(
    ("given_s", "asked_s", "notice_s"),
    [(None, None, 0.0), (None, 30.0, 30.0), (None, 1e9, 3600.0), (60.0, None, 60.0), (60.0, 30.0, 30.0),
     (60.0, 90.0, 60.0), (0.0, 30.0, 0.0)],
)  # fmt: skip
def test_lead_of_a_job_is_its_notice_and_its_grace(
    world: Booked, given_s: float | None, asked_s: float | None, notice_s: float
) -> None:
    queues = {"exam": QueueSpec(notice_s=given_s), "exam/x": QueueSpec()}
    world.feed(ev.QueuesChanged(QueueDocument(queues=queues), 0))
    settings = world.settings.changed(most_notice_s=3600.0)
    asks = job_of(queue="exam/x", notice_s=asked_s, kill_grace_s=7.0)
    assert notice_of(world.state, settings, asks) == notice_s
    assert lead_of(world.state, settings, asks) == notice_s + 7.0


WAITS = {
    "none": (None, None, None),
    "of one that is active": ("b1", None, "it runs on the GPUs of booking b1 alone, and they are in use"),
    "of one that begins": (
        "b2", Wait(Stage.BOOKING, "its booking exam begins Tue 2026-11-24 13:00", float(BEGINS)), None,
    ),
    "of one that has ended": ("b0", Wait(Stage.BOOKING, "booking b0 has ended"), None),
    "of one that is not there": ("x", Wait(Stage.BOOKING, "booking x has ended"), None),
}  # fmt: skip


@pytest.mark.parametrize(("name", "wait", "in_use"), WAITS.values(), ids=WAITS)
def test_job_waits_for_its_booking(
    world: Booked, name: str | None, wait: Wait | None, in_use: str | None
) -> None:
    over = replace(BOOKED, id="b0", state=BookingState.OVER)
    world.state.calendar.bookings = {"b0": over, "b1": ACTIVE, "b2": replace(BOOKED, id="b2")}
    barriers = Backlog(world.state, world.settings, NOON, lambda _: NOTHING).barriers
    asks = job_of(booking=name)
    assert barriers.wait_of(asks) == wait
    assert barriers.rule_against(asks) == (wait if in_use is None else Wait(Stage.BOOKING, in_use))
    assert barriers.shortages(asks) == {}


TIMES = {
    "without a limit, told in time": ({"kill_grace_s": 10.0}, {}, ENDS - 20.5, True),
    "without a limit, told at once": ({"kill_grace_s": 10.0}, {}, ENDS - 20.0, False),
    "within its limit": ({"kill_grace_s": 10.0, "timeout_s": 5.0}, {}, ENDS - 15.0, True),
    "beyond its limit": ({"kill_grace_s": 10.0, "timeout_s": 5.0}, {}, ENDS - 14.5, False),
    "that goes on": ({"kill_grace_s": 10.0, "preemptible": True}, {"overrun": True}, ENDS - 1.0, True),
    "that is not let go on": ({"kill_grace_s": 10.0, "preemptible": True}, {}, ENDS - 1.0, False),
    "that is not preemptible": ({"kill_grace_s": 10.0}, {"overrun": True}, ENDS - 1.0, False),
    "of another queue": ({"queue": "x"}, {}, float(BEGINS), False),
}


@pytest.mark.parametrize(("fields", "booked", "now", "starts"), TIMES.values(), ids=TIMES)
def test_job_starts_on_a_booking_that_leaves_it_time(
    world: Booked, fields: dict[str, Any], booked: dict[str, Any], now: float, starts: bool
) -> None:
    mine = replace(ACTIVE, spec=replace(SPEC, **booked))
    world.state.calendar.bookings = {"b0": replace(BOOKED, id="b0"), "b1": mine}
    bookings = Bookings(world.state, world.settings, now)
    assert bookings.active_for(job_of(**fields)) == ((mine,) if starts else ())
    assert Bookings(Booked().state, world.settings, now).active_for(job_of(**fields)) == ()


KEPT = Reservation(JobId(""), "exam", Resources(gpus=2), float(BEGINS), booking="b1")
IN_WAY = {
    "of nothing that is booked": (BOOKED, "x", {"queue": "x"}, inf, False),
    "over before": (BOOKED, "b1", {"queue": "x"}, float(BEGINS), False),
    "without an end": (BOOKED, "b1", {"queue": "x"}, inf, True),
    "that may use it": (BOOKED, "b1", {}, inf, False),
    "told before": (BOOKED, "b1", {"queue": "x", "preemptible": True, "kill_grace_s": 10.0}, inf, False),
    "told too late": (BOOKED, "b1", {"queue": "x", "preemptible": True, "kill_grace_s": HOUR / 2}, inf, True),
    "of an active one": (ACTIVE, "b1", {"queue": "x", "preemptible": True}, 0.0, True),
    "of an active one that it may use": (ACTIVE, "b1", {}, inf, False),
    "of an active one without time": (ACTIVE, "b1", {"kill_grace_s": float(HOUR)}, inf, True),
}


@pytest.mark.parametrize(("booking", "kept", "fields", "ends_at", "is_in_way"), IN_WAY.values(), ids=IN_WAY)
def test_job_is_in_the_way_of_a_booking(
    world: Booked, booking: Booking, kept: str, fields: dict[str, Any], ends_at: float, is_in_way: bool
) -> None:
    world.state.calendar.bookings = {"b1": booking}
    booked = Bookings(world.state, world.settings, NOON)
    assert booked.in_way(job_of(**fields), ends_at, replace(KEPT, booking=kept)) is is_in_way


def test_part_of_a_node_is_in_proportion_to_its_gpus() -> None:
    gpus = tuple(GpuId(f"g{i}") for i in range(4))
    node = NodeCapacity(
        AgentId("n1"), "n1.example", Resources(cpus=6, mem_mib=1000, gpus=4), (), {}, installed=gpus,  # type: ignore[arg-type]
        given_back=Resources(cpus=2, mem_mib=-2000),
    )  # fmt: skip
    assert part_of(node, 1) == Resources(cpus=2, mem_mib=0)
    assert part_of(node, 4) == Resources(cpus=8, mem_mib=0)
    assert part_of(node, 8) == Resources(cpus=8, mem_mib=0)
    assert part_of(replace(node, installed=()), 0) == Resources()


def test_job_ends_by_its_time_limit_from_its_last_start_on(world: Booked) -> None:
    limited = running(world, "a", "n1-0", timeout_s=50.0, kill_grace_s=10.0)
    endless, waits = running(world, "b", "n1-1"), job_of("c", timeout_s=50.0)
    world.state.work.jobs[waits.id] = waits
    ends = [ends_by_limit(world.state, NOON + 59.5, job) for job in (limited, endless, waits)]
    assert ends == [NOON + 60.0, inf, inf]
    assert ends_by_limit(world.state, NOON + 60.0, limited) == inf, "it should have ended already"
    late = replace(world.state.work.tasks[TaskId("a.1")], started_at=None)
    world.state.set_task(late)
    assert ends_by_limit(world.state, NOON + 100.0, limited) == NOON + 160.0


def test_jobs_on_places_are_those_that_may_still_be_there_at_the_begin(world: Booked) -> None:
    running(world, "mine", "n1-0")
    stays = running(world, "stays", "n1-1", queue="x")
    places = replace(PLACES[0], gpus=(GpuId("n1-0"), GpuId("n1-1"), GpuId("n1-2"), GpuId("n1-3")))
    leaves = running(world, "leaves", "n1-2", queue="x", timeout_s=HOUR - 10.0, kill_grace_s=10.0)
    late = running(world, "late", "n1-3", queue="x", timeout_s=HOUR - 9.0, kill_grace_s=10.0)
    turn = turn_of(world)
    assert on_places(turn, BOOKED, [places]) == {"stays": stays, "late": late}
    assert leaves.id in on_places(turn, replace(BOOKED, begins=BEGINS - 1), [places])
    assert on_places(turn, BOOKED, []) == {}


def test_jobs_are_told_their_lead_before_the_begin_and_the_end(world: Booked) -> None:
    turn, job = turn_of(world), job_of(kill_grace_s=10.0, notice_s=20.0, preemptible=True)
    assert (notice_at(turn, BOOKED, job), end_notice_at(turn, BOOKED, job)) == (BEGINS - 30.0, ENDS - 30.0)
    over = replace(BOOKED, spec=replace(SPEC, overrun=True))
    assert end_notice_at(turn, over, job) == inf
    named = job_of(booking="b1", preemptible=True)
    assert [goes_on(over, each) for each in (job, named, job_of())] == [True, False, False]
    assert not goes_on(BOOKED, job)


def test_booking_is_to_begin_in_its_time_alone(world: Booked) -> None:
    moments = BEGINS - 1, BEGINS, ENDS - 1, ENDS
    assert [is_to_begin(turn_of(world, now), BOOKED) for now in moments] == [False, True, True, False]
    assert not is_to_begin(turn_of(world, BEGINS), ACTIVE)


def test_offers_are_waited_for_two_seconds_after_a_subscription(world: Booked) -> None:
    since = world.state.mesos.registered_at
    moments = since - 1, since, since + 1.9, since + 2.0
    assert [offered_at(turn_of(world, now)) for now in moments] == [None, since + 2.0, since + 2.0, None]


@pytest.mark.parametrize(
    ("of", "has", "words"),
    [(1, 1, ""), (1, 0, "its node is lacking"), (2, 2, ""), (2, 1, "1 of its 2 nodes is lacking"),
     (3, 1, "2 of its 3 nodes are lacking")],
)  # fmt: skip
def test_booking_says_how_many_nodes_it_lacks(of: int, has: int, words: str) -> None:
    assert lacking_words(replace(BOOKED, spec=replace(SPEC, nodes=of), places=PLACES * has)) == words


BEGUN = "it has begun, and lasts until Tue 2026-11-24 14:00"


@pytest.mark.parametrize(
    ("places", "told", "message"),
    [(PLACES, False, BEGUN), ((), True, f"{BEGUN}; its node is lacking"),
     ((), False, f"{BEGUN}; its nodes are chosen as soon as Mesos offers any")],
)  # fmt: skip
def test_booking_that_begins_counts_from_then_on(
    world: Booked, places: tuple[Place, ...], told: bool, message: str
) -> None:
    before = replace(BOOKED, state=BookingState.PREPARING, places=places, told=told)
    now = BEGINS + 3.0
    begun = begin(turn_of(world, now), before)
    assert begun == replace(before, state=BookingState.ACTIVE, message=message, counted_at=now)
    assert world.state.calendar.bookings["b1"] == begun


IDLE = {
    "not counted yet": (replace(ACTIVE, counted_at=0.0, idle_gpu_ms=7), BEGINS + 10.0, 7),
    "all of it": (ACTIVE, BEGINS + 10.0, 20_000),
    "a part of it": (replace(ACTIVE, used_gpus=1, idle_gpu_ms=5), BEGINS + 10.0005, 5 + 10_000),
    "none of it": (replace(ACTIVE, used_gpus=3), BEGINS + 10.0, 0),
    "until its end": (ACTIVE, ENDS + 50.0, 2 * HOUR * 1000),
    "from its begin on": (replace(ACTIVE, counted_at=BEGINS - 50.0), BEGINS + 10.0, 20_000),
    "from when it was counted": (replace(ACTIVE, counted_at=BEGINS + 4.0), BEGINS + 10.0, 12_000),
    "by a clock that was set back": (
        replace(ACTIVE, counted_at=BEGINS + 90.0, idle_gpu_ms=3),
        BEGINS + 10.0,
        3,
    ),
}


@pytest.mark.parametrize(("booking", "now", "idle_ms"), IDLE.values(), ids=IDLE)
def test_booking_knows_what_stood_idle(booking: Booking, now: float, idle_ms: int) -> None:
    assert idle_gpu_ms(booking, now) == idle_ms
    counted_at = now if booking.counted_at else 0.0
    assert counted_up(booking, now) == replace(booking, idle_gpu_ms=idle_ms, counted_at=counted_at)


def test_use_of_a_booking_is_counted_when_it_changes(world: Booked) -> None:
    running(world, "mine", "n1-0")
    booked = replace(ACTIVE, state=BookingState.PREPARING)
    assert count_used(turn_of(world, BEGINS + 9.0), booked) is booked
    first = count_used(turn_of(world, BEGINS + 9.0), ACTIVE)
    assert first == replace(
        ACTIVE, used_gpus=1, counted_at=BEGINS + 9.0, used_at=BEGINS + 9.0, idle_gpu_ms=18_000
    )
    assert count_used(turn_of(world, BEGINS + 20.0), first) is first
    ended = replace(
        world.state.work.tasks[TaskId("mine.1")], state=TaskState.FINISHED, ended_at=BEGINS + 20.0
    )
    world.state.set_task(ended)
    free = count_used(turn_of(world, BEGINS + 20.0), first)
    assert free == replace(
        first, used_gpus=0, counted_at=BEGINS + 20.0, used_at=BEGINS + 20.0, idle_gpu_ms=29_000
    )
    new = replace(ACTIVE, counted_at=0.0)
    assert count_used(turn_of(world, BEGINS + 9.0), new) == replace(new, counted_at=BEGINS + 9.0)


PURGED = {
    "never": ({"purge_after_s": 0}, {}, None),
    "in use": ({}, {"used_gpus": 1}, None),
    "without nodes": ({}, {"places": ()}, None),
    "from its last use": ({}, {"counted_at": BEGINS + 50.0}, BEGINS + 950.0),
    "from its begin": ({}, {"counted_at": BEGINS - 50.0}, BEGINS + 900.0),
}


@pytest.mark.parametrize(("booked", "fields", "at"), PURGED.values(), ids=PURGED)
def test_booking_is_given_back_when_nobody_uses_it(
    world: Booked, booked: dict[str, Any], fields: dict[str, Any], at: float | None
) -> None:
    booking = replace(ACTIVE, spec=replace(SPEC, **booked), **fields)
    assert purged_at(turn_of(world), booking) == at
    world.state.started_at = BEGINS + 1000.0
    assert purged_at(turn_of(world), booking) == (None if at is None else BEGINS + 1900.0)


def charged(world: Booked, now: float, **fields: Any) -> list[Closed]:
    turn = turn_of(world, now)
    spec_fields = {"charge": Charge.IDLE, **fields.pop("spec", {})}
    charge(turn, replace(ACTIVE, spec=replace(SPEC, **spec_fields), **fields))
    effects: list[fx.Effect] = turn.effects
    return [each.record for each in every(effects, KeepRecord)]


def test_booking_is_charged_for_what_nobody_used_by_model(world: Booked) -> None:
    document = QueueDocument(
        queues={"exam": QueueSpec()}, gpu_cost={"A100": 3}, pools=(Pool("big", ("A100",)),)
    )
    world.feed(ev.QueuesChanged(document, 0))
    two = (*PLACES, Place(AgentId("n2"), "n2.example", (GpuId("n2-0"), GpuId("n2-1"))))
    (record,) = charged(world, BEGINS + 1000.0, places=two, used_gpus=1, spec={"nodes": 2})
    parts = Part("A100", 1500, 4500), Part("T4", 1500, 1500)
    span = Span(
        TaskId("b1.2026-11-24"), JobId(""), "ann", "exam", "", "", "big", parts, borrowed=False, charge_percent=100,
        begins_ms=BEGINS * 1000,
    )  # fmt: skip
    day = BEGINS // 86_400
    did = tuple(MeasuredWork(day, part.model, idle=1500 * 1_000_000) for part in parts)
    assert record == Closed(span, (BEGINS + 1000) * 1000, 0, 0, SpanEnd.CALENDAR, did)


def test_booking_is_charged_for_no_more_than_it_booked_and_until_its_end(world: Booked) -> None:
    (record,) = charged(world, ENDS + 500.0, idle_gpu_ms=10**12)
    assert record.span.parts == (Part("A100", 2000, 2000),)
    assert record.ends_ms == ENDS * 1000


@pytest.mark.parametrize(
    ("now", "fields"),
    [(BEGINS + 50.0, {"spec": {"charge": Charge.NONE}}), (BEGINS + 50.0, {"used_gpus": 2}),
     (BEGINS + 50.0, {"places": (), "idle_gpu_ms": 5}), (float(BEGINS), {"idle_gpu_ms": 5}),
     (BEGINS - 50.0, {"idle_gpu_ms": 5})],
)  # fmt: skip
def test_booking_is_not_charged_where_nothing_stood_idle(
    world: Booked, now: float, fields: dict[str, Any]
) -> None:
    assert charged(world, now, **fields) == []
