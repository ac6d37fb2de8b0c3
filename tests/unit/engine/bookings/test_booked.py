"""Bookings in the engine: what is started before one begins, who makes room, who runs on it, and how it ends."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.calendar.booked import Booked as Bookings
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.errors import Conflict, NotAccepted
from mesos_gpu.model.bookings.booking import BookingState, Charge, Repeat
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import Budget, Guarantee, Period, QueueDocument, QueueSpec
from mesos_gpu.model.usage import SpanEnd
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.sharing.parts import unshared
from tests.doubles.builders import every, gpu
from tests.unit.engine.bookings.worlds import HOUR, Booked

STOPPABLE = {"preemptible": True, "notice_s": 60.0, "kill_grace_s": 10.0}


@pytest.fixture
def one() -> Booked:
    """A node of four GPUs, booked from one to two o'clock; it is noon."""
    world = Booked()
    world.up("n1", 4)
    world.book()
    return world


def test_booking_keeps_jobs_without_a_time_limit_off_its_nodes_before_it_begins(one: Booked) -> None:
    assert not one.runs(one.run("endless").id)
    assert not one.runs(one.run("long", timeout_s=2.0 * HOUR).id)
    assert one.runs(one.run("short", timeout_s=0.5 * HOUR).id)
    assert one.runs(one.run("stoppable", **STOPPABLE).id)


def test_booking_leaves_other_nodes_open_to_all_jobs(one: Booked) -> None:
    one.up("n2", 4)
    assert one.runs(one.run("endless", gpus=4).id)
    assert one.on("endless") == {f"n2-{i}" for i in range(4)}


def test_booking_chooses_nodes_early_only_when_a_job_needs_notice(one: Booked) -> None:
    one.run("stoppable", gpus=4, **STOPPABLE)
    one.go(HOUR - 72)
    assert one.booking().state is BookingState.BOOKED
    one.go(3)
    assert one.booking().state is BookingState.PREPARING
    (task,) = one.state.work.round_of(one.job("stoppable"))
    assert task.notice is not None
    assert (task.notice.reason, task.notice.why) == (NoticeReason.CALENDAR, "booking exam begins")
    one.go(66)
    assert not one.on("stoppable"), "it has ended before the begin"
    one.go(4)
    assert one.booking().is_active


def test_booking_with_nobody_in_its_way_chooses_nodes_at_its_begin(one: Booked) -> None:
    one.go(HOUR - 2)
    assert one.booking().state is BookingState.BOOKED
    assert one.runs(one.run("blink", timeout_s=1.0, kill_grace_s=0.0).id), "no GPU stands idle before"
    one.go(3)
    assert one.booking().is_active
    assert set(one.booking().gpus) == {f"n1-{i}" for i in range(4)}


def test_booking_takes_jobs_by_name_and_by_queue_and_no_others(one: Booked) -> None:
    one.run("named", queue="exam", booking="exam")
    one.run("other")
    assert not one.runs("named")
    one.go(HOUR + 1)
    one.run("magnetic", queue="exam")
    one.started()
    assert one.on("named")
    assert one.on("magnetic")
    assert not one.on("other")


def test_booking_with_users_takes_jobs_of_these_alone() -> None:
    world = Booked()
    world.up("n1", 4)
    world.book(users=("ann",))
    world.run("ann", queue="exam", user="ann")
    world.run("bob", queue="exam", user="bob")
    world.go(HOUR + 1)
    assert world.runs("ann")
    assert not world.runs("bob")


def test_booking_displaces_the_job_that_loses_the_least_work(one: Booked) -> None:
    one.up("n2", 4)
    one.run("old", gpus=4, **STOPPABLE)
    one.go(1800)
    one.run("young", gpus=4, **STOPPABLE)
    assert one.on("old")
    assert one.on("young")
    one.go(1800 - 60)
    assert [one.state.work.round_of(one.job(name))[0].notice is not None for name in ("old", "young")] == [
        False,
        True,
    ]


