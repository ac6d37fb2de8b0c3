"""Tasks that Mesos knows and the state does not: none is ended for that, none is launched beside itself."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.saves import ForgetTask, Saved, SaveTask, SaveTrust
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tasks.unknown import Label, Listed
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.wire.mesos.labels import listed_from_json
from tests.doubles.builders import World, every, gpu, offer, only, spec


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def listed(job: str = "old", launch: int = 1, *, state: str = "TASK_RUNNING", **label: object) -> Listed:
    """Make what the master lists of a task that another scheduler process has launched."""
    known = Label(JobId(job), (GpuId("g0"),), launch=launch, launched_at=900.0, **label)  # type: ignore[arg-type]
    rank = f".{known.rank}" if known.tasks > 1 else ""
    task_id = TaskId(f"{job}.{launch}{rank}")
    return Listed(
        task_id, AgentId("a1"), state, "train", "h1", "http://h1:5051", 2.0, 512, known, {"team": "vision"}
    )


def doubtful() -> World:
    world = World(state=State.restored(1000.0, Saved("fw-1", (), (), (), doubtful=True)))
    world.register()
    return world


def test_unknown_task_is_held_and_not_killed(world: World) -> None:
    effects = world.status("stranger.1", "TASK_RUNNING")
    assert every(effects, fx.Kill) == []
    assert only(effects, fx.Acknowledge).task_id == "stranger.1"
    assert only(effects, SaveTask).task.unknown is not None
    assert list(world.state.work.unknown) == ["stranger.1"]
    assert every(world.tick(1), fx.ListTasks) == [fx.ListTasks()]
    effects = world.status("stranger.1", "TASK_FINISHED")
    assert every(effects, ForgetTask) == [ForgetTask(TaskId("stranger.1"))]
    assert (world.state.work.unknown, world.state.work.tasks, world.state.work.launches) == ({}, {}, {})


def test_unknown_task_is_held_for_as_long_as_it_runs(world: World) -> None:
    world.status("stranger.1", "TASK_RUNNING")
    world.status("stranger.1", "TASK_UNREACHABLE")
    for _ in range(100):  # a day, with looks at what is due that are a quarter of an hour apart
        world.now += 1000.0
        world.tick(1)
    assert every(world.status("stranger.1", "TASK_RUNNING"), fx.Kill) == []
    assert world.state.work.tasks[TaskId("stranger.1")].state is TaskState.RUNNING


def test_unknown_monitor_is_replaced_by_another_one(world: World) -> None:
    assert only(world.status("gpu-monitor.a1.7.1", "TASK_RUNNING"), fx.Kill).task_id == "gpu-monitor.a1.7.1"
    assert world.state.work.unknown == {}


def test_unknown_task_keeps_its_gpus(world: World) -> None:
    world.feed(ev.TasksListed((listed(),)))
    world.node("a1", gpu("g0"))
    assert world.submit(gpus=1).state is JobState.PENDING
    world.status("old.1", "TASK_FINISHED")
    world.offers(offer("later", gpus=1))
    assert world.job().state is JobState.STARTING


def test_unknown_task_that_has_ended_is_not_held(world: World) -> None:
    world.feed(ev.TasksListed((listed(state="TASK_FINISHED"), listed("lost", state="TASK_LOST"))))
    assert world.state.work.tasks == {}


def test_unknown_task_is_looked_up_once(world: World) -> None:
    world.status("stranger.1", "TASK_RUNNING")
    world.tick(1)
    world.feed(ev.TasksListed((Listed(TaskId("stranger.1"), AgentId("a1"), "TASK_RUNNING"),)))
    assert every(world.tick(60), fx.ListTasks) == []
    with pytest.raises(Conflict, match="no labels"):
        world.feed(ev.UnknownAdopted(TaskId("stranger.1")))


def test_unknown_task_that_the_master_does_not_list_is_forgotten(world: World) -> None:
    world.status("stranger.1", "TASK_RUNNING")
    world.feed(ev.TasksListed(()))
    assert (world.state.work.unknown, world.state.work.tasks, world.state.work.live) == ({}, {}, {})


def test_adopted_task_is_a_job_that_ends_as_any_other(world: World) -> None:
    world.feed(ev.TasksListed((listed(user="ann", queue="q", owner="ann@example.org"),)))
    world.feed(ev.UnknownAdopted(TaskId("old.1")))
    job = world.job("old")
    assert (job.state, job.task_id, job.launches, job.started_at) == (JobState.RUNNING, "old.1", 1, 900.0)
    assert (job.spec.name, job.spec.cpus, job.spec.mem_mib, job.spec.gpus) == ("train", 2.0, 512, 1)
    assert (job.spec.user, job.spec.queue, job.spec.labels) == ("ann", "q", {"team": "vision"})
    assert job.owner == "ann@example.org"
    assert world.state.work.unknown == {}
    world.status("old.1", "TASK_FINISHED")
    assert world.job("old").state is JobState.FINISHED


@pytest.mark.parametrize("end", ["TASK_LOST", "TASK_FAILED", "TASK_KILLED"])
def test_adopted_task_is_never_started_again(world: World, end: str) -> None:
    world.feed(ev.TasksListed((listed(),)))
    world.feed(ev.UnknownAdopted(TaskId("old.1")))
    world.node("a1", gpu("g0"))
    world.status("old.1", end)
    job = world.job("old")
    assert job.state is JobState.FAILED
    world.offers(offer("later", gpus=1))
    assert world.job("old").launches == 1
    if end != "TASK_FAILED":
        assert "submit it again" in job.message


def test_adopted_task_can_be_killed(world: World) -> None:
    world.feed(ev.TasksListed((listed(),)))
    world.feed(ev.UnknownAdopted(TaskId("old.1")))
    assert only(world.feed(ev.KillRequested(JobId("old"))), fx.Kill).task_id == "old.1"


def test_unknown_task_is_ended_by_an_operator_until_it_ends(world: World) -> None:
    world.feed(ev.TasksListed((listed(),)))
    assert only(world.feed(ev.UnknownKilled(TaskId("old.1"))), fx.Kill).task_id == "old.1"
    world.now += 30
    assert only(world.tick(1), fx.Kill).task_id == "old.1"
    world.status("old.1", "TASK_KILLED")
    assert world.state.work.tasks == {}
    for event in (ev.UnknownKilled(TaskId("old.1")), ev.UnknownAdopted(TaskId("old.1"))):
        with pytest.raises(NotFound, match=r"no unknown task old\.1"):
            world.feed(event)


def test_launches_wait_until_the_tasks_of_the_master_are_known() -> None:
    world = doubtful()
    assert every(world.tick(1), fx.ListTasks) == [fx.ListTasks()]
    world.node("a1", gpu("g0"))
    world.submit("j1")
    world.offers(offer("o1"))
    assert world.job().state is JobState.PENDING
    assert every(world.tick(6), fx.ListTasks) == [fx.ListTasks()], "asked again while there is no answer"
    effects = world.feed(ev.TasksListed(()))
    assert every(effects, SaveTrust) == [SaveTrust()]
    assert world.job().state is JobState.STARTING


def test_waiting_job_takes_over_its_listed_launch() -> None:
    world = doubtful()
    world.submit("j1", gpus=1)
    world.feed(ev.TasksListed((listed("j1"),)))
    job = world.job()
    assert (job.state, job.task_id, job.launches, job.adopted) == (JobState.RUNNING, "j1.1", 1, False)
    assert "adopted" in job.message
    assert world.state.work.unknown == {}


def test_waiting_job_takes_over_the_later_of_two_launches() -> None:
    world = doubtful()
    world.submit("j1")
    world.feed(ev.TasksListed(()))
    world.offers(offer("o1"))
    world.status("j1.1", "TASK_RUNNING")
    world.feed(ev.TasksListed((listed("j1", 2),)))
    assert list(world.state.work.unknown) == ["j1.2"]
    world.status("j1.1", "TASK_GONE")
    world.now += 60
    world.tick(1)
    assert (world.job().task_id, world.job().launches, world.job().state) == ("j1.2", 2, JobState.RUNNING)


def test_task_id_is_never_used_twice() -> None:
    world = doubtful()
    world.submit("j1")
    world.feed(ev.TasksListed((listed("j1", 3, state="TASK_FAILED"),)))
    world.offers(offer("o1"))
    assert world.job().task_id == "j1.4"


def test_gang_is_adopted_whole_or_not_at_all(world: World) -> None:
    first, second = (listed("gang", tasks=2, rank=rank) for rank in range(2))
    world.feed(ev.TasksListed((first,)))
    with pytest.raises(Conflict, match="one of 2 tasks"):
        world.feed(ev.UnknownAdopted(first.task_id))
    second = replace(second, label=replace(second.label, gpus=(GpuId("g1"),)))  # type: ignore[type-var]
    world.feed(ev.TasksListed((first, second)))
    world.feed(ev.UnknownAdopted(second.task_id))
    assert [task.id for task in world.state.work.round_of(world.job("gang"))] == ["gang.1.0", "gang.1.1"]
    assert world.state.work.unknown == {}


def test_instance_of_an_app_that_is_known_serves_on() -> None:
    """The instance that an older state asks for is there: no second one is started beside it."""
    world = doubtful()
    web = App("/web", cmd="serve", instances=1, cpus=0.1, mem_mib=32, port_definitions=())
    world.feed(ev.AppsChanged("d1", Group("/", (web,))))
    version = world.state.apps.catalog.versions["/web"].last_config_change_at
    job_id = "web.instance-00000000-0000-0000-0000-000000000001._app"
    world.feed(ev.TasksListed((listed(job_id, app="/web", app_version=version),)))
    world.feed(ev.UnknownAdopted(TaskId(f"{job_id}.1")))
    job = world.job(job_id)
    assert (job.app_version, job.adopted, job.spec.command) == (version, False, "serve")
    for _ in range(5):
        world.tick(3)
        world.offers(offer(f"o{world.now}"))
    assert [j for j in world.state.apps.instances["/web"] if not world.state.work.jobs[j].launches] == []
    assert list(world.state.apps.instances["/web"]) == [job_id]


def test_instance_of_an_app_that_is_not_known_is_a_job(world: World) -> None:
    world.feed(ev.TasksListed((listed("web.instance-1._app", app="/web", app_version=5.0),)))
    world.feed(ev.UnknownAdopted(TaskId("web.instance-1._app.1")))
    world.tick(10)
    assert world.job("web.instance-1._app").state is JobState.RUNNING


def test_launch_labels_are_read_back_as_they_were(world: World) -> None:
    """The labels of a real launch, as the master lists them: all but the command and the environment."""
    world.node("a1", gpu("g0"))
    asked = spec(
        gpus=1,
        env={"S": "secret"},
        labels={"team": "vision", "mesos_gpu.launch": "{}"},
        user="ann",
        queue="q",
    )
    effects = world.feed(ev.JobSubmitted(JobId("j1"), asked))
    item = only(effects, fx.Launch).tasks[0]
    info = to_task_info(item, world.settings)
    assert "secret" not in str(info["labels"])
    task = {"id": item.task.id, "slave_id": "a1", "state": "TASK_RUNNING", "name": info["name"],
            "labels": info["labels"]["labels"], "resources": {"cpus": 1.0, "mem": 128.0}}  # fmt: skip
    agent = {"id": "a1", "hostname": "h1", "pid": "slave(1)@10.0.0.1:5051"}
    (listed,) = listed_from_json([task], [agent])
    assert (listed.hostname, listed.agent_url, listed.labels) == (
        "h1",
        "http://10.0.0.1:5051",
        {"team": "vision"},
    )
    label = listed.label
    assert label is not None
    assert (label.job_id, label.gpus, label.launch, label.user, label.queue) == ("j1", ("g0",), 1, "ann", "q")
    assert label.launched_at == item.task.launched_at
