"""Idle jobs, one step at a time: what is remembered, saved, said and shown, and whose GPUs may be returned."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.tenancy import idle
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotAccepted, NotFound
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.saves import SaveIdleness
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Idle, IdlePolicy, JobClass, QueueDocument, QueueSpec
from mesos_gpu.policy.tenancy.tree import Tree
from tests.doubles.builders import World, every, gpu, spec
from tests.unit.tenancy.idle.test_engine import rigged, run

RULES = Idle(
    warn_after_s=100, return_after_s=200, resume_s=30, start_grace_s=0, max_keep_s=1000, policy=IdlePolicy.PRESSURE
)  # fmt: skip
ALWAYS = replace(RULES, policy=IdlePolicy.ALWAYS)
JOB = JobId("j1")
KNOWN = Idleness(JOB, 1, IdleState.WARNED, 900.0, 180_000, 0, 995.0)


def made(rules: Idle = RULES, tasks: int = 1) -> World:
    """A job that has run for 500 seconds, of a queue with those rules."""
    world = World()
    world.register()
    world.node("a1", *(gpu(f"g{i}") for i in range(4)))
    classes = JobClass("plain"), JobClass("own", idle=ALWAYS)
    world.state.put(QueueDocument(version=1, queues={"ml": QueueSpec(idle=rules)}, classes=classes))
    job = Job(JOB, spec(gpus=1, queue="ml", tasks=tasks), 400.0, 1, state=JobState.RUNNING)
    ids = [TaskId(f"j1.1.{rank}") for rank in range(tasks)]
    world.state.set_job(replace(job, task_id=ids[0], launches=1))
    for rank, task_id in enumerate(ids):
        world.state.set_task(
            Task(
                task_id, AgentId("a1"), task_id, JOB, TaskState.RUNNING, 500.0, gpus=(GpuId(f"g{rank}"),),
                hostname="a1.example", started_at=500.0, launch=1, rank=rank,
            )
        )  # fmt: skip
    return world


def turn_of(world: World) -> Turn:
    return Turn(world.state, world.settings, world.now)


def change(world: World, **fields: Any) -> None:
    """The first task with these fields."""
    world.state.set_task(replace(world.state.work.tasks[TaskId("j1.1.0")], **fields))


def tree(**more: Any) -> Tree:
    classes = JobClass("plain"), JobClass("own", idle=ALWAYS)
    return Tree(QueueDocument(queues={"ml": QueueSpec(idle=RULES)}, classes=classes, **more))


@pytest.mark.parametrize(
    ("fields", "rules"),
    [({"queue": "ml"}, RULES), ({"queue": "ml", "job_class": "plain"}, RULES), ({"job_class": "own"}, ALWAYS),
     ({"queue": "gone"}, Idle()), ({"queue": "ml", "job_class": "gone"}, RULES)],
)  # fmt: skip
def test_idle_rules_are_those_of_the_class_or_the_queue(fields: dict[str, str], rules: Idle) -> None:
    job = Job(JOB, spec(gpus=1, **fields), 0.0, 1)
    assert idle.rules_of(tree(), job) == rules
    assert idle.rules_of(tree(), replace(job, app_version=1.0)) == replace(rules, policy=IdlePolicy.REPORT)


KEPT = replace(KNOWN, keep_until=1500.0, kept_by="ann")
FORGOTTEN = replace(KNOWN, state=IdleState.ACTIVE, idle_ms=0)
SHOWN = {
    "as it is known": (KNOWN, {}, KNOWN),
    "nothing of an active job": (FORGOTTEN, {}, None),
    "that it is kept": (replace(FORGOTTEN, keep_until=1500.0), {}, replace(FORGOTTEN, keep_until=1500.0)),
    "not that it was kept": (replace(KEPT, keep_until=1000.0), {}, KNOWN),
    "nothing of an earlier launch": (replace(KNOWN, launch=0), {}, None),
    "nothing of a job that has ended": (KNOWN, {"state": JobState.FINISHED}, None),
    "not that it was kept, of one that has ended": (KEPT, {"state": JobState.FINISHED}, None),
    "that it was returned": (
        replace(KEPT, state=IdleState.RETURNED), {"state": JobState.KILLED}, replace(KNOWN, state=IdleState.RETURNED),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("known", "fields", "shown"), SHOWN.values(), ids=SHOWN)
def test_idleness_is_shown(known: Idleness, fields: dict[str, Any], shown: Idleness | None) -> None:
    world = made()
    assert idle.idle_of(world.state, world.job(), 1000.0) is None
    world.state.put(known)
    job = replace(world.job(), **fields)
    assert idle.idle_of(world.state, job, 1000.0) == (None if shown is None else (shown, RULES))


def test_idleness_of_an_earlier_launch_is_forgotten_but_until_when_it_is_kept() -> None:
    world = made()
    assert idle.known_of(turn_of(world), world.job()) == Idleness(JOB, 1, since=1000.0)
    world.state.put(KEPT)
    assert idle.known_of(turn_of(world), world.job()) == KEPT
    world.state.put(replace(KEPT, launch=0))
    anew = replace(KEPT, state=IdleState.ACTIVE, since=1000.0, idle_ms=0)
    assert idle.known_of(turn_of(world), world.job()) == anew


SAVED = {
    "a new one": (None, KNOWN, RULES, True),
    "a part of a step": (KNOWN, replace(KNOWN, idle_ms=189_999, known_at=999.0), RULES, False),
    "a step of idle time": (KNOWN, replace(KNOWN, idle_ms=190_000), RULES, True),
    "a step of work": (KNOWN, replace(KNOWN, resumed_ms=10_000), RULES, True),
    "a part of a step of work": (KNOWN, replace(KNOWN, resumed_ms=9999), RULES, False),
    "without rules": (KNOWN, replace(KNOWN, idle_ms=180_001), None, True),
    "another state": (KNOWN, replace(KNOWN, state=IdleState.NOTICE), RULES, True),
    "another begin": (KNOWN, replace(KNOWN, since=901.0), RULES, True),
    "another launch": (KNOWN, replace(KNOWN, launch=2), RULES, True),
    "kept": (KNOWN, KEPT, RULES, True),
    "of rules that end a job soon after the warning": (
        KNOWN, replace(KNOWN, idle_ms=181_000), replace(RULES, return_after_s=110), True,
    ),
    "a part of such a step": (KNOWN, replace(KNOWN, idle_ms=180_999), replace(RULES, return_after_s=110), False),
    "of rules that end a job at once": (
        KNOWN, replace(KNOWN, idle_ms=180_001), replace(RULES, return_after_s=50), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "rules", "saved"), SAVED.values(), ids=SAVED)
def test_idleness_is_saved_when_it_takes_a_step(
    old: Idleness | None, new: Idleness, rules: Idle | None, saved: bool
) -> None:
    world = made()
    if old is not None:
        world.state.put(old)
    turn = turn_of(world)
    idle.remember(turn, new, rules)
    assert world.state.work.idlenesses == {JOB: new}
    assert [each.idleness for each in every(turn.effects, SaveIdleness)] == ([new] if saved else [])


def test_idleness_of_a_job_at_work_is_dropped_unless_it_is_kept() -> None:
    world = made()
    idle.remember(turn_of(world), FORGOTTEN, RULES)
    assert world.state.work.idlenesses == {}
    world.state.put(KNOWN)
    idle.remember(turn_of(world), replace(FORGOTTEN, keep_until=1500.0), RULES)
    assert world.state.work.idlenesses == {JOB: replace(FORGOTTEN, keep_until=1500.0)}
    idle.remember(turn_of(world), FORGOTTEN, RULES)
    assert world.state.work.idlenesses == {}


RETURNABLE = {
    "warned for long": ({}, {}, {}, True),
    "not for long": ({"idle_ms": 150_000}, {}, {}, False),
    "not warned": ({"state": IdleState.SUSPECT}, {}, {}, False),
    "kept": ({"keep_until": 1500.0}, {}, {}, False),
    "of an earlier launch": ({"launch": 0}, {}, {}, False),
    "of which nothing is known of late": ({"known_at": 900.0}, {}, {}, False),
    "that does not run yet": ({}, {"state": TaskState.STARTING}, {}, False),
    "that is being ended": ({}, {"notice": Notice(1, NoticeReason.DRAIN, "", 900.0, 1e9)}, {}, False),
    "that is ended without demand": ({}, {}, {"policy": IdlePolicy.ALWAYS}, False),
    "that is reported": ({}, {}, {"policy": IdlePolicy.REPORT}, False),
}


@pytest.mark.parametrize(("known", "task", "rules", "may"), RETURNABLE.values(), ids=RETURNABLE)
def test_idle_gpus_may_be_returned(
    known: dict[str, Any], task: dict[str, Any], rules: dict[str, Any], may: bool
) -> None:
    world = made(replace(RULES, **rules), tasks=2)
    assert idle.returnable(turn_of(world)) == {}
    assert not idle.is_pressing(world.state)
    world.state.put(replace(KNOWN, **known))
    change(world, **task)
    assert idle.is_pressing(world.state) is (known.get("state", IdleState.WARNED) is IdleState.WARNED)
    assert idle.returnable(turn_of(world)) == ({JOB: world.job()} if may else {})


def test_idle_job_gives_up_for_another_with_all_of_its_notice() -> None:
    world = made()
    world.state.put(KNOWN)
    turn = turn_of(world)
    idle.give_up(turn, world.job(), JobId("j9"))
    notice = world.state.work.tasks[TaskId("j1.1.0")].notice
    lead_s = 3 * max(world.settings.programs.report_interval_s, 10.0)
    why = "its GPUs have done nothing for 180 s, and job j9 waits for them"
    assert notice == Notice(1, NoticeReason.IDLE, why, 1000.0, 1000.0 + lead_s, JobId("j9"), final=True)
    assert world.state.work.idlenesses == {JOB: replace(KNOWN, state=IdleState.NOTICE, since=1000.0)}
    turn = turn_of(world)
    again = idle.give(turn, world.job(), KNOWN, RULES, 5.0)
    assert (again, turn.effects) == (KNOWN, []), "it ends already"


def test_idle_job_that_may_start_again_has_no_final_notice() -> None:
    world = made(replace(ALWAYS, requeue=True))
    new = idle.give(turn_of(world), world.job(), KNOWN, replace(ALWAYS, requeue=True), 40.0)
    assert new == replace(KNOWN, state=IdleState.NOTICE, since=1000.0)
    notice = world.state.work.tasks[TaskId("j1.1.0")].notice
    why = "its GPUs have done nothing for 180 s"
    assert notice == Notice(1, NoticeReason.IDLE, why, 1000.0, 1040.0)


@pytest.mark.parametrize(
    ("by", "words"), [("ann", "kept by ann from being ended"), ("", "kept from being ended")]
)
def test_words_for_a_kept_job_name_who_asked(by: str, words: str) -> None:
    assert idle.kept_words(1500.0, by, 1000.0).startswith(words)
    assert idle.idle_words(KNOWN) == "its GPUs have done nothing for 180 s"


def test_job_that_is_kept_is_remembered_and_says_so() -> None:
    world = made()
    world.state.put(replace(KNOWN, state=IdleState.SUSPECT))
    before = world.job()
    world.feed(ev.KeepAsked(JOB, 1000.0, None, "ann"))
    kept = replace(FORGOTTEN, since=1000.0, keep_until=2000.0, kept_by="ann")
    assert world.state.work.idlenesses == {JOB: kept}
    why = idle.kept_words(2000.0, "ann", 1000.0)
    assert world.job() == replace(before, message=why, version=before.version + 1)
    assert [each.kind for each in world.state.work.events] == [EventKind.KEPT]
    before = world.job()
    world.feed(ev.KeepWithdrawn(JOB))
    assert world.state.work.idlenesses == {}
    assert world.job() == replace(before, version=before.version + 1)
    assert [each.kind for each in world.state.work.events] == [EventKind.KEPT, EventKind.KEEP_ENDED]


@pytest.mark.parametrize(
    ("for_s", "until", "place"),
    [(0.0, None, "/for_s"), (1000.5, None, "/for_s"), (None, 1000.0, "/until"), (None, 2000.5, "/until")],
)
def test_keep_for_too_long_or_for_no_time_is_refused_with_its_place(
    for_s: float | None, until: float | None, place: str
) -> None:
    world = made()
    with pytest.raises(NotAccepted) as refused:
        world.feed(ev.KeepAsked(JOB, for_s, until, "ann"))
    assert [path for path, _ in refused.value.faults] == [place]
    world.feed(ev.KeepAsked(JOB, None if for_s is None else 0.5, None if until is None else 2000.0, "ann"))


GONE: dict[str, tuple[dict[str, Any], Idleness | None]] = {
    "ended": ({"state": JobState.FINISHED}, None),
    "being killed": ({"kill_requested": True}, None),
    "being returned": ({}, replace(KNOWN, state=IdleState.RETURNED)),
}


@pytest.mark.parametrize(("fields", "known"), GONE.values(), ids=GONE)
def test_job_at_its_end_cannot_be_kept(fields: dict[str, Any], known: Idleness | None) -> None:
    world = made()
    if known is not None:
        world.state.put(known)
    world.state.work.jobs[JOB] = replace(world.job(), **fields)
    with pytest.raises(Conflict, match="job j1 is "):
        idle.on_keep_asked(turn_of(world), ev.KeepAsked(JOB, 5.0, None, "ann"))


def test_job_cannot_be_kept_without_rules() -> None:
    world = World()
    with pytest.raises(NotFound):
        idle.on_keep_asked(turn_of(world), ev.KeepAsked(JOB, 5.0, None, "ann"))
    world.state.work.jobs[JOB] = Job(JOB, spec(gpus=1), 0.0, 1)
    with pytest.raises(Conflict, match="no document of queues"):
        idle.on_keep_asked(turn_of(world), ev.KeepAsked(JOB, 5.0, None, "ann"))


def test_keep_calls_a_warning_off_task_by_task() -> None:
    world = made(tasks=2)
    world.state.put(KNOWN)
    warning = Notice(3, NoticeReason.IDLE, "be warned", 900.0, 1e9, told=2, warning=True)
    change(world, notice=warning)
    before = world.job()
    world.feed(ev.KeepAsked(JOB, 500.0, None, "ann"))
    assert [task.notice for task in world.state.work.round_of(before)] == [
        replace(warning, number=4, warning=False, recalled_at=1000.0), None,
    ]  # fmt: skip
    assert [each.kind for each in world.state.work.events] == [EventKind.IDLE_OVER, EventKind.KEPT]


@pytest.mark.parametrize(
    ("policy", "what"),
    [(IdlePolicy.ALWAYS, "ended"), (IdlePolicy.PRESSURE, "ended when ")],
)
def test_idle_warning_says_what_comes_to_each_task(policy: IdlePolicy, what: str) -> None:
    rig = rigged(replace(RULES, policy=policy))
    run(rig, tasks=2)
    world = rig.world
    rig.play(90)
    first = world.state.work.round_of(world.job())[0]
    gone = Notice(3, NoticeReason.DRAIN, "", 900.0, 950.0, recalled_at=940.0, told=2)
    world.state.set_task(replace(first, notice=gone))
    sent = every(rig.play(10), fx.GiveNotice)
    why = world.job().message
    assert why.startswith(f"its GPUs have done nothing for 100 s; after 100 s more it is {what}")
    assert why.endswith("(mesos-gpu keep j1 puts that off)")
    assert ("another job needs" in why) is (policy is IdlePolicy.PRESSURE)
    now = world.now
    warning = Notice(1, NoticeReason.IDLE, why, now, now + 100.0, warning=True)
    assert [task.notice for task in world.state.work.round_of(world.job())] == [
        replace(warning, number=4, told=2), warning,
    ]  # fmt: skip
    assert [each.notice.number for each in sent if each.notice.warning] == [4, 1]
    assert rig.kinds() == [EventKind.IDLE_WARNING]
    known = world.state.work.idlenesses[JOB]
    assert known == Idleness(JOB, 1, IdleState.WARNED, now, 100_000, 0, now)