@pytest.mark.parametrize(("timeout_s", "node"), [(HOUR - 10.0, "n1"), (HOUR - 9.0, "n2")])
def test_booking_waits_for_no_job_whose_grace_ends_after_its_begin(timeout_s: float, node: str) -> None:
    world = Booked()
    world.up("n1", 4)
    world.run("ends", gpus=4, timeout_s=timeout_s, kill_grace_s=10.0)
    world.up("n2", 4)
    world.book()
    world.go(1)
    provisional: Provisional | None = world.state.calendar.provisional
    assert provisional is not None
    assert [place.agent_id for place in provisional.places["exam"]] == [node]


def test_booking_replaces_a_node_that_is_lost_before_its_begin(one: Booked) -> None:
    one.up("n2", 4)
    one.run("one", gpus=4, **STOPPABLE)
    one.run("two", gpus=4, **STOPPABLE)
    one.go(HOUR - 65)
    (place,) = one.booking().places
    one.feed(ev.AgentLost(place.agent_id))
    one.go(66)
    (again,) = one.booking().places
    assert again.agent_id != place.agent_id
    assert "is replaced by" in one.booking().message or one.booking().is_active
    one.go(15)
    assert one.run("exam", queue="exam", gpus=4).state is JobState.RUNNING


def test_booking_without_a_node_left_fails_with_a_reason_for_its_owner(one: Booked) -> None:
    one.feed(ev.AgentLost(AgentId("n1")))
    one.go(HOUR + 2)
    assert one.booking().told
    assert "its node is lacking" in one.booking().message
    one.go(HOUR)
    assert one.booking().state is BookingState.FAILED
    assert one.booking().message == "its time is over, and there were no nodes for it"


def test_booking_end_comes_after_the_notice_of_its_jobs(one: Booked) -> None:
    one.go(HOUR + 1)
    one.run("exam", queue="exam", gpus=4, kill_grace_s=10.0, notice_s=60.0)
    assert one.on("exam")
    one.go(HOUR - 75)
    (task,) = one.state.work.round_of(one.job("exam"))
    assert task.notice is None
    one.go(10)
    (task,) = one.state.work.round_of(one.job("exam"))
    assert task.notice is not None
    assert task.notice.why == "booking exam ends"
    one.go(70)
    assert one.booking().state is BookingState.OVER
    assert one.booking().message == "its time is over"
    one.go(5)
    assert one.runs("exam"), "of its queue, it goes on where there is room for it"


def test_booking_with_overrun_lets_preemptible_jobs_go_on_as_borrowers() -> None:
    world = Booked()
    world.up("n1", 4)
    world.book(overrun=True)
    world.go(HOUR + 1)
    world.run("stays", queue="exam", **STOPPABLE)
    world.run("ends", queue="exam", notice_s=60.0)
    world.go(HOUR)
    assert world.job("stays").started_at is not None
    assert all(task.notice is None for task in world.state.work.round_of(world.job("stays")))
    assert world.job("ends").launches == 2, (
        "what cannot be taken back was ended, and starts again like others"
    )


def test_jobs_that_name_a_booking_end_with_it(one: Booked) -> None:
    one.run("waits", queue="exam", booking="exam", gpus=4)
    one.run("too", queue="exam", booking="exam", gpus=4)
    one.go(2 * HOUR + 1)
    one.go(60)
    assert one.job("too").state is JobState.KILLED
    assert "its booking exam has ended" in one.job("too").message


def test_unused_booking_is_given_back_and_charged_by_its_rule() -> None:
    world = Booked()
    world.up("n1", 4)
    world.book(purge_after_s=600, charge=Charge.IDLE)
    world.run("waits")
    effects = world.go(HOUR + 602)
    assert world.booking().state is BookingState.RETURNED
    assert "no job used it for 600 s" in world.booking().message
    assert world.runs("waits")
    (record,) = [each.record for each in every(effects, KeepRecord) if each.record.reason is SpanEnd.CALENDAR]
    (part,) = record.span.parts
    held_ms = part.gpu_milli * (record.ends_ms - record.span.begins_ms) / 1000
    assert held_ms == pytest.approx(4 * 600_000, rel=0.01)
    assert (record.span.queue, record.span.owner) == ("exam", "ann")


