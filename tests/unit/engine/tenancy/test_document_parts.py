"""New documents, charges and past use, part by part: who is refused, spared, charged, remembered and forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.preemption import recalls
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.tenancy import past_uses
from mesos_gpu.engine.tenancy.document import found_of, keep_hours, leaves_of
from mesos_gpu.engine.tenancy.past_uses import (
    MAX_USERS,
    NOTHING,
    SWEEP_S,
    Change,
    micro,
    shares_of,
    start_value,
)
from mesos_gpu.engine.tenancy.sparing import FOR_EVER, shorten, spared
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, Job, JobState
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Fairness, Guarantee, Hours, Idle, IdlePolicy, QueueDocument, QueueSpec
from mesos_gpu.model.usage import PastUse
from mesos_gpu.policy.tenancy.tree import Tree
from tests.doubles.builders import World, gpu, spec

QUEUES = {"ml": QueueSpec(), "ml/a": QueueSpec(user_shares={"ann": 3, "*": 2}), "web": QueueSpec()}
DOCUMENT = QueueDocument(queues=QUEUES, half_life_s=1000)
TREE = Tree(DOCUMENT)


def made(document: QueueDocument = DOCUMENT) -> World:
    world = World()
    world.register()
    world.node("a1", *(gpu(f"g{i}") for i in range(4)))
    world.feed(ev.QueuesChanged(document, 0))
    return world


def turn_of(world: World, now: float | None = None) -> Turn:
    return Turn(world.state, world.settings, world.now if now is None else now)


NOW = micro(1000.0)


def test_change_of_what_a_user_holds_is_his_and_that_of_all_together() -> None:
    world = made()
    world.state.put(PastUse("ml/a", "bob", 5000, NOW, 7))
    past_uses.on_changes(
        turn_of(world), TREE, [Change("ml/a", "ann", 1000, 1000.0), Change("ml/a", "ann", 500, 1000.0)]
    )
    assert list(world.state.quota.past_uses.values()) == [
        PastUse("ml/a", "bob", 5000, NOW, 7),
        PastUse("ml/a", "ann", 7500, NOW, 1500),
        PastUse("ml/a", "*", 0, NOW, 1500),
    ], "a new user begins with the use of bob, in proportion to the shares"


def test_change_that_comes_to_nothing_is_none() -> None:
    world = made()
    changes = [Change("ml/a", "ann", 1000, 1000.0), Change("ml/a", "ann", -1000, 1000.0)]
    past_uses.on_changes(turn_of(world), TREE, changes)
    assert world.state.quota.past_uses == {}


def test_change_that_begins_is_entered_before_one_that_ends() -> None:
    world = made()
    changes = [Change("ml/a", "ann", -1000, 990.0), Change("ml/a", "ann", 1000, 1000.0)]
    past_uses.on_changes(turn_of(world), TREE, changes)
    assert {use.rate for use in world.state.quota.past_uses.values()} == {0}


def test_use_is_bounded_and_kept_from_an_earlier_moment_on() -> None:
    world = made()
    for user in ("ann", "*"):
        world.state.put(PastUse("ml/a", user, past_uses.MAX_VALUE, NOW, 2000))
    past_uses.on_changes(turn_of(world), TREE, [Change("ml/a", "ann", 10**9, 1000.0)])
    assert world.state.quota.past_uses["ml/a", "ann"] == PastUse(
        "ml/a", "ann", past_uses.MAX_VALUE, NOW, 2000 + 10**9
    )
    later = turn_of(world, 1010.0)
    world.state.put(PastUse("web", "ann", 0, NOW, 2000))
    world.state.put(PastUse("web", "*", 0, NOW, 2000))
    past_uses.on_changes(later, TREE, [Change("web", "ann", -2000, 1004.0)])
    use = world.state.quota.past_uses["web", "ann"]
    assert (use.since, use.rate) == (micro(1010.0), 0)
    assert abs(use.value - 2000 * 4) < 100, "what was held until then"


def test_shares_of_users_are_their_own_or_those_of_all() -> None:
    assert [shares_of(TREE, "ml/a", user) for user in ("ann", "bob")] == [3, 2]
    assert shares_of(TREE, "web", "ann") == 1


def test_new_user_begins_beside_the_first_of_those_who_are_there() -> None:
    world = made()
    assert start_value(world.state, TREE, "ml/a", "ann", NOW) == 0
    for user, value in (("*", 1), ("bob", 500), ("eve", 300)):
        world.state.put(PastUse("ml/a", user, value, NOW))
    assert start_value(world.state, TREE, "ml/a", "ann", NOW) == 300 * 3 // 2
    assert start_value(world.state, TREE, "ml/a", "joe", NOW + 1000 * 10**6) == 150
    assert start_value(world.state, TREE, "web", "ann", NOW) == 0


def test_document_with_another_half_life_takes_use_as_it_was_until_then() -> None:
    world = made()
    use = PastUse("ml/a", "ann", 4000, NOW - 1000 * 10**6, 0)
    world.state.put(use)
    past_uses.on_document(turn_of(world), DOCUMENT)
    assert world.state.quota.past_uses == {("ml/a", "ann"): use}, "it is the same"
    past_uses.on_document(turn_of(world), replace(DOCUMENT, half_life_s=500))
    assert world.state.quota.past_uses == {("ml/a", "ann"): PastUse("ml/a", "ann", 1000, NOW, 0)}
    past_uses.on_document(turn_of(world, 900.0), replace(DOCUMENT, half_life_s=500))
    assert world.state.quota.past_uses == {("ml/a", "ann"): PastUse("ml/a", "ann", 1000, NOW, 0)}, (
        "not by a clock set back"
    )


def test_use_of_queues_without_jobs_is_forgotten() -> None:
    world = made()
    for queue in ("ml", "ml/a", "gone"):
        world.state.put(PastUse(queue, "ann", 4000, NOW))
    past_uses.drop_gone(turn_of(world), TREE)
    assert list(world.state.quota.past_uses) == [("ml/a", "ann")]


def swept(world: World, now: float) -> set[str]:
    past_uses.on_tick(turn_of(world, now))
    return {user for _, user in world.state.quota.past_uses}


def test_use_of_less_than_a_second_is_forgotten_in_the_next_sweep() -> None:
    world = made()
    at = world.now + 2 * SWEEP_S
    for user, value, rate in (("less", NOTHING - 1, 0), ("more", NOTHING, 0), ("holds", 0, 5), ("*", 1, 0)):
        world.state.put(PastUse("ml/a", user, value, micro(at), rate))
    world.state.quota.past_uses_swept_at = at - SWEEP_S + 0.5
    assert swept(world, at) == {"less", "more", "holds", "*"}
    world.state.quota.past_uses_swept_at = at - SWEEP_S
    assert swept(world, at) == {"more", "holds"}
    assert world.state.quota.past_uses_swept_at == at


def test_use_of_those_who_have_used_the_least_is_forgotten_where_they_are_too_many() -> None:
    world = made()
    at = world.now + 2 * SWEEP_S
    for number in reversed(range(MAX_USERS)):
        world.state.put(PastUse("ml/a", f"u{number:03}", NOTHING + number // 2, micro(at)))
    world.state.put(PastUse("ml/a", "*", NOTHING, micro(at)))
    world.state.quota.past_uses_swept_at = 0.0
    users = {f"u{number:03}" for number in range(MAX_USERS)}
    assert swept(world, at) == users | {"*"}
    world.state.put(PastUse("ml/a", "z", NOTHING, micro(at)))
    world.state.put(PastUse("ml/a", "a", NOTHING + 9, micro(at)))
    world.state.quota.past_uses_swept_at = 0.0
    assert swept(world, at) == (users | {"*", "z", "a"}) - {"u000", "u001"}


def charges(world: World) -> dict[str, Charge | None]:
    return {str(task.job_id): task.charge for task in world.state.work.tasks.values() if task.job_id}


@pytest.mark.parametrize("fairness", Fairness)
def test_job_without_gpus_is_charged_where_processors_count(fairness: Fairness) -> None:
    world = made(replace(DOCUMENT, fairness=fairness))
    world.submit("j1", queue="ml/a", user="ann", cpus=2)
    own = Charge("ml/a", "ann", "default", 0, 0, 2000, 128)
    assert charges(world) == {"j1": own if fairness is Fairness.DRF else None}


def test_charges_of_all_tasks_are_others_with_another_document() -> None:
    world = made()
    world.submit("j1", queue="ml/a", user="ann", gpus=1, preemptible=True)
    assert charges(world) == {"j1": Charge("ml/a", "ann", "default", 1000, 1000, 1000, 128)}
    world.now += 10
    world.feed(ev.QueuesChanged(replace(DOCUMENT, gpu_cost={"A100": 3}), 1))
    assert charges(world) == {"j1": Charge("ml/a", "ann", "default", 3000, 3000, 1000, 128)}
    assert {(use.user, use.rate) for use in world.state.quota.past_uses.values()} == {
        ("ann", 3000),
        ("*", 3000),
    }
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_FINISHED")
    assert {use.rate for use in world.state.quota.past_uses.values()} == {0}


SEAT = GuaranteedAdmission("ml", "default", (0,), 1000, 50.0)
SPARED = {
    "with a seat still": (SEAT, SEAT, 40.0, 0.0, 7.0),
    "without one before": (None, None, 40.0, 0.0, 7.0),
    "of the latest document": (replace(SEAT, since=100.5), None, 40.0, 0.0, 7.0),
    "of an earlier document": (SEAT, None, 40.0, 0.0, FOR_EVER),
    "at the very moment of the document": (replace(SEAT, since=100.0), None, 100.0, 0.0, FOR_EVER),
    "by hours that began since": (SEAT, None, 100.5, 0.0, 7.0),
    "until the document says": (SEAT, None, 40.0, 500.0, 500.0),
}


@pytest.mark.parametrize(("before", "seat", "since", "until", "spared_until"), SPARED.values(), ids=SPARED)
def test_job_is_spared_whose_seat_a_new_document_took(
    before: GuaranteedAdmission | None,
    seat: GuaranteedAdmission | None,
    since: float,
    until: float,
    spared_until: float,
) -> None:
    document = QueueDocument(at=100.0, reclaim_at=until or None)
    job = Job(JobId("j1"), spec(), 0.0, 1, seat=before, spared_until=7.0)
    assert spared(document, since, job, seat) == spared_until


def test_jobs_are_spared_no_longer_than_a_later_document_says() -> None:
    world = made()
    for name, until in (("a", 99.0), ("b", 100.0), ("c", 101.0)):
        world.state.set_job(Job(JobId(name), spec(), 0.0, 1, state=JobState.RUNNING, spared_until=until))
    version = world.job("c").version
    shorten(turn_of(world), 100.0)
    assert [world.job(name).spared_until for name in "abc"] == [99.0, 100.0, 100.0]
    assert [world.job(name).version for name in "abc"] == [version, version, version + 1]


def test_document_says_when_jobs_give_back_what_they_hold_beyond_it() -> None:
    world = made()
    world.submit("j1", queue="web", gpus=1, preemptible=True)
    world.state.set_job(replace(world.job(), spared_until=FOR_EVER))
    world.feed(ev.QueuesChanged(DOCUMENT, 1, 60.0))
    assert (world.state.quota.queues.version, world.state.quota.queues.reclaim_at) == (2, 1060.0)
    assert world.job().spared_until == 1060.0
    world.feed(ev.QueuesChanged(DOCUMENT, 2))
    assert world.state.quota.queues.version == 2, "it says what the latest says"
    other = replace(DOCUMENT, half_life_s=7)
    world.feed(ev.QueuesChanged(other, 2))
    assert (world.state.quota.queues.version, world.state.quota.queues.reclaim_at) == (3, None)


def test_leaves_of_a_document_take_jobs() -> None:
    document = QueueDocument(queues={"a": QueueSpec(), "a/b": QueueSpec(), "c": QueueSpec()})
    assert set(leaves_of(document, {"named": 3, "a": 1})) == {"a/b", "c", "named", DEFAULT_QUEUE}
    inner = QueueDocument(queues={f"{DEFAULT_QUEUE}/x": QueueSpec()})
    assert set(leaves_of(inner, {})) == {f"{DEFAULT_QUEUE}/x"}


def test_document_without_queues_that_have_jobs_is_refused_with_their_names() -> None:
    world = World()
    world.register()
    queues = {f"q{number}": QueueSpec() for number in range(7)}
    world.feed(ev.QueuesChanged(QueueDocument(queues=queues), 0))
    for queue in reversed(queues):
        for number in range(7 if queue == "q1" else 1):
            world.submit(f"{queue}-{number}", queue=queue, cpus=1)
    world.state.set_job(replace(world.job("q2-0"), state=JobState.FINISHED))
    with pytest.raises(Conflict) as refused:
        world.feed(ev.QueuesChanged(QueueDocument(queues={"q0": QueueSpec(), "x": QueueSpec()}), 1))
    assert str(refused.value).startswith(
        "jobs are in queues that the document does not have as leaves: q1 (7: q1-0, q1-1, q1-2, q1-3, q1-4); "
        "q3 (1: q3-0); q4 (1: q4-0); q5 (1: q5-0); q6 (1: q6-0)"
    )
    gone = replace(QueueDocument(queues={"x": QueueSpec()}))
    with pytest.raises(Conflict, match="q0-0"):
        world.feed(ev.QueuesChanged(gone, 1))


def test_document_is_refused_for_an_array_of_which_some_is_left_and_for_no_unknown_queue() -> None:
    world = World()
    world.register()
    world.submit("j1", queue="typo", cpus=1)
    with pytest.raises(Conflict, match=r"typo \(1: j1\)"):
        world.feed(ev.QueuesChanged(QueueDocument(queues={"a": QueueSpec()}), 0))
    world.feed(ev.KillRequested(JobId("j1")))
    world.feed(ev.QueuesChanged(QueueDocument(queues={"a": QueueSpec()}), 0))
    world.feed(ev.JobSubmitted(JobId("sweep-1"), spec(name="sweep", queue="a", cpus=1, array="0-9%1")))
    with pytest.raises(Conflict, match=r"a \(\d+: .*sweep-1"):
        world.feed(ev.QueuesChanged(QueueDocument(queues={"b": QueueSpec()}), 1))


def found(document: QueueDocument) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    made_of = found_of(made().state, Settings.of("e", "m", report_interval_s=10.0), document, 28_800.0)
    return made_of.faults, made_of.warnings


def owed(gpus: int, *hours: Hours) -> QueueSpec:
    return QueueSpec(guarantee_gpus={"default": Guarantee(gpus * 1000)}, hours=hours)


def night(gpus: int) -> Hours:
    return Hours("22:00", "06:00", guarantee_gpus={"default": Guarantee(gpus * 1000)})


MUCH = (
    "guarantee {} of pool default together, which has 4: lower them, or let them be scaled (overbook: true; mesos-gpu "
    "queue apply --overbook)"
)


def test_document_is_checked_as_it_is_and_by_its_hours_once() -> None:
    assert found(QueueDocument(queues={"a": owed(4, night(3))})) == ((), ())
    assert found(QueueDocument(queues={"a": owed(5)})) == ((("/queues", MUCH.format(5)),), ())
    by_night = found(QueueDocument(queues={"a": owed(4, night(6))}))[0]
    assert by_night == (("/queues", f"{MUCH.format(6)} (with the hours of 1970-01-01T22:00Z)"),)
    assert found(QueueDocument(queues={"a": owed(5, night(5))}))[0] == (("/queues", MUCH.format(5)),)


def test_document_is_warned_of_by_its_hours_too() -> None:
    document = QueueDocument(queues={"a": owed(4, night(8))}, overbook=True)
    assert found(document) == (
        (),
        (
            "of pool default 8 are guaranteed and 4 are there: while all of it is asked for, 50 % of each "
            "guarantee is kept",
        ),
    )


def test_document_with_early_idle_warnings_has_a_fault() -> None:
    early = QueueSpec(idle=Idle(warn_after_s=5, policy=IdlePolicy.ALWAYS))
    assert [place for place, _ in found(QueueDocument(queues={"a": early}))[0]] == [
        "/queues/a/idle/warn_after_s"
    ]


def test_hours_change_at_their_begin_and_not_back_by_a_clock_that_is_set_back() -> None:
    world = made(QueueDocument(queues={"a": owed(1, night(2))}))
    hour = 3600.0
    for at, begins in ((22 * hour - 0.5, 6 * hour), (22 * hour, 22 * hour), (22 * hour - 600.0, 22 * hour)):
        keep_hours(turn_of(world, at))
        world.now = at
        assert world.state.quota.hours_at == max(at, world.state.quota.hours_at)
        assert world.state.quota.hours.span.since == begins, at
    world.state.quota.hours_at = 22 * hour
    keep_hours(turn_of(world, 22 * hour - 600.5))
    assert world.state.quota.hours_at == 22 * hour - 600.5


def told(world: World, taker: Job | None, reason: NoticeReason = NoticeReason.RECLAIM, **fields: Any) -> Task:
    """A running job with notice to make room for another one, after a look at the notices."""
    job = Job(JobId("j1"), spec(gpus=1), 900.0, 1, state=JobState.RUNNING, message="told")
    world.state.set_job(replace(job, task_id=TaskId("j1.1"), launches=1))
    by = fields.pop("by", JobId("j2"))
    notice = Notice(1, reason, "", 990.0, 1e9, by, **fields)
    world.state.set_task(
        Task(
            TaskId("j1.1"), AgentId("a1"), "j1.1", JobId("j1"), TaskState.RUNNING, 900.0, gpus=(GpuId("g0"),),
            hostname="a1.example", started_at=900.0, notice=notice, preempted_for=JobId("j2"),
        )
    )  # fmt: skip
    if taker is not None:
        world.state.set_job(taker)
    recalls.on_tick(turn_of(world))
    return world.state.work.tasks[TaskId("j1.1")]


WAITS = Job(JobId("j2"), spec(gpus=1), 950.0, 2, room_made_at=990.0)
NEEDLESS = {
    "it waits for its room": (WAITS, None),
    "it is not known": (None, None),
    "it has ended": (replace(WAITS, state=JobState.KILLED), "has ended"),
    "it was started": (replace(WAITS, state=JobState.STARTING), "was started without its end"),
    "it has no room": (replace(WAITS, room_made_at=None), "may not start now"),
}


@pytest.mark.parametrize(("taker", "why"), NEEDLESS.values(), ids=NEEDLESS)
def test_notice_is_recalled_when_nobody_gains_by_it(taker: Job | None, why: str | None) -> None:
    world = made()
    task = told(world, taker)
    assert task.notice is not None
    assert task.notice.stands is (why is None)
    assert (task.preempted_for is None) is (why is not None)
    words = "told" if why is None else f"it goes on: job j2, which it was to make room for, {why}"
    assert world.job().message == words


def test_notice_of_idle_gpus_is_recalled_where_it_was_given_for_somebody() -> None:
    gone = replace(WAITS, state=JobState.KILLED)
    for_somebody = told(made(), gone, NoticeReason.IDLE)
    assert for_somebody.notice is not None
    assert not for_somebody.notice.stands
    for_nobody = told(made(), gone, NoticeReason.IDLE, by=None)
    assert for_nobody.notice is not None
    assert for_nobody.notice.stands
    assert for_nobody.preempted_for is None, "it ends for that alone"


def test_notice_that_was_recalled_is_not_recalled_again() -> None:
    world = made()
    task = told(world, replace(WAITS, state=JobState.KILLED), recalled_at=995.0)
    assert (task.preempted_for, world.job().message) == ("j2", "told")
