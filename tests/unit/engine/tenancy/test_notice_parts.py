"""Notices as a whole: those of each task, messages of jobs, and jobs that do not change."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec, Stop
from tests.doubles.builders import World, every, gpu, only, spec

WHY = "makes room for job other"


@pytest.fixture
def world() -> World:
    """A node of four cards."""
    made = World()
    made.register()
    made.node("a1", *(gpu(f"g{i}") for i in range(4)))
    return made


def running(world: World, name: str = "j1", card: int = 0, *, age_s: float = 10.0, **fields: Any) -> Job:
    """A job whose tasks run since then, each with a card."""
    job = Job(
        JobId(name), spec(**{"name": name, "gpus": 1, **fields}), world.now, world.state.work.next_sequence
    )
    count = job.spec.tasks
    ids = [TaskId(f"{name}.1" if count == 1 else f"{name}.1.{rank}") for rank in range(count)]
    world.state.set_job(replace(job, state=JobState.RUNNING, task_id=ids[0], launches=1))
    for rank, task_id in enumerate(ids):
        world.state.set_task(
            Task(
                task_id, AgentId("a1"), task_id, job.id, TaskState.RUNNING, world.now - age_s,
                gpus=(GpuId(f"g{card + rank}"),), hostname="a1.example", started_at=world.now - age_s,
                launch=1 if count > 1 else 0, rank=rank,
            )
        )  # fmt: skip
    return world.state.work.jobs[job.id]


def turn_of(world: World) -> Turn:
    return Turn(world.state, world.settings, world.now)


def change(world: World, name: str, **fields: Any) -> None:
    """A task as it is with these fields."""
    world.state.set_task(replace(world.state.work.tasks[TaskId(name)], **fields))


def give(
    world: World, name: str = "j1", reason: NoticeReason = NoticeReason.RECLAIM, **more: Any
) -> list[fx.Effect]:
    turn = turn_of(world)
    notices.give(turn, world.job(name), reason, WHY, **more)
    return turn.effects


def tasks(world: World, name: str = "j1") -> dict[str, Task]:
    return {str(task.id): task for task in world.state.work.round_of(world.job(name))}


def test_notice_is_given_to_each_task_with_all_that_it_says(world: World) -> None:
    running(world, tasks=2)
    change(world, "j1.1.1", notice=Notice(4, NoticeReason.IDLE, "", 900.0, 1e9, told=3, warning=True))
    effects = give(world, by=JobId("other"), notice_s=30.0, final=True)
    first = Notice(1, NoticeReason.RECLAIM, WHY, 1000.0, 1030.0, JobId("other"), final=True)
    assert [task.notice for task in tasks(world).values()] == [first, replace(first, number=5, told=3)]
    assert {task.preempted_for for task in tasks(world).values()} == {JobId("other")}
    assert [(each.task_id, each.left_s) for each in every(effects, fx.GiveNotice)] == [
        ("j1.1.0", 30.0), ("j1.1.1", 30.0),
    ]  # fmt: skip
    assert world.job().message == f"{WHY}; it is ended in 30 s"
    (told,) = world.state.work.events
    assert (told.kind, told.job_id, told.notice) == (EventKind.NOTICE, "j1", first)


NOBODY = {
    "that has ended": ({"state": JobState.FINISHED}, {}),
    "that is being killed": ({"kill_requested": True}, {}),
    "whose task has ended": ({}, {"state": TaskState.FINISHED, "ended_at": 999.0}),
    "whose task is being ended": ({}, {"evicted": "it was drained"}),
    "whose task is being killed": ({}, {"state": TaskState.KILLING}),
    "whose task was given up": ({}, {"state": TaskState.ABANDONED}),
}


@pytest.mark.parametrize(("of_job", "of_task"), NOBODY.values(), ids=NOBODY)
def test_notice_changes_nothing_for_a_job(
    world: World, of_job: dict[str, Any], of_task: dict[str, Any]
) -> None:
    job = replace(running(world), **of_job)
    world.state.set_job(job)
    change(world, "j1.1", **of_task)
    before = tasks(world)
    assert give(world, notice_s=30.0) == []
    assert (world.job(), tasks(world)) == (job, before)


def test_second_notice_with_a_later_end_changes_only_for_whom(world: World) -> None:
    running(world)
    give(world, by=JobId("other"), notice_s=30.0)
    before = tasks(world)["j1.1"]
    job, said = world.job(), len(world.state.work.events)
    effects = give(world, by=JobId("third"), notice_s=30.0)
    assert tasks(world) == {"j1.1": replace(before, preempted_for=JobId("third"))}
    assert (every(effects, fx.GiveNotice), world.job(), len(world.state.work.events)) == ([], job, said)
    give(world, notice_s=31.0)
    assert tasks(world)["j1.1"].preempted_for == "third", "a notice for no job takes none away"
    give(world, notice_s=29.0)
    now = tasks(world)["j1.1"].notice
    assert now is not None
    assert (now.number, now.until, now.by) == (2, 1029.0, None)


def test_notice_whose_end_is_now_ends_all_tasks_at_once(world: World) -> None:
    running(world, tasks=2)
    change(world, "j1.1.0", started_at=None)
    effects = give(world, notice_s=-5.0)
    assert {kill.task_id for kill in every(effects, fx.Kill)} == {"j1.1.0", "j1.1.1"}
    assert every(effects, fx.GiveNotice) == []
    whole = Notice(1, NoticeReason.RECLAIM, WHY, 1000.0, 1000.0)
    assert [task.notice for task in tasks(world).values()] == [whole, whole]
    assert world.job().message == f"{WHY}; it is ended here and queued again"
    assert [(each.kind, each.notice) for each in world.state.work.events] == [(EventKind.END, whole)]


def test_notice_of_a_gang_of_which_one_task_runs_has_its_time(world: World) -> None:
    running(world, tasks=2, notice_s=30.0)
    change(world, "j1.1.0", started_at=None)
    effects = give(world)
    assert every(effects, fx.Kill) == []
    assert {task.notice.until for task in tasks(world).values() if task.notice} == {1030.0}


def recall(world: World, *of: NoticeReason) -> bool:
    return notices.recall(turn_of(world), world.job(), "all is well", of or notices.FOR_OTHERS)


def test_recall_keeps_all_of_a_notice_but_its_number_and_its_standing(world: World) -> None:
    running(world, tasks=2)
    give(world, by=JobId("other"), notice_s=30.0)
    world.state.set_job(replace(world.job(), room_made_at=5.0, room_on=(AgentId("a1"),)))
    world.now += 3
    assert recall(world)
    recalled = Notice(2, NoticeReason.RECLAIM, WHY, 1000.0, 1030.0, JobId("other"), recalled_at=1003.0)
    assert [task.notice for task in tasks(world).values()] == [recalled, recalled]
    assert {task.preempted_for for task in tasks(world).values()} == {None}
    job = world.job()
    assert (job.message, job.room_made_at, job.room_on) == ("it goes on: all is well", None, ())
    assert (world.state.work.events[-1].kind, world.state.work.events[-1].notice) == (
        EventKind.RECALL,
        recalled,
    )
    assert not recall(world), "it stands no more"


@pytest.mark.parametrize("reason", NoticeReason)
def test_recall_is_of_the_reasons_that_are_named(world: World, reason: NoticeReason) -> None:
    running(world)
    give(world, reason=reason, notice_s=30.0)
    assert recall(world) is (reason in (NoticeReason.RECLAIM, NoticeReason.PREEMPTION))
    assert recall(world, NoticeReason.DRAIN) is (reason is NoticeReason.DRAIN)


def test_recall_comes_too_late_for_a_gang_of_which_one_task_is_being_ended(world: World) -> None:
    running(world, tasks=2)
    give(world, notice_s=30.0)
    change(world, "j1.1.0", evicted="it had its notice")
    assert not recall(world)
    turn = turn_of(world)
    notices.make_room_for_nobody(turn, world.job())
    assert turn.effects == []


def test_job_that_ends_for_another_reason_makes_room_for_nobody(world: World) -> None:
    running(world)
    give(world, by=JobId("other"), notice_s=30.0)
    before, notice = world.job(), tasks(world)["j1.1"].notice
    notices.make_room_for_nobody(turn_of(world), before)
    assert (tasks(world)["j1.1"].preempted_for, tasks(world)["j1.1"].notice) == (None, notice)
    assert world.job() == before
    made = replace(before, room_made_at=5.0, room_on=(AgentId("a1"),))
    world.state.set_job(made)
    notices.make_room_for_nobody(turn_of(world), made)
    assert (world.job().room_made_at, world.job().room_on) == (None, ())


def test_notice_stands_of_tasks_that_have_not_ended_and_unless_it_only_warns(world: World) -> None:
    running(world, tasks=2)
    assert notices.stands(turn_of(world).state, world.job()) is None
    warning = Notice(1, NoticeReason.IDLE, "", 900.0, 1e9, warning=True)
    change(world, "j1.1.0", notice=warning)
    assert notices.stands(turn_of(world).state, world.job()) is None
    standing = Notice(1, NoticeReason.DRAIN, "", 900.0, 1e9)
    change(world, "j1.1.1", notice=standing)
    assert notices.stands(turn_of(world).state, world.job()) == standing
    change(world, "j1.1.1", state=TaskState.FINISHED, ended_at=999.0)
    assert notices.stands(turn_of(world).state, world.job()) is None


ELSEWHERE = {
    "it has room elsewhere": ({}, {}, True),
    "it has none": ({"room_on": ()}, {}, False),
    "it waits": ({"state": JobState.PENDING}, {}, False),
    "it is being killed": ({"kill_requested": True}, {}, False),
    "it makes room for no job": ({}, {"preempted_for": None}, False),
    "its task has ended": ({}, {"state": TaskState.KILLED, "ended_at": 999.0}, False),
}


@pytest.mark.parametrize(("of_job", "of_task", "goes"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_job_goes_elsewhere(
    world: World, of_job: dict[str, Any], of_task: dict[str, Any], goes: bool
) -> None:
    running(world)
    change(world, "j1.1", **{"preempted_for": JobId("other"), **of_task})
    job = replace(world.job(), **{"room_on": (AgentId("a1"),), **of_job})
    assert notices.goes_elsewhere(world.state, job) is goes


def tick(world: World, seconds: float = 0.0) -> list[fx.Effect]:
    """Step the notices after that time."""
    world.now += seconds
    turn = turn_of(world)
    notices.on_tick(turn)
    return turn.effects


def test_notice_runs_out_at_its_very_end(world: World) -> None:
    running(world)
    give(world, notice_s=30.0)
    assert every(tick(world, 29.5), fx.Kill) == []
    assert only(tick(world, 0.5), fx.Kill).task_id == "j1.1"
    assert world.job().message == f"{WHY}; it is ended here and queued again"


@pytest.mark.parametrize("reason", [NoticeReason.TIME_LIMIT, NoticeReason.IDLE])
def test_notice_that_others_follow_does_not_end_a_job(world: World, reason: NoticeReason) -> None:
    running(world)
    give(world, reason=reason, notice_s=30.0)
    assert every(tick(world, 40.0), fx.Kill) == []


@pytest.mark.parametrize(
    ("limits", "tree", "told"),
    [({"timeout_s": 100.0}, True, True), ({"timeout_s": 100.0}, False, True), ({}, True, False)],
)
def test_time_limit_is_told_its_notice_before_the_end(
    world: World, limits: dict[str, Any], tree: bool, told: bool
) -> None:
    if tree:
        world.state.put(QueueDocument(version=1, queues={"default": QueueSpec(notice_s=30.0)}))
    running(world, notice_s=30.0, tasks=2, **limits)
    change(world, "j1.1.1", started_at=995.0)
    assert every(tick(world, 59.5), fx.GiveNotice) == []
    sent = every(tick(world, 0.5), fx.GiveNotice)
    assert [each.left_s for each in sent] == ([30.0, 30.0] if told else [])
    assert {each.notice.why for each in sent} == ({"its time limit of 100 s ends"} if told else set())


def test_time_limit_is_not_told_when_it_is_over_or_has_not_begun(world: World) -> None:
    running(world, notice_s=30.0, timeout_s=100.0, age_s=100.0)
    running(world, "j2", 1, notice_s=30.0, timeout_s=100.0, age_s=99.5)
    running(world, "j3", 2, notice_s=30.0, timeout_s=20.0)
    change(world, "j3.1", started_at=None)
    running(world, "j4", 3, timeout_s=100.0, age_s=99.5)
    sent = every(tick(world), fx.GiveNotice)
    assert [(each.task_id, each.left_s) for each in sent] == [("j2.1", 0.5)]


def test_drain_tells_whoever_is_there_with_the_earliest_deadline(world: World) -> None:
    running(world, notice_s=60.0)
    running(world, "j2", 1, notice_s=60.0)
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "fan", "ann", 100.0))
    world.feed(ev.DrainRequested(Target.GPU, "g1", "dust", "bob", 50.0))
    world.feed(ev.DrainRequested(Target.GPU, "g0", "later", "eve", None))
    assert [(each.task_id, each.left_s) for each in every(tick(world), fx.GiveNotice)] == [("j2.1", 50.0)]
    notice = tasks(world, "j2")["j2.1"].notice
    assert notice is not None
    assert (notice.reason, notice.why, notice.until) == (
        NoticeReason.DRAIN, "g1 was drained by bob: dust", 1050.0,
    )  # fmt: skip
    tick(world, 39.5)
    assert tasks(world)["j1.1"].notice is None
    tick(world, 0.5)
    first = tasks(world)["j1.1"].notice
    assert first is not None
    assert (first.why, first.until) == ("node a1.example was drained by ann: fan", 1100.0)


def test_drain_notice_follows_the_deadline_of_its_place(world: World) -> None:
    running(world, notice_s=60.0)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 50.0))
    tick(world)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 55.0))
    tick(world, 49.5)
    assert notices.stands(turn_of(world).state, world.job()) is not None
    tick(world, 0.5)
    assert (notices.stands(turn_of(world).state, world.job()), world.job().message) == (
        None, "it goes on: the drain of its node or GPU was put off",
    )  # fmt: skip
    tick(world)
    again = notices.stands(turn_of(world).state, world.job())
    assert again is not None
    assert (again.number, again.until) == (3, 1055.0)
    assert every(tick(world, 5.0), fx.Kill) == [], "who ends drains ends it"


def test_drain_of_a_queue_gives_each_job_its_own_notice(world: World) -> None:
    running(world, queue="lab", notice_s=20.0)
    change(world, "j1.1", started_at=None)
    running(world, "j2", 1, queue="lab")
    running(world, "j3", 2, queue="other")
    stop = QueueSpec(notice_s=30.0, stop=Stop.DRAIN)
    world.state.put(QueueDocument(version=1, queues={"lab": stop, "other": QueueSpec(notice_s=30.0)}))
    effects = tick(world)
    assert only(effects, fx.GiveNotice).task_id == "j2.1"
    assert only(effects, fx.Kill).task_id == "j1.1", "of one that does not run nothing is lost"
    assert notices.stands(turn_of(world).state, world.job("j3")) is None
    assert every(tick(world, 29.5), fx.Kill) == []
    assert only(tick(world, 0.5), fx.Kill).task_id == "j2.1"


def test_drain_of_a_queue_that_is_taken_back_lets_its_jobs_go_on(world: World) -> None:
    running(world, queue="lab")
    world.state.put(QueueDocument(version=1, queues={"lab": QueueSpec(notice_s=30.0, stop=Stop.DRAIN)}))
    tick(world)
    assert notices.stands(turn_of(world).state, world.job()) is not None
    world.state.put(QueueDocument(version=2, queues={"lab": QueueSpec(notice_s=30.0, stop=Stop.HOLD)}))
    tick(world, 1.0)
    assert notices.stands(turn_of(world).state, world.job()) is None
    assert world.job().message == "it goes on: its node or GPU is not drained any more"