def test_budgets_pay_what_a_booking_is_charged_at_its_end() -> None:
    world = Booked()
    daily, weekly = Budget(2 * 1000 * HOUR, Period.DAY, warn_at=(25,)), Budget(1000 * HOUR, Period.WEEK)
    tree = {
        "exam": QueueSpec(budget=daily, user_budgets={"ann": weekly, "bob": weekly}),
        "other": QueueSpec(),
    }
    world.feed(ev.QueuesChanged(QueueDocument(queues=tree), 0))
    world.up("n1", 4)
    world.book(purge_after_s=600, charge=Charge.IDLE)
    world.go(HOUR + 500)
    used = {(each.queue, each.user): each.used for each in world.state.ledger.budget_uses.values()}
    assert set(used.values()) == {0}
    world.go(110)
    assert world.booking().state is BookingState.RETURNED
    used = {(each.queue, each.user): each.used for each in world.state.ledger.budget_uses.values()}
    assert used["exam", "*"] == used["exam", "ann"] == pytest.approx(4 * 600 * 1_000_000, rel=0.01)
    assert used.get(("exam", "bob"), 0) == 0
    assert {each.told_percent for each in world.state.ledger.budget_uses.values() if each.user == "*"} == {25}


def test_booking_purge_counts_from_its_last_use(one: Booked) -> None:
    one.go(HOUR + 1)
    one.run("short", queue="exam", timeout_s=60.0)
    one.go(800)
    (task,) = one.state.work.round_of(one.job("short"))
    one.status(task.id, "TASK_FINISHED", agent="n1")
    one.go(800)
    assert one.booking().is_active
    one.go(110)
    assert one.booking().state is BookingState.RETURNED


def test_repeated_booking_keeps_its_local_time_when_winter_comes() -> None:
    world = Booked(now=1_792_828_800.0)  # Sat 2026-10-24 10:00 in Vienna
    world.up("n1", 4)
    first = world.book(begins="11:00", zone="Europe/Vienna", repeat=Repeat.DAILY)
    world.go(2 * HOUR + 2)
    again = world.booking()
    assert (again.state, again.last, again.day) == (BookingState.BOOKED, BookingState.RETURNED, "2026-10-25")
    assert again.begins - first.begins == 25 * HOUR, "that night has an hour more"
    world.now = again.begins - 1.0
    world.go(2)
    assert world.booking().is_active


@pytest.mark.parametrize("zone", ["x" * 300, "Europe", "Mars/Base"])
def test_booking_with_unknown_zone_is_refused(one: Booked, zone: str) -> None:
    with pytest.raises(NotAccepted, match="must be a zone of IANA's database"):
        one.book("other", zone=zone)


def test_cancelled_booking_withdraws_the_notices_it_gave(one: Booked) -> None:
    one.run("stoppable", gpus=4, **STOPPABLE)
    one.go(HOUR - 65)
    one.feed(ev.BookingCancelled("exam"))
    (task,) = one.state.work.round_of(one.job("stoppable"))
    assert task.notice is not None
    assert not task.notice.stands
    one.go(120)
    assert one.on("stoppable")
    assert one.booking().state is BookingState.CANCELLED


def test_booking_cancelled_while_it_lasts_gives_its_jobs_their_notice(one: Booked) -> None:
    one.go(HOUR + 1)
    one.run("exam", queue="exam", notice_s=60.0)
    one.feed(ev.BookingCancelled("exam"))
    (task,) = one.state.work.round_of(one.job("exam"))
    assert task.notice is not None
    assert task.notice.reason is NoticeReason.CALENDAR


def test_booking_survives_a_restart_before_and_while_it_lasts(one: Booked) -> None:
    one.run("stoppable", gpus=4, **STOPPABLE)
    one.go(HOUR - 65)
    again = one.restarted()
    assert again.booking() == one.booking()
    again.go(66)
    assert again.booking().is_active
    assert not again.on("stoppable")
    later = again.restarted()
    later.go(2)
    assert later.booking().is_active
    assert later.run("exam", queue="exam", gpus=4).state is JobState.RUNNING


