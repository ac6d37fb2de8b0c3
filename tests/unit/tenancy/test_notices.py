"""Notices: given to all tasks at once, saved first, said again, called off, and followed by the end."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.saves import SaveTask
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec, Stop
from mesos_gpu.wire.mesos.notice import encode_told
from tests.doubles.builders import World, every, gpu, only, saved_of, spec


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"), gpu("g2"))
    return world


def running(world: World, name: str = "j1", *, state: TaskState = TaskState.RUNNING, **fields: object) -> Job:
    """A job whose tasks run for ten seconds by now, each with a GPU."""
    job = Job(JobId(name), spec(name=name, gpus=1, **fields), world.now, world.state.work.next_sequence)
    count = job.spec.tasks
    ids = [TaskId(f"{name}.1" if count == 1 else f"{name}.1.{rank}") for rank in range(count)]
    world.state.set_job(replace(job, state=JobState.RUNNING, task_id=ids[0], launches=1))
    started_at = world.now if state is TaskState.RUNNING else None
    for rank, task_id in enumerate(ids):
        world.state.set_task(
            Task(
                task_id, AgentId("a1"), task_id, job.id, state, world.now, gpus=(GpuId(f"g{rank}"),),
                hostname="a1.example", started_at=started_at, launch=1 if count > 1 else 0, rank=rank,
            )
        )  # fmt: skip
    world.now += 10
    return world.state.work.jobs[job.id]


def give(world: World, name: str = "j1", by: str = "other", **more: Any) -> list[fx.Effect]:
    turn = Turn(world.state, world.settings, world.now)
    notices.give(
        turn, world.job(name), NoticeReason.RECLAIM, "makes room for job other", by=JobId(by), **more
    )
    return turn.effects


def recall(world: World, name: str = "j1") -> tuple[bool, list[fx.Effect]]:
    turn = Turn(world.state, world.settings, world.now)
    return notices.recall(turn, world.job(name), "other starts elsewhere"), turn.effects


def task(world: World, name: str = "j1.1") -> Task:
    return world.state.work.tasks[TaskId(name)]


def notice(world: World, name: str = "j1.1") -> Notice:
    latest = task(world, name).notice
    assert latest is not None
    return latest


def by_itself(world: World, name: str = "j1.1", code: int = 75) -> None:
    state, words = ("TASK_FINISHED" if code == 0 else "TASK_FAILED"), f"Command exited with status {code}"
    world.status(name, state, message=words, outcome=Outcome(exit_status=code))


@pytest.mark.parametrize(
    ("mine", "gains", "told"),
    [
        ("ann", "ann", ("other", "makes room for job other, for which queue prod/x is guaranteed GPUs")),
        ("ann", "", ("other", "makes room for job other, for which queue prod/x is guaranteed GPUs")),
        ("ann", "bob", (None, "makes room for another job, for which its queue is guaranteed GPUs")),
        ("", "bob", (None, "makes room for another job, for which its queue is guaranteed GPUs")),
    ],
)
def test_notice_names_no_job_of_another_owner_to_a_task(
    world: World, mine: str, gains: str, told: tuple[str | None, str]
) -> None:
    running(world, notice_s=60.0)
    world.state.set_job(replace(world.job(), owner=mine))
    taker = spec(name="other", queue="prod/x")
    world.state.set_job(Job(JobId("other"), taker, world.now, world.state.work.next_sequence, owner=gains))
    turn = Turn(world.state, world.settings, world.now)
    why = "makes room for job other, for which queue prod/x is guaranteed GPUs"
    notices.give(turn, world.job(), NoticeReason.RECLAIM, why, by=JobId("other"))
    sent = only(turn.effects, fx.GiveNotice).notice
    assert (sent.by, sent.why) == told
    assert (notice(world).by, notice(world).why) == ("other", why), "who may see it is told by the interface"


def test_notice_is_saved_then_sent_and_followed_by_the_end(world: World) -> None:
    running(world, notice_s=60.0)
    effects = give(world)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(SaveTask) < kinds.index(fx.GiveNotice)
    sent = only(effects, fx.GiveNotice)
    assert (sent.task_id, sent.left_s, sent.notice.number) == ("j1.1", 60.0, 1)
    assert world.job().message == "makes room for job other; it is ended in 60 s and queued again"
    world.status("j1.1", "TASK_RUNNING", data=encode_told(1))
    assert notice(world).told == 1
    assert not every(world.tick(59), fx.Kill)
    assert only(world.tick(2), fx.Kill).task_id == "j1.1"
    world.status("j1.1", "TASK_KILLED")
    job = world.job()
    assert (job.state, job.attempts, job.infrastructure_failures, job.stopped) == (JobState.PENDING, 0, 0, 1)


def test_notice_without_time_is_an_end_at_once(world: World) -> None:
    running(world)
    effects = give(world)
    assert not every(effects, fx.GiveNotice)
    assert only(effects, fx.Kill).task_id == "j1.1"
    assert task(world).preempted_for == "other"


def test_job_that_does_not_run_yet_is_ended_without_a_notice(world: World) -> None:
    running(world, notice_s=60.0, state=TaskState.STARTING)
    assert only(give(world), fx.Kill).task_id == "j1.1"


def test_notice_of_a_gang_is_given_to_all_tasks_at_once(world: World) -> None:
    running(world, notice_s=30.0, tasks=3)
    sent = every(give(world), fx.GiveNotice)
    assert [(each.task_id, each.left_s) for each in sent] == [(f"j1.1.{rank}", 30.0) for rank in range(3)]
    by_itself(world, "j1.1.0")
    assert not every(world.tick(25), fx.Kill), "the others have the rest of their notice"
    assert {kill.task_id for kill in every(world.tick(6), fx.Kill)} == {"j1.1.1", "j1.1.2"}
    for rank in (1, 2):
        world.status(f"j1.1.{rank}", "TASK_KILLED")
    assert (world.job().state, world.job().attempts) == (JobState.PENDING, 0)


@pytest.mark.parametrize(
    ("code", "state", "attempts"),
    [(75, JobState.PENDING, 0), (1, JobState.PENDING, 0), (0, JobState.FINISHED, 1)],
)
def test_task_that_ends_in_time_keeps_its_attempt_and_its_place(
    world: World, code: int, state: JobState, attempts: int
) -> None:
    before = running(world, notice_s=60.0)
    give(world)
    world.tick(5)
    by_itself(world, code=code)
    job = world.job()
    assert (job.state, job.attempts, job.sequence) == (state, attempts, before.sequence)
    if state is JobState.PENDING:
        assert job.message == "makes room for job other; it ended within its notice"
        assert job.not_before <= world.now


def test_time_limit_within_a_notice_counts_as_the_fault_of_the_job(world: World) -> None:
    running(world, notice_s=60.0)
    give(world)
    words = "Ran longer than its timeout_s of 30"
    world.status("j1.1", "TASK_FAILED", message=words, outcome=Outcome(signal=15))
    assert (world.job().state, world.job().attempts) == (JobState.FAILED, 1)


def test_notice_is_repeated_ever_more_rarely_until_it_was_heard(world: World) -> None:
    running(world, notice_s=600.0)
    give(world)
    first = len(every(world.tick(10), fx.GiveNotice))
    later = len(every(world.tick(100), fx.GiveNotice))
    assert first >= 3
    assert later <= 20
    world.status("j1.1", "TASK_RUNNING", data=encode_told(1))
    assert not every(world.tick(100), fx.GiveNotice)


def test_executor_that_says_nothing_loses_its_task_in_time(world: World) -> None:
    running(world, notice_s=20.0)
    give(world)
    assert only(world.tick(21), fx.Kill).task_id == "j1.1"


def test_notice_is_called_off_and_can_be_given_again(world: World) -> None:
    running(world, notice_s=30.0)
    give(world)
    world.status("j1.1", "TASK_RUNNING", data=encode_told(1))
    done, effects = recall(world)
    assert done
    assert only(effects, fx.GiveNotice).notice.number == 2
    assert not notice(world).stands
    assert task(world).preempted_for is None
    assert world.job().message == "it goes on: other starts elsewhere"
    assert not every(world.tick(60), fx.Kill)
    by_itself(world, code=1)
    assert (world.job().state, world.job().attempts) == (JobState.FAILED, 1)
    assert recall(world) == (False, [])


def test_notice_given_again_has_another_number(world: World) -> None:
    running(world, notice_s=30.0)
    give(world)
    recall(world)
    assert only(give(world), fx.GiveNotice).notice.number == 3
    assert only(world.tick(31), fx.Kill).task_id == "j1.1"


def test_notice_with_the_earlier_end_counts(world: World) -> None:
    running(world, notice_s=60.0)
    give(world)
    assert not every(give(world, by="third", notice_s=90.0), fx.GiveNotice)
    assert task(world).preempted_for == "third"
    assert only(give(world, notice_s=10.0), fx.GiveNotice).left_s == 10.0
    assert only(world.tick(11), fx.Kill).task_id == "j1.1"


def test_notice_cannot_be_called_off_when_the_end_has_begun(world: World) -> None:
    running(world, notice_s=5.0)
    give(world)
    world.tick(6)
    assert recall(world) == (False, [])


def test_notice_survives_a_restart_and_is_sent_once_there_is_a_master(world: World) -> None:
    running(world, notice_s=60.0)
    give(world)
    world.state = State.restored(world.now, saved_of(world.state))
    world.now += 20
    sent = every([*world.register(), *world.tick(1)], fx.GiveNotice)
    assert [each.left_s for each in sent] == [pytest.approx(40.0, abs=1.5)]
    assert every(world.tick(60), fx.Kill)


def test_notice_of_an_older_state_is_heeded_all_the_same(world: World) -> None:
    running(world, notice_s=60.0)
    give(world)
    effects = world.status("j1.1", "TASK_RUNNING", data=encode_told(7))
    assert only(effects, fx.GiveNotice).notice.number == 8


@pytest.mark.parametrize(
    ("queue_s", "job_s", "lead_s"),
    [(None, None, 0.0), (None, 90.0, 90.0), (None, 9000.0, 600.0), (60.0, None, 60.0), (60.0, 20.0, 20.0),
     (60.0, 3600.0, 60.0), (0.0, 90.0, 0.0)],
)  # fmt: skip
def test_notice_is_no_longer_than_the_queue_gives(
    world: World, queue_s: float | None, job_s: float | None, lead_s: float
) -> None:
    job = running(world, queue="lab/a", notice_s=job_s)
    queues = {"lab": QueueSpec(notice_s=queue_s), "lab/a": QueueSpec()}
    world.state.put(QueueDocument(version=1, queues=queues))
    assert notices.lead_s(Turn(world.state, world.settings, world.now), job) == lead_s


def test_drain_deadline_gives_notice_that_ends_with_the_drain(world: World) -> None:
    running(world, notice_s=60.0)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 100.0))
    assert not every(world.tick(39), fx.GiveNotice)
    sent = every(world.tick(2), fx.GiveNotice)[0]
    assert sent.notice.reason is NoticeReason.DRAIN
    assert sent.left_s == pytest.approx(60, abs=1)
    assert "g0 was drained by ann: fan" in sent.notice.why
    world.feed(ev.UndrainRequested(Target.GPU, "g0"))
    assert only(world.tick(1), fx.GiveNotice).notice.recalled_at is not None
    assert not every(world.tick(100), fx.Kill)


def test_drain_deadline_ends_jobs_that_did_not_go(world: World) -> None:
    running(world, notice_s=60.0)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 100.0))
    assert not every(world.tick(99), fx.Kill)
    assert only(world.tick(2), fx.Kill).task_id == "j1.1"
    world.status("j1.1", "TASK_KILLED")
    assert world.job().infrastructure_failures == 0


def test_drain_leaves_a_job_that_does_not_run_yet_until_its_deadline(world: World) -> None:
    running(world, notice_s=60.0, state=TaskState.STARTING)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 50.0))
    assert not every(world.tick(49), fx.Kill)
    assert only(world.tick(2), fx.Kill).task_id == "j1.1"


def test_drain_that_is_put_off_gives_a_new_notice(world: World) -> None:
    running(world, notice_s=60.0)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 50.0))
    assert only(world.tick(1), fx.GiveNotice).notice.number == 1
    world.feed(ev.DrainRequested(Target.GPU, "g0", "fan", "ann", 80.0))
    assert not every(world.tick(78), fx.Kill)
    assert notice(world).stands
    assert notice(world).number == 3
    assert only(world.tick(2), fx.Kill).task_id == "j1.1"


def test_time_limit_is_notified_before_and_left_to_the_executor(world: World) -> None:
    running(world, notice_s=30.0, timeout_s=100.0)
    sent = every(world.tick(61), fx.GiveNotice)[0]
    assert (sent.notice.reason, sent.notice.why) == (NoticeReason.TIME_LIMIT, "its time limit of 100 s ends")
    assert not every(world.tick(60), fx.Kill)
    assert not recall(world)[0]
    words = "Ran longer than its timeout_s of 100"
    world.status("j1.1", "TASK_FAILED", message=words, outcome=Outcome(signal=15))
    assert (world.job().state, world.job().message) == (JobState.FAILED, words)


def test_queue_drain_gives_notice_to_its_jobs(world: World) -> None:
    running(world, queue="lab")
    world.state.put(QueueDocument(version=1, queues={"lab": QueueSpec(notice_s=30.0, stop=Stop.DRAIN)}))
    assert only(world.tick(1), fx.GiveNotice).notice.why == "its queue lab is drained"
    world.state.put(QueueDocument(version=2, queues={"lab": QueueSpec(notice_s=30.0)}))
    world.tick(1)
    assert not notice(world).stands


def told_of(world: World) -> list[tuple[float, EventKind, str]]:
    return [(event.at, event.kind, str(event.job_id)) for event in world.state.work.events]


def test_scheduler_restart_keeps_the_latest_events_of_notices(world: World) -> None:
    running(world)
    give(world, notice_s=60)
    world.now += 1
    world.feed(ev.CheckpointTold(JobId("j1")))
    world.now += 1
    recall(world)
    world.status("j1.1", "TASK_FINISHED")
    running(world, "gang", tasks=2)
    give(world, "gang", notice_s=5)
    world.tick(6)
    before = told_of(world)
    assert [each[1:] for each in before] == [
        (EventKind.NOTICE, "j1"), (EventKind.CHECKPOINT, "j1"), (EventKind.RECALL, "j1"), (EventKind.NOTICE, "gang"),
        (EventKind.END, "gang"),
    ]  # fmt: skip
    old = list(world.state.work.events)
    world.state = State.restored(world.now, saved_of(world.state))
    new = list(world.state.work.events)
    assert [each[1:] for each in told_of(world)] == [each[1:] for each in before]
    assert max(event.number for event in new) <= old[-1].number, "nobody who knew them is told again"
    assert [event.number for event in new] == sorted({event.number for event in new})
    first = next(event.notice for event in new if event.kind is EventKind.NOTICE and event.job_id == "j1")
    assert first is not None
    assert first.stands
    world.feed(ev.CheckpointTold(JobId("gang")))
    assert world.state.work.events[-1].number > old[-1].number
