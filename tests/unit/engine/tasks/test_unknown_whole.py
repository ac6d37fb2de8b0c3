"""Tasks that are taken up by their labels: all that the labels say is in the task and in its job, and no more."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState, OnGpuFailure, OnMemberFailure
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import Resizing
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tasks.unknown import AskedShare, Label, Listed, Unknown
from tests.doubles.builders import World, every, gpu, only, saved_of, spec
from tests.unit.engine.tasks.test_engine_unknown import doubtful, listed
from tests.unit.engine.tasks.test_listed import holding, unlabelled

SHARE = Share(250, 20000, 30000, Method.SHIM_WINDOWS)
ONE, TWO = TaskId("one.1"), TaskId("two.1")
LABEL = Label(
    JobId("j"), (GpuId("g0"),), (31000, 31001), 3, 5, 0, 1, 900.0, None, None, "root", "q", "ann", 7.0, True, SHARE,
    AskedShare(250, None, None, 30000),
)  # fmt: skip


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def told(label: Label | None) -> Listed:
    return Listed(
        TaskId("j.5"), AgentId("a1"), "TASK_RUNNING", "train", "h1", "u1", 2.0, 512, label, {"a": "b"}
    )


def held(listed: Listed | None, since: float = 1000.0) -> Task:
    """A task of which nothing is known but what the list says, if anything."""
    id = TaskId("j.5")
    return Task(
        id, AgentId("a1"), id, JobId(id), TaskState.RUNNING, since, heard_at=since, unknown=Unknown(since, listed),
        hostname=listed.hostname if listed else "", agent_url=listed.agent_url if listed else "",
    )  # fmt: skip


def described(since: float = 1000.0) -> Task:
    return replace(
        held(told(LABEL), since), job_id=JobId("j"), gpus=LABEL.gpus, share=SHARE, ports=LABEL.ports, attempt=3,
        launched_at=900.0, sealed=True, resize=Resizing(0, SHARE, SHARE, 1000.0),
    )  # fmt: skip


def test_held_task_has_all_that_its_labels_say(world: World) -> None:
    world.feed(ev.TasksListed((told(LABEL),)))
    assert world.state.work.tasks == {"j.5": described()}
    assert world.state.work.launches == {"j": ("j.5",)}


def test_held_task_is_described_by_a_later_list(world: World) -> None:
    world.status("j.5", "TASK_RUNNING")
    assert world.state.work.tasks == {"j.5": held(None)}
    assert world.state.work.launches == {"j.5": ("j.5",)}
    world.feed(ev.TasksListed((told(LABEL),)))
    assert world.state.work.tasks == {"j.5": described()}
    assert world.state.work.launches == {"j": ("j.5",)}
    world.feed(ev.TasksListed((told(replace(LABEL, attempt=9)),)))
    assert world.state.work.tasks == {"j.5": described()}, "it is described once"


def test_held_task_without_labels_stays_its_own_job(world: World) -> None:
    world.status("j.5", "TASK_RUNNING")
    world.feed(ev.TasksListed((told(None),)))
    assert world.state.work.tasks == {"j.5": held(told(None))}
    assert world.state.work.launches == {"j.5": ("j.5",)}


def test_adopted_job_asks_for_what_its_labels_say(world: World) -> None:
    world.feed(ev.TasksListed((told(LABEL),)), ev.UnknownAdopted(TaskId("j.5")))
    assert world.state.work.tasks == {"j.5": replace(described(), unknown=None, started_at=900.0)}
    assert world.job("j") == Job(
        JobId("j"),
        JobSpec(
            name="train", cpus=2.0, mem_mib=512, gpus=1, user="root", labels={"a": "b"}, queue="q", kill_grace_s=7.0,
            on_gpu_failure=OnGpuFailure.NOTIFY, on_member_failure=OnMemberFailure.FAIL, gpu_milli=250,
            gpu_memory_max_mib=30000,
        ),
        900.0,
        1,
        JobState.RUNNING,
        task_id=TaskId("j.5"),
        launches=5,
        attempts=2,
        started_at=900.0,
        message="adopted: it runs on h1",
        owner="ann",
        adopted=True,
    )  # fmt: skip


@pytest.mark.parametrize(("had", "attempt", "attempts"), [(0, 1, 0), (0, 3, 2), (1, 3, 2), (5, 3, 5)])
def test_adopted_launch_counts_the_attempts_before_it(
    world: World, had: int, attempt: int, attempts: int
) -> None:
    job = Job(JobId("j"), spec(), 1.0, 1, attempts=had)
    world.state.put(job)
    world.feed(ev.TasksListed((told(replace(LABEL, attempt=attempt)),)))
    assert world.job("j").attempts == attempts


def test_adopted_task_that_has_not_started_is_shown_so(world: World) -> None:
    world.feed(
        ev.TasksListed((replace(told(LABEL), state="TASK_STARTING"),)), ev.UnknownAdopted(TaskId("j.5"))
    )
    assert world.state.work.tasks[TaskId("j.5")].started_at is None
    assert (world.job("j").state, world.job("j").started_at) == (JobState.STARTING, 900.0)


def test_adoption_of_one_task_leaves_the_others(world: World) -> None:
    world.feed(
        ev.TasksListed((listed("one"), holding("two", "g2"), unlabelled("x.1"))), ev.UnknownAdopted(TWO)
    )
    assert list(world.state.work.unknown) == [ONE, "x.1"]
    assert world.job("two").message == "adopted: it runs on h1"
    assert world.state.work.round_of(world.job("two")) == [world.state.work.tasks[TWO]]


@pytest.mark.parametrize(
    ("name", "left", "index"),
    [
        ("sweep.2-0a1b", ((0, 1), (3, 3)), 2),
        ("sweep.0-0a1b", ((1, 3),), 0),
        ("sweep.4-0a1b", ((0, 3),), None),
        ("other.2-0a1b", ((0, 3),), None),
        ("sweep", ((0, 3),), None),
    ],
)
def test_adopted_member_of_an_array_is_its_task(
    world: World, name: str, left: tuple[tuple[int, int], ...], index: int | None
) -> None:
    array = JobArray(JobId("sweep-0a1b"), spec(name="sweep", array="0-3"), 0.0, 1, left=left)
    world.state.put(array)
    world.feed(ev.TasksListed((listed(name),)), ev.UnknownAdopted(TaskId(f"{name}.1")))
    job = world.job(name)
    assert (job.array, job.index) == (None if index is None else array.id, index)


def test_job_that_waits_takes_up_no_launch_that_is_told_to_end(world: World) -> None:
    world.feed(ev.TasksListed((listed("one"),)), ev.UnknownKilled(ONE))
    world.submit("one", gpus=64)
    world.tick(2)
    assert (world.job("one").state, list(world.state.work.unknown)) == (JobState.PENDING, [ONE])


@pytest.mark.parametrize(
    ("job", "tasks", "takes_up"),
    [
        ({}, 1, True),
        ({"launches": 1}, 1, True),
        ({"launches": 2}, 1, False),
        ({"kill_requested": True}, 1, False),
        ({"state": JobState.RUNNING, "task_id": TaskId("one.9")}, 1, False),
        ({}, 2, False),
    ],
)
def test_job_takes_up_a_launch_if_it_waits_for_it(job: dict[str, object], tasks: int, takes_up: bool) -> None:
    world = doubtful()
    other = Task(TaskId("one.9"), AgentId("a1"), "one.9", JobId("one"), TaskState.RUNNING, 1.0)
    world.state.put(replace(Job(JobId("one"), spec(gpus=64, tasks=tasks), 1.0, 1), **job))  # type: ignore[arg-type]
    if "task_id" in job:
        world.state.put(other)
    world.feed(ev.TasksListed((listed("one"),)))
    assert (ONE not in world.state.work.unknown) is takes_up


def test_job_takes_up_nothing_of_an_old_state_before_the_master_lists_it(world: World) -> None:
    world.feed(ev.TasksListed((listed("one"),)))
    world.state = State.restored(world.now, replace(saved_of(world.state), doubtful=True))
    world.state.put(Job(JobId("one"), spec(gpus=64), 1.0, 9))
    world.register()
    world.tick(2)
    assert list(world.state.work.unknown) == [ONE]
    world.feed(ev.TasksListed((listed("one"),)))
    assert list(world.state.work.unknown) == []


@pytest.mark.parametrize(
    ("state", "launches", "then"),
    [(JobState.PENDING, 2, 3), (JobState.PENDING, 3, 3), (JobState.PENDING, 4, 4), (JobState.RUNNING, 2, 2)],
)
def test_next_launch_comes_after_all_that_the_master_lists(state: JobState, launches: int, then: int) -> None:
    world = doubtful()
    world.state.put(
        Job(JobId("one"), spec(gpus=64), 1.0, 1, state, task_id=TaskId("one.2"), launches=launches)
    )
    world.state.put(Task(TaskId("one.2"), AgentId("a1"), "one.2", JobId("one"), TaskState.RUNNING, 1.0))
    world.feed(ev.TasksListed((listed("one", 3, state="TASK_FAILED"),)))
    assert world.job("one").launches == then


@pytest.mark.parametrize("state", ["TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"])
@pytest.mark.parametrize("task_id", ["x.1", "gpu-cover.1.1.g0"])
def test_unknown_task_is_held_in_each_state_before_its_end(world: World, task_id: str, state: str) -> None:
    world.status(task_id, state)
    assert list(world.state.work.tasks) == [task_id]
    again = World()
    again.register()
    again.feed(ev.TasksListed((replace(unlabelled(task_id), state=state),)))
    assert list(again.state.work.tasks) == [task_id]
    assert again.state.work.tasks[TaskId(task_id)].state is world.state.work.tasks[TaskId(task_id)].state


@pytest.mark.parametrize(
    "state", ["TASK_FINISHED", "TASK_KILLED", "TASK_LOST", "TASK_UNREACHABLE", "TASK_NEW"]
)
@pytest.mark.parametrize("task_id", ["x.1", "gpu-cover.1.1.g0", "gpu-monitor.a1.1"])
def test_unknown_task_that_does_not_run_is_not_held(world: World, task_id: str, state: str) -> None:
    effects = world.status(task_id, state)
    assert (world.state.work.tasks, every(effects, fx.Kill)) == ({}, [])
    world.feed(ev.TasksListed((replace(unlabelled(task_id), state=state),)))
    assert world.state.work.tasks == {}


def test_kill_of_an_unknown_task_is_sent_again_after_a_time(world: World) -> None:
    world.feed(ev.TasksListed((listed("one"), holding("two", "g2"))), ev.UnknownKilled(ONE))
    told_at, resend_s = world.now, world.settings.tasks.kill_resend_s
    for now, kills in ((told_at + resend_s - 0.5, 0), (told_at + resend_s, 1), (told_at + resend_s + 1, 0)):
        world.now = now
        assert every(world.feed(ev.Tick()), fx.Kill) == [fx.Kill(ONE, AgentId("a1"))] * kills


def test_list_of_tasks_is_asked_for_again_after_a_time(world: World) -> None:
    world.status("x.1", "TASK_RUNNING")
    asked = []
    for _ in range(21):
        asked.append(len(every(world.feed(ev.Tick()), fx.ListTasks)))
        world.now += 0.5
    assert asked == [1, *[0] * 9, 1, *[0] * 9, 1]


def test_held_task_of_a_known_node_is_there(world: World) -> None:
    world.node("a1", gpu("g0"))
    world.status("x.1", "TASK_RUNNING")
    task = world.state.work.tasks[TaskId("x.1")]
    assert (task.hostname, task.agent_url) == ("a1.example", "http://a1:5051")
    assert only(world.tick(1), fx.ListTasks) == fx.ListTasks()