def test_bookings_at_one_time_have_nodes_of_their_own() -> None:
    world = Booked()
    world.up("n1", 4)
    world.up("n2", 4)
    world.book("a", gpus=2)
    world.book("b", gpus=2)
    world.book("c", gpus=4)
    world.go(HOUR + 1)
    chosen = [world.booking(name).gpus for name in "abc"]
    assert sorted(map(len, chosen)) == [2, 2, 4]
    assert len({gpu for each in chosen for gpu in each}) == 8


def test_job_in_its_booking_is_not_preempted_for_others(one: Booked) -> None:
    one.go(HOUR + 1)
    one.run("exam", queue="exam", gpus=4, preemptible=True)
    one.run("urgent", gpus=4, priority=100)
    one.go(120)
    assert one.on("exam")
    assert all(task.notice is None for task in one.state.work.round_of(one.job("exam")))


def test_booking_changed_in_length_while_it_lasts_keeps_its_nodes(one: Booked) -> None:
    one.go(HOUR + 1)
    spec = one.booking().spec
    one.feed(ev.BookingChanged("exam", replace(spec, lasts_s=2 * HOUR)))
    assert one.booking().ends == one.booking().begins + 2 * HOUR
    assert one.booking().places
    with pytest.raises(Conflict, match="has begun"):
        one.feed(ev.BookingChanged("exam", replace(spec, gpus=2)))


def test_booking_is_not_extended_on_cards_of_the_next_one(one: Booked) -> None:
    one.up("n2", 4)
    one.run("endless", gpus=4, preemptible=False)
    (there,) = {gpu.split("-")[0] for gpu in one.on("endless")}
    one.go(HOUR + 1)
    one.run("mine", queue="exam", gpus=4, preemptible=True, notice_s=600)
    one.book("next", begins="14:00", queue="other")
    one.go(HOUR - 300)
    first, second = one.booking(), one.booking("next")
    assert second.state.has_nodes
    assert set(first.gpus) == set(second.gpus)
    assert there not in {place.hostname.split(".")[0] for place in first.places}
    with pytest.raises(Conflict, match="next has its GPUs from"):
        one.feed(ev.BookingChanged("exam", replace(first.spec, lasts_s=2 * HOUR)))
    assert one.booking() == first
    one.feed(ev.BookingChanged("exam", replace(first.spec, lasts_s=HOUR - 60)))
    assert one.booking().ends == first.ends - 60


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"booking": "none", "queue": "exam"}, "/booking"),
        ({"booking": "exam", "queue": "other"}, "/booking"),
        ({"booking": "exam", "queue": "exam", "gpus": 0}, "/gpus"),
    ],
)
def test_job_that_could_never_use_the_booking_that_it_names_is_refused(
    one: Booked, fields: dict[str, object], place: str
) -> None:
    with pytest.raises(NotAccepted) as refused:
        one.submit("j", **{"gpus": 1, **fields})
    assert [each for each, _ in refused.value.faults] == [place]


def test_explanation_names_the_booking_of_a_node_and_its_times(one: Booked) -> None:
    one.run("endless", gpus=4)
    why = why_of(one.state, one.settings, one.now, one.job("endless"))
    assert [each.reasons for each in why.nodes] == [
        ("is booked from Tue 2026-11-24 13:00 to Tue 2026-11-24 14:00 (UTC)",)
    ]
    one.run("named", queue="exam", booking="exam")
    why = why_of(one.state, one.settings, one.now, one.job("named"))
    assert "its booking exam begins Tue 2026-11-24 13:00" in why.summary
    assert why.estimate is not None
    assert why.estimate.at == one.booking().begins


