"""Named volumes of jobs in the engine: who has them, where they are, and when they are removed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.trials import plan_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.reading.volumes import named_volumes
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, NotAccepted, NotFound
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Gpu, Inventory, VolumeRoot
from mesos_gpu.model.tasks.volume import MAX_NAMED, PersistentVolume
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, gpu, offer, saved_of, spec

ROOT = VolumeRoot()


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def mount(name: str = "data", size_mib: int = 100, path: str = "") -> Mount:
    return Mount(name, path or name, read_only=False, volume_mib=size_mib, volume=name)


def submit(world: World, id: str, *mounts: Mount, owner: str = "ann", **fields: object) -> Job:
    """Submit a job that uses volumes, by default one of 100 MiB."""
    request = spec(**{"mounts": mounts or (mount(),), "cpus": 0.1, **fields})
    world.feed(ev.JobSubmitted(JobId(id), request, owner))
    return world.state.work.jobs.get(JobId(id)) or Job(JobId(id), request, 0.0, 0)


def serve(
    world: World, *agents: str, seconds: int = 1, root: VolumeRoot = ROOT, cpus: float = 100, gpus: int = 0
) -> None:
    """Let agents offer, monitors report, launched tasks run and killed ones end."""
    for _ in range(seconds):
        for agent in agents:
            world.serial += 1
            world.offers(offer(f"v{world.serial}", agent, cpus=cpus, mem=1e5, disk=1e5, gpus=gpus))
        world.tick(1)
        for task in [world.state.work.tasks[task_id] for task_id in list(world.state.work.live)]:
            if task.agent_id not in agents:
                continue
            if task.job_id is None:
                data = report.encode(Inventory(cards(task.agent_id, gpus), "none", volumes=root))
                world.status(task.id, "TASK_RUNNING", agent=task.agent_id, data=data)
            else:
                killed = world.state.work.jobs[task.job_id].kill_requested or task.kill_sent_at is not None
                state = "TASK_KILLED" if killed else "TASK_RUNNING"
                world.status(task.id, state, agent=task.agent_id)


def cards(agent: str, count: int) -> tuple[Gpu, ...]:
    return tuple([gpu(f"{agent}-g{number}") for number in range(count)])


def finish(world: World, id: str, state: str = "TASK_FINISHED") -> None:
    (task,) = world.state.work.round_of(world.job(id))
    world.status(task.id, state, agent=task.agent_id)


def only_volume(world: World) -> PersistentVolume:
    (volume,) = world.state.work.volumes.values()
    return volume


def host_of(world: World, id: str) -> str:
    return world.state.work.round_of(world.job(id))[0].hostname


def other_than(host: str) -> tuple[str, str]:
    """Return the agent of a host, and another agent."""
    return ("a1", "a2") if host == "a1.example" else ("a2", "a1")


def why(world: World, id: str) -> str:
    said = explain_job(View(world.state, world.settings, world.now), JobId(id))
    return " | ".join(
        [said.summary, *[f"{node.hostname}: {each}" for node in said.nodes for each in node.reasons]]
    )


def used_by(world: World) -> dict[tuple[str, str], list[str]]:
    view = View(world.state, world.settings, world.now)
    return {(volume.owner, volume.name): [*jobs] for volume, jobs in named_volumes(view)}


def test_first_job_makes_the_record_and_its_launch_binds_it(world: World) -> None:
    job = submit(world, "j1", user="ann1")
    made = only_volume(world)
    assert made == PersistentVolume(
        made.id, "data", 100, "", JobId("j1"), owner="ann", user="ann1", made_at=world.now
    )
    assert job.spec.mounts == (replace(mount(), source=made.id),)
    assert job.spec.resources.disk_mib == 100
    serve(world, "a1", seconds=3)
    bound = only_volume(world)
    assert world.job("j1").state is JobState.RUNNING
    assert (bound.hostname, bound.is_made, bound.used_at > made.made_at) == ("a1.example", True, True)


def test_later_job_uses_the_volume_on_its_host_without_naming_its_size(world: World) -> None:
    submit(world, "j1")
    serve(world, "a1", "a2", seconds=3)
    host = host_of(world, "j1")
    finish(world, "j1")
    serve(world, "a1", "a2", seconds=20)
    kept = only_volume(world)
    job = submit(world, "j2", mount(size_mib=0, path="elsewhere"))
    assert job.spec.mounts == (Mount(kept.id, "elsewhere", False, 100, volume="data"),)
    there, other = other_than(host)
    serve(world, other, seconds=5)
    assert world.job("j2").state is JobState.PENDING
    assert f"{other}.example: its persistent volume data is on {host}" in why(world, "j2")
    serve(world, there, other, seconds=3)
    assert (world.job("j2").state, host_of(world, "j2")) == (JobState.RUNNING, host)
    assert only_volume(world) == replace(kept, job_id=JobId("j2"), used_at=only_volume(world).used_at)


def test_jobs_of_one_owner_use_a_volume_at_the_same_time_on_one_host(world: World) -> None:
    for id in ("j1", "j2", "j3"):
        submit(world, id)
    serve(world, "a1", "a2", seconds=3)
    assert {world.job(id).state for id in ("j1", "j2", "j3")} == {JobState.RUNNING}
    assert len({host_of(world, id) for id in ("j1", "j2", "j3")}) == 1
    assert used_by(world) == {("ann", "data"): ["j1", "j2", "j3"]}


def test_second_job_of_a_match_waits_if_the_host_of_the_first_is_full(world: World) -> None:
    submit(world, "warm", mount("other"))
    serve(world, "a1", "a2", seconds=3)
    submit(world, "j1", cpus=5)
    submit(world, "j2", cpus=5)
    serve(world, "a1", "a2", cpus=8, seconds=1)
    states = sorted(world.job(id).state.value for id in ("j1", "j2"))
    assert states == ["pending", "running"]
    assert "its persistent volume data is on" in why(world, "j2")


def test_array_shares_one_volume_until_it_has_ended(world: World) -> None:
    submit(world, "many", array="0-3%2")
    serve(world, "a1", "a2", seconds=3)
    running = [job for job in world.state.work.jobs.values() if job.state is JobState.RUNNING]
    assert len(running) == 2
    assert used_by(world) == {("ann", "data"): ["many"]}
    assert len({world.state.work.round_of(job)[0].hostname for job in running}) == 1
    with pytest.raises(Conflict, match="1 job that has not ended uses the volume data: many"):
        world.feed(ev.VolumeRemoved("ann", "data"))
    world.feed(ev.ArrayKillRequested(JobId("many")))
    serve(world, "a1", "a2", seconds=5)
    assert used_by(world) == {("ann", "data"): []}


@pytest.mark.parametrize("how", ["TASK_FAILED", "TASK_LOST"])
def test_job_that_starts_again_has_its_volume_again(world: World, how: str) -> None:
    submit(world, "j1", max_attempts=3)
    serve(world, "a1", "a2", seconds=3)
    host, (task,) = host_of(world, "j1"), world.state.work.round_of(world.job("j1"))
    world.status(task.id, how, agent=task.agent_id)
    there, other = other_than(host)
    serve(world, other, seconds=30)
    assert world.job("j1").state is JobState.PENDING
    serve(world, there, other, seconds=30)
    assert (world.job("j1").state, host_of(world, "j1")) == (JobState.RUNNING, host)
    assert world.job("j1").task_id != task.id


def test_preempted_job_waits_for_the_host_of_its_volume(world: World) -> None:
    submit(world, "j1", preemptible=True, gpus=1)
    for _ in range(2):
        serve(world, "a1", gpus=1)
    serve(world, "a1", gpus=1, seconds=3)
    assert host_of(world, "j1") == "a1.example"
    world.submit("high", gpus=1, priority=9)
    world.tick(10)
    serve(world, "a1", gpus=1, seconds=2)
    assert (world.job("high").state, world.job("j1").state) == (JobState.RUNNING, JobState.PENDING)
    serve(world, "a2", gpus=1, seconds=5)
    assert "its persistent volume data is on a1.example" in why(world, "j1")
    finish(world, "high")
    serve(world, "a1", gpus=1, seconds=40)
    assert host_of(world, "j1") == "a1.example"


def test_job_whose_host_is_drained_waits(world: World) -> None:
    submit(world, "j1")
    serve(world, "a1", "a2", seconds=3)
    host = host_of(world, "j1")
    finish(world, "j1")
    world.feed(ev.DrainRequested(Target.NODE, host, reason="disk"))
    submit(world, "j2")
    serve(world, "a1", "a2", seconds=5)
    assert world.job("j2").state is JobState.PENDING
    said, (_, other) = why(world, "j2"), other_than(host)
    assert f"{host}: is drained" in said
    assert f"{other}.example: its persistent volume data is on {host}" in said


def test_restart_of_the_scheduler_keeps_the_volume_and_its_host(world: World) -> None:
    submit(world, "j1")
    serve(world, "a1", "a2", seconds=3)
    host, kept = host_of(world, "j1"), only_volume(world)
    finish(world, "j1")
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    assert only_volume(world) == kept
    submit(world, "j2", mount(size_mib=0))
    serve(world, "a1", "a2", seconds=5)
    assert host_of(world, "j2") == host


def test_volume_that_no_job_was_launched_with_goes_with_its_last_job(world: World) -> None:
    submit(world, "j1")
    submit(world, "j2")
    world.feed(ev.KillRequested(JobId("j1")))
    world.tick(5)
    assert used_by(world) == {("ann", "data"): ["j2"]}
    world.feed(ev.KillRequested(JobId("j2")))
    world.tick(5)
    assert world.state.work.volumes == {}


def test_volume_outlives_the_memory_of_its_jobs(world: World) -> None:
    world.settings = replace(world.settings, memory=replace(world.settings.memory, keep_ended_jobs=0))
    submit(world, "j1")
    serve(world, "a1", seconds=3)
    finish(world, "j1")
    serve(world, "a1", seconds=20)
    assert JobId("j1") not in world.state.work.jobs
    assert only_volume(world).job_id == "j1"


def removals(world: World, agent: str, root: VolumeRoot = ROOT) -> list[tuple[str, ...]]:
    """Let a monitor report, and return the volumes that it is asked to remove."""
    monitor = world.state.cluster.nodes[AgentId(agent)].monitor
    assert monitor is not None
    data = report.encode(Inventory((), "none", volumes=root))
    effects = world.status(monitor, "TASK_RUNNING", agent=agent, data=data)
    return [each.volumes for each in every(effects, fx.AskRemoval)]


def test_removed_volume_is_forgotten_when_its_node_has_removed_it(world: World) -> None:
    submit(world, "j1")
    serve(world, "a1", seconds=3)
    finish(world, "j1")
    volume = only_volume(world)
    assert removals(world, "a1") == []
    world.feed(ev.VolumeRemoved("ann", "data"))
    assert removals(world, "a1") == [(volume.id,)]
    with pytest.raises(NotFound, match="ann has no volume data"):
        world.feed(ev.VolumeRemoved("ann", "data"))
    assert removals(world, "a1", VolumeRoot(removed=(volume.id,))) == []
    assert world.state.work.volumes == {}


def test_volume_whose_host_is_away_is_removed_when_it_is_back(world: World) -> None:
    submit(world, "j1")
    serve(world, "a1", seconds=3)
    finish(world, "j1")
    volume = only_volume(world)
    world.feed(ev.AgentLost(AgentId("a1")))
    world.feed(ev.VolumeRemoved("ann", "data"))
    again = submit(world, "j2", mount(size_mib=50))
    assert again.spec.mounts[0].source != volume.id, "another volume of that name"
    serve(world, "a2", seconds=5)
    assert host_of(world, "j2") == "a2.example"
    assert world.state.work.volumes[volume.id].unwanted
    serve(world, "a1", seconds=3)
    assert removals(world, "a1") == [(volume.id,)]
    assert removals(world, "a1", VolumeRoot(removed=(volume.id,))) == []
    assert only_volume(world).id == again.spec.mounts[0].source


@pytest.mark.parametrize("ended", [False, True])
def test_volume_is_not_removed_while_a_job_or_a_task_uses_it(world: World, ended: bool) -> None:
    submit(world, "j1")
    serve(world, "a1", seconds=3)
    if not ended:
        with pytest.raises(Conflict, match="1 job that has not ended uses the volume data: j1") as refused:
            world.feed(ev.VolumeRemoved("ann", "data"))
        assert "mesos-gpu kill" in refused.value.remedy
        assert not only_volume(world).unwanted
        return
    (task,) = world.state.work.round_of(world.job("j1"))
    world.status(task.id, "TASK_UNREACHABLE", agent="a1")
    world.tick(world.settings.mesos.unreachable_timeout_s + 10)
    world.feed(ev.KillRequested(JobId("j1")))
    world.tick(5)
    assert world.job("j1").state.ended
    assert task.id in world.state.work.live, "its end is not known, so it may still write"
    world.feed(ev.VolumeRemoved("ann", "data"))
    assert removals(world, "a1") == []
    world.status(task.id, "TASK_KILLED", agent="a1")
    assert removals(world, "a1") == [(only_volume(world).id,)]


def test_owners_have_volumes_of_their_own_by_the_same_name(world: World) -> None:
    first, second = submit(world, "j1"), submit(world, "j2", mount(size_mib=5), owner="bob")
    assert first.spec.mounts[0].source != second.spec.mounts[0].source
    assert used_by(world) == {("ann", "data"): ["j1"], ("bob", "data"): ["j2"]}
    world.feed(ev.KillRequested(JobId("j2")))
    with pytest.raises(NotFound, match="eve has no volume data"):
        world.feed(ev.VolumeRemoved("eve", "data"))
    world.feed(ev.VolumeRemoved("bob", "data"))
    assert used_by(world) == {("ann", "data"): ["j1"]}


def test_job_without_a_proved_name_has_volumes_of_its_unix_user(world: World) -> None:
    submit(world, "j1", owner="", user="ann")
    submit(world, "j2", owner="", user="bob")
    submit(world, "j3", owner="")
    assert [*used_by(world)] == [("", "data"), ("ann", "data"), ("bob", "data")]


REFUSED: dict[str, tuple[Callable[[World], object], str, str]] = {
    "no size": (lambda world: submit(world, "x", mount("new", 0)), "/volumes/0/size", "ann has no volume new yet"),
    "another size": (
        lambda world: submit(world, "x", mount(size_mib=7)), "/volumes/0/size",
        "is 7 MiB, and the volume data has 100 MiB",
    ),
    "another Unix user": (
        lambda world: submit(world, "x", user="root"), "/user", "belongs to the Unix user that jobs have by default"
    ),
    "too much in all": (
        lambda world: submit(world, "x", mount("a", 800), mount("b", 101)), "/volumes/0/size",
        "asks for 901 MiB of new volumes: ann has 100 MiB in 1 volume, and 1000 MiB are allowed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_volume_names_field_and_value_and_changes_nothing(world: World, case: str) -> None:
    world.settings = world.settings.changed(user_volumes_mib=1000)
    submit(world, "j1")
    before = saved_of(world.state)
    ask, field, said = REFUSED[case]
    with pytest.raises(NotAccepted) as refused:
        ask(world)
    assert [place for place, _ in refused.value.faults] == [field]
    assert said in str(refused.value)
    assert "mesos-gpu storage list" in refused.value.remedy
    assert saved_of(world.state) == before


def test_limit_of_volumes_counts_those_of_the_owner_that_stay(world: World) -> None:
    world.settings = world.settings.changed(user_volumes_mib=150)
    submit(world, "j1")
    submit(world, "j2", owner="bob")
    serve(world, "a1", seconds=3)
    finish(world, "j1")
    with pytest.raises(NotAccepted, match="and 150 MiB are allowed"):
        submit(world, "x", mount("more", 51))
    submit(world, "j3", mount("more", 50))
    world.feed(ev.VolumeRemoved("ann", "data"))
    submit(world, "j4", mount("again", 100))
    world.settings = world.settings.changed(user_volumes_mib=0)
    submit(world, "j5", mount("huge", 2**31))


def test_owner_has_a_bounded_number_of_volumes(world: World) -> None:
    for number in range(MAX_NAMED):
        id = f"00000000-0000-0000-0000-{number:012}"
        world.state.put(PersistentVolume(id, f"v{number}", 1, "", JobId("old"), "h", owner="ann"))
    with pytest.raises(NotAccepted, match=f"one volume too many: ann has {MAX_NAMED}, and {MAX_NAMED} are"):
        submit(world, "x", mount("more", 1))
    submit(world, "j1", mount("v7", 1))
    submit(world, "j2", owner="bob")


def test_plan_of_a_job_with_a_new_volume_leaves_no_record(world: World) -> None:
    serve(world, "a1", seconds=1)
    view = View(world.state, world.settings, world.now)
    planned = plan_job(view, ev.JobSubmitted(JobId("p"), spec(mounts=(mount(),), cpus=0.1), "ann"))
    assert planned.why.can_ever_run
    assert world.state.work.volumes == {}


def test_volume_bars_other_hosts_for_its_own_jobs_alone(world: World) -> None:
    submit(world, "j1", gpus=1)
    serve(world, "a1", "a2", gpus=1, seconds=4)
    _, other = other_than(host_of(world, "j1"))
    world.submit("plain", gpus=1)
    submit(world, "j2", gpus=1)
    serve(world, other, gpus=1, seconds=4)
    assert host_of(world, "plain") == f"{other}.example"
    assert world.job("j2").state is JobState.PENDING


def test_wiped_job_keeps_its_named_volume(world: World) -> None:
    submit(world, "j1")
    serve(world, "a1", seconds=3)
    world.feed(ev.KillRequested(JobId("j1"), wipe=True))
    serve(world, "a1", seconds=3)
    assert not only_volume(world).unwanted