def test_booking_in_a_tree_has_room_made_and_its_jobs_need_no_seat() -> None:
    world = Booked()
    owed = {"default": Guarantee(4000)}
    tree = {
        "exam": QueueSpec(),
        "ops": QueueSpec(guarantee_gpus=owed, notice_s=60.0),
        "dev": QueueSpec(notice_s=60.0),
    }
    world.feed(ev.QueuesChanged(QueueDocument(queues=tree), 0))
    world.up("n1", 4)
    world.up("n2", 4)
    world.book()
    world.run("dev1", queue="dev", gpus=4, preemptible=True, kill_grace_s=10.0)
    world.run("dev2", queue="dev", gpus=4, preemptible=True, kill_grace_s=10.0)
    world.run("exam", queue="exam", booking="exam", gpus=4)
    world.go(HOUR + 5)
    assert world.on("exam"), "it is not preemptible, and its queue is guaranteed nothing"
    world.submit("ops", queue="ops", gpus=4, cpus=0.1)
    world.go(200)
    assert world.on("ops")
    assert world.on("exam"), "what is owed to others is taken from who borrows"


def test_booking_of_more_than_is_free_of_guarantees_is_refused() -> None:
    world = Booked()
    owed = {"default": Guarantee(4000)}
    world.feed(
        ev.QueuesChanged(
            QueueDocument(queues={"exam": QueueSpec(), "ops": QueueSpec(guarantee_gpus=owed)}), 0
        )
    )
    world.up("n1", 4)
    said = (
        "0 GPUs are not guaranteed, and 4 would be booked: queue ops is guaranteed 4; a queue can book "
        "part of its own guarantee with --from-guarantee"
    )
    with pytest.raises(NotAccepted) as refused:
        world.book()
    assert [each.split(" 13:00 ")[-1] for _, each in refused.value.faults] == [said]
    world.book(queue="ops", from_guarantee=True)
    assert world.booking().state is BookingState.BOOKED


def test_queue_with_a_role_of_its_own_uses_what_is_booked_from_offers_to_that_role() -> None:
    world = Booked(role="gpu", role_of={"exam": "gpu-exam"})
    world.up("n1", 4)
    world.book()
    world.run("dev", queue="dev", gpus=4, **STOPPABLE)
    world.run("exam", queue="exam", booking="exam", gpus=4)
    world.run("later", queue="dev", gpus=4)
    world.go(HOUR + 5)
    assert world.booking().is_active
    assert set(world.booking().gpus) == {f"n1-{i}" for i in range(4)}
    assert not any(map(world.on, ("dev", "exam", "later"))), "it is offered to the other role"
    world.offered_to = "gpu-exam"
    world.go(40)  # the offer to the other role is given back first
    assert world.on("exam") == set(map(str, world.booking().gpus))


def test_booking_replaces_a_card_that_falls_ill() -> None:
    world = Booked()
    world.up("n1", 4)
    world.book(gpus=2)
    world.go(HOUR + 1)
    ill = world.booking().gpus[0]
    sound = [gpu(f"n1-{i}") for i in range(4)]
    world.report("n1", *(gpu(g.id, health=Health.SICK) if g.id == ill else g for g in sound))
    world.go(2)
    assert ill not in world.booking().gpus
    assert len(world.booking().gpus) == 2


def test_bookings_never_share_a_gpu_in_any_effect(one: Booked) -> None:
    effects = one.go(HOUR + 1)
    assert not every(effects, fx.Kill)


def test_job_that_is_stopped_after_its_booking_was_cancelled_does_not_wait_for_it_for_ever(
    one: Booked,
) -> None:
    one.go(HOUR + 1)
    one.run("named", queue="exam", booking="exam", gpus=4, notice_s=30.0)
    assert one.runs("named")
    one.feed(ev.BookingCancelled("exam"))
    assert one.runs("named")
    one.go(40)
    assert one.job("named").state is JobState.KILLED
    assert one.job("named").message == "its booking exam has ended"


def test_notice_of_a_booking_made_late_has_its_whole_length() -> None:
    world = Booked()
    world.up("n1", 4)
    world.run("other", gpus=4, preemptible=True, notice_s=600.0)
    world.book(begins="12:05")
    world.go(2)
    (task,) = world.state.work.round_of(world.job("other"))
    assert task.notice is not None
    assert task.notice.until - task.notice.at == 600.0


def test_notice_of_a_booking_shortened_late_has_its_whole_length(one: Booked) -> None:
    one.go(HOUR + 1)
    one.run("mine", queue="exam", gpus=4, notice_s=600.0)
    one.go(10)
    one.feed(ev.BookingChanged("exam", replace(one.booking().spec, lasts_s=120)))
    one.go(2)
    (task,) = one.state.work.round_of(one.job("mine"))
    assert task.notice is not None
    assert task.notice.until - task.notice.at == 600.0


def test_booking_keeps_its_nodes_when_a_clock_is_set_back_before_its_begin(
    one: Booked,
) -> None:
    one.go(HOUR + 5)
    assert one.booking().is_active
    one.now -= 900
    assert not one.runs(one.run("stoppable", **STOPPABLE).id)
    assert not one.runs(one.run("short", timeout_s=60.0).id)


def test_gang_starts_on_what_is_booked_up_to_the_limit_of_its_queue() -> None:
    world = Booked()
    world.up("n1", 4)
    world.feed(ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec(limit_gpus={"default": 2000})}), 0))
    world.book()
    world.go(HOUR + 5)
    assert world.runs(world.run("gang", queue="exam", booking="exam", tasks=2).id)


def test_job_that_names_a_booking_ends_with_it_on_a_replaced_node(one: Booked) -> None:
    one.go(HOUR + 5)
    one.run("named", queue="exam", booking="exam", notice_s=20.0)
    one.up("n2", 4)
    one.feed(ev.DrainRequested(Target.NODE, "n1.example", "why", "ann"))
    one.go(5)
    assert [place.hostname for place in one.booking().places] == ["n2.example"]
    assert one.runs("named"), "a drain without a deadline ends nothing"
    one.go(HOUR + 60)
    assert one.job("named").state is JobState.KILLED


def test_job_that_has_not_started_is_in_the_way_however_short_its_time_limit(one: Booked) -> None:
    """The limit begins when it starts, which may be after the begin."""
    one.submit("stuck", gpus=4, cpus=0.1, timeout_s=60.0, preemptible=True, kill_grace_s=5.0)
    one.offer_again()
    one.go(HOUR + 5)
    assert one.booking().is_active
    (task,) = one.state.work.round_of(one.job("stuck"))
    assert task.evicted == "booking exam begins", "of who has not started nothing is lost"


def test_booking_does_not_give_a_shared_card_out_as_a_whole(one: Booked) -> None:
    one.go(HOUR + 5)
    one.submit("named", queue="exam", booking="exam", gpus=4, cpus=0.1)
    cards = one.state.cluster.nodes[AgentId("n1")].gpus
    free = NodeCapacity(AgentId("n1"), "n1.example", Resources(gpus=4), cards, parts=(unshared(cards[0]),))
    here = Bookings(one.state, one.settings, one.now).only(one.job("named"), {AgentId("n1"): free})
    assert [gpu.id for gpu in here[AgentId("n1")].gpus] == ["n1-1", "n1-2", "n1-3"]


@pytest.mark.parametrize(
    ("repeat", "until", "told"),
    [
        (Repeat.DAILY, "2026-11-24", ("/until", "has no time left by then")),
        (Repeat.NONE, "", ("/from", "has passed: 2026-11-24T12:00 (UTC)")),
        (Repeat.NONE, "2026-11-23", ("/until", "has no time left by then")),
    ],
)
def test_booking_whose_only_time_has_passed_is_refused(
    repeat: Repeat, until: str, told: tuple[str, str]
) -> None:
    world = Booked()
    world.up("n1", 4)
    world.now += 60
    with pytest.raises(NotAccepted) as refused:
        world.book(begins="2026-11-24T12:00", lasts_s=60, repeat=repeat, until=until)
    assert refused.value.faults == (told,)
