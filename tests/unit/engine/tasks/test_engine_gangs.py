"""Jobs of several tasks: all start, or none does; what befalls one befalls all."""

import json
from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobState, OnMemberFailure
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.saves import SaveJob, SaveTask
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import World, every, gpu, offer, only, saved_of, spec
from tests.doubles.problems import problems


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def nodes(world: World, count: int = 3, gpus: int = 2, **more: float) -> None:
    for i in range(count):
        made = (gpu(f"g{i * gpus + k}") for k in range(gpus))
        world.node(f"a{i}", *made, **more)  # type: ignore[arg-type]


def members(world: World, name: str = "j1") -> list[Task]:
    return world.state.work.round_of(world.job(name))


def gang(world: World, tasks: int = 3, gpus: int = 2, **more: object) -> list[fx.LaunchTask]:
    return launched(world.feed(ev.JobSubmitted(JobId("j1"), spec(tasks=tasks, gpus=gpus, **more))))


def launched(effects: list[fx.Effect]) -> list[fx.LaunchTask]:
    items = [item for launch in every(effects, fx.Launch) for item in launch.tasks]
    return sorted(items, key=lambda item: item.task.rank)


def each(world: World, state: str, *, skip: int = -1, outcome: Outcome | None = None) -> list[fx.Effect]:
    effects = []
    for task in members(world):
        if task.rank != skip:
            effects += world.status(task.id, state, agent=task.agent_id, outcome=outcome)
    return effects


def running(world: World, **more: object) -> None:
    nodes(world)
    gang(world, **more)  # type: ignore[arg-type]
    each(world, "TASK_STARTING")
    each(world, "TASK_RUNNING")
    assert world.job().state is JobState.RUNNING


def test_gang_starts_together_over_several_agents(world: World) -> None:
    nodes(world)
    items = gang(world)
    assert [item.task.id for item in items] == ["j1.1.0", "j1.1.1", "j1.1.2"]
    assert sorted(item.task.agent_id for item in items) == ["a0", "a1", "a2"]
    assert all(len(item.task.gpus) == 2 for item in items)
    assert world.job().state is JobState.STARTING
    assert world.job().task_id == "j1.1.0"


def test_gang_members_have_the_addresses_of_each_other(world: World) -> None:
    nodes(world, count=2)
    items = gang(world, tasks=4, gpus=1)
    hosts = ["a0.example", "a0.example", "a1.example", "a1.example"]
    for rank, item in enumerate(items):
        env = item.env
        assert (env["RANK"], env["WORLD_SIZE"]) == (str(rank), "4")
        assert env["MASTER_ADDR"] == hosts[0]
        assert env["HOST"] == hosts[rank]
        assert env["MASTER_PORT"] == items[0].env["PORT"]
        assert list(item.hosts) == hosts
        assert item.ports == (PortRange(int(env["PORT"]), int(env["PORT"])),)
        cluster = json.loads(env["TF_CONFIG"])
        assert cluster["task"] == {"type": "worker", "index": rank}
        assert cluster["cluster"]["worker"][rank] == f"{hosts[rank]}:{env['PORT']}"
    ports = [(item.task.agent_id, item.task.ports) for item in items]
    assert len(set(ports)) == 4, "no two on one host share a port"


def test_gang_has_the_variables_of_torchrun_unless_its_job_sets_them(world: World) -> None:
    nodes(world, count=2)
    items = gang(world, tasks=2, gpus=2, env={"PET_NPROC_PER_NODE": "4", "RANK": "7"})
    told = {key: value for key, value in items[1].env.items() if key.startswith("PET_")}
    first = {"PET_MASTER_ADDR": "a0.example", "PET_MASTER_PORT": items[0].env["PORT"]}
    assert told == {"PET_NNODES": "2", "PET_NODE_RANK": "1", **first}
    assert items[1].env["RANK"] == "1", "of the gang itself the job says nothing"


@pytest.mark.parametrize(
    ("tasks", "gpus", "fits"), [(3, 2, True), (4, 2, False), (6, 1, True), (7, 1, False), (1, 3, False)]
)
def test_gang_is_launched_whole_or_not_at_all(world: World, tasks: int, gpus: int, fits: bool) -> None:
    nodes(world)
    items = gang(world, tasks=tasks, gpus=gpus)
    assert len(items) == (tasks if fits else 0)
    assert world.job().state is (JobState.STARTING if fits else JobState.PENDING)
    if not fits:
        assert not [t for t in world.state.work.tasks.values() if t.job_id]
        world.submit("j2", gpus=2, tasks=3, timeout_s=5.0)  # the trial left nothing behind
        assert (world.job("j2").state is JobState.STARTING) == (tasks * gpus > 6 or tasks == 1)


def test_gang_placement_counts_cpus_memory_and_ports(world: World) -> None:
    nodes(world, cpus=4)
    assert not gang(world, gpus=1, tasks=6, cpus=2.0)
    world.feed(ev.KillRequested(JobId("j1")))
    few = replace(offer("few", "few", gpus=4), ports=(PortRange(5, 5),))
    world.offers(few)
    items = launched(world.feed(ev.JobSubmitted(JobId("j9"), spec(tasks=2, gpus=0))))
    assert len({(item.task.agent_id, item.task.ports) for item in items}) == 2


def test_gang_placement_needs_a_port_on_each_node(world: World) -> None:
    world.offers(replace(offer("o1", "bare", gpus=0), ports=()))
    assert not gang(world, tasks=2, gpus=0)
    world.offers(replace(offer("o2", "bare", gpus=0), ports=(PortRange(7, 8),)))
    assert sorted(task.ports for task in members(world)) == [(7,), (8,)]


def test_gang_members_have_gpus_of_one_model(world: World) -> None:
    world.node("a0", gpu("g0", "T4"), gpu("g1", "T4"))
    world.node("a1", gpu("g2", "A100"), gpu("g3", "T4"))
    items = gang(world, tasks=3, gpus=1, gpu_model=("A100", "T4"))
    models = {g for item in items for g in item.task.gpus}
    assert models == {"g0", "g1", "g3"}


def test_gang_members_keep_constraints_among_themselves(world: World) -> None:
    nodes(world, count=2, gpus=4)
    unique = (Constraint("hostname", Operator.UNIQUE),)
    assert not gang(world, tasks=3, gpus=1, constraints=unique)
    world.node("a9", gpu("g9"))
    assert sorted(task.agent_id for task in members(world)) == ["a0", "a1", "a9"]


def test_gang_members_start_when_all_have_their_places(world: World) -> None:
    nodes(world)
    gang(world)
    assert not every(each(world, "TASK_STARTING", skip=1), fx.Start)
    effects = world.status("j1.1.1", "TASK_STARTING", agent=members(world)[1].agent_id)
    assert [start.task_id for start in every(effects, fx.Start)] == ["j1.1.0", "j1.1.1", "j1.1.2"]
    assert world.job().state is JobState.STARTING


def test_gang_start_is_repeated_until_it_is_heard(world: World) -> None:
    nodes(world)
    gang(world)
    each(world, "TASK_STARTING")
    world.status("j1.1.0", "TASK_RUNNING", agent=members(world)[0].agent_id)
    said = [start.task_id for start in every(world.tick(5), fx.Start)]
    assert said == ["j1.1.1", "j1.1.2"] * 2
    each(world, "TASK_RUNNING")
    assert not every(world.tick(5), fx.Start)
    assert world.job().state is JobState.RUNNING
    assert world.job().started_at is not None


def test_gang_start_is_repeated_after_a_restart_of_the_scheduler(world: World) -> None:
    nodes(world)
    gang(world)
    each(world, "TASK_STARTING")
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    assert len(every(world.tick(1), fx.Start)) == 3


def test_gang_has_finished_when_all_members_have(world: World) -> None:
    running(world)
    each(world, "TASK_FINISHED", skip=2)
    assert world.job().state is JobState.RUNNING
    each(world, "TASK_FINISHED")
    job = world.job()
    assert (job.state, job.attempts, job.exit_code) == (JobState.FINISHED, 1, 0)


def test_gang_failure_ends_all_members_and_uses_one_attempt(world: World) -> None:
    running(world, max_attempts=2)
    rank = members(world)[1]
    effects = world.status(rank.id, "TASK_FAILED", agent=rank.agent_id, outcome=Outcome(exit_status=3))
    assert {kill.task_id for kill in every(effects, fx.Kill)} == {"j1.1.0", "j1.1.2"}
    assert world.job().state is JobState.RUNNING, "not before the last of them has ended"
    each(world, "TASK_KILLED", skip=1)
    job = world.job()
    assert (job.state, job.attempts, job.exit_code) == (JobState.PENDING, 1, 3)
    assert "rank 1" in job.message


def test_gang_fails_with_its_last_attempt(world: World) -> None:
    running(world)
    world.status("j1.1.0", "TASK_FINISHED", agent=members(world)[0].agent_id)
    world.status("j1.1.1", "TASK_FAILED", agent=members(world)[1].agent_id, outcome=Outcome(exit_status=7))
    world.status("j1.1.2", "TASK_FAILED", agent=members(world)[2].agent_id, outcome=Outcome(signal=15))
    job = world.job()
    assert (job.state, job.attempts, job.exit_code) == (JobState.FAILED, 1, 7), "the first is to blame"


def test_gang_with_a_lost_member_restarts_without_an_attempt(world: World) -> None:
    running(world)
    lost = members(world)[2]
    world.status(lost.id, "TASK_LOST", agent=lost.agent_id)
    each(world, "TASK_KILLED", skip=2)
    job = world.job()
    assert (job.state, job.attempts, job.infrastructure_failures) == (JobState.PENDING, 0, 1)


@pytest.mark.parametrize(("state", "attempts"), [("TASK_LOST", 0), ("TASK_FAILED", 1)])
def test_gang_fails_by_policy_and_counts_an_attempt_only_of_a_failed_member(
    world: World, state: str, attempts: int
) -> None:
    running(world, max_attempts=5, on_member_failure=OnMemberFailure.FAIL)
    gone = members(world)[2]
    world.status(gone.id, state, agent=gone.agent_id)
    each(world, "TASK_KILLED", skip=2)
    job = world.job()
    assert (job.state, job.attempts) == (JobState.FAILED, attempts)
    assert "rank 2" in job.message


def test_gang_launched_in_part_is_rolled_back(world: World) -> None:
    """An offer was rescinded while it was accepted: that agent's member is dropped."""
    nodes(world)
    gang(world)
    one, two, three = members(world)
    world.status(one.id, "TASK_STARTING", agent=one.agent_id)
    effects = world.status(
        two.id, "TASK_DROPPED", agent=two.agent_id, reason="REASON_INVALID_OFFERS", uuid=None
    )
    assert {kill.task_id for kill in every(effects, fx.Kill)} == {one.id, three.id}
    assert not every(effects, fx.Start)
    world.status(one.id, "TASK_KILLED", agent=one.agent_id)
    effects = world.status(three.id, "TASK_KILLED", agent=three.agent_id)
    assert world.job().state is JobState.PENDING
    for task in (one, two, three):
        world.offers(offer(f"again-{task.rank}", task.agent_id, gpus=2))
    world.tick(2)
    assert [task.id for task in members(world)] == ["j1.2.0", "j1.2.1", "j1.2.2"]


def test_gang_is_given_up_whole_when_an_agent_is_unreachable(world: World) -> None:
    running(world)
    cut = members(world)[0]
    world.status(cut.id, "TASK_UNREACHABLE", agent=cut.agent_id)
    assert world.job().state is JobState.UNREACHABLE
    effects = world.tick(world.settings.mesos.unreachable_timeout_s + 1)
    assert {"j1.1.1", "j1.1.2"} <= {kill.task_id for kill in every(effects, fx.Kill)}
    each(world, "TASK_KILLED", skip=0)
    assert world.job().state is JobState.PENDING
    effects = world.status(cut.id, "TASK_RUNNING", agent=cut.agent_id)
    assert only(effects, fx.Kill).task_id == cut.id, "another launch may run by now"


def test_gang_ends_whole_when_a_card_falls_ill(world: World) -> None:
    running(world)
    sick = members(world)[1]
    cards = [gpu(g, health=Health.SICK) if g == sick.gpus[0] else gpu(g) for g in sick.gpus]
    effects = world.report(sick.agent_id, *cards)
    assert {kill.task_id for kill in every(effects, fx.Kill)} == {t.id for t in members(world)}
    each(world, "TASK_KILLED")
    job = world.job()
    assert (job.state, job.attempts) == (JobState.PENDING, 0)
    assert sick.gpus[0] in job.message


def test_gang_is_killed_whole_by_its_user(world: World) -> None:
    running(world)
    effects = world.feed(ev.KillRequested(JobId("j1")))
    assert len(every(effects, fx.Kill)) == 3
    each(world, "TASK_KILLED", skip=0)
    assert world.job().state is JobState.KILLING
    each(world, "TASK_KILLED")
    assert world.job().state is JobState.KILLED


def test_gang_members_are_restored_from_what_is_saved(world: World) -> None:
    """After a crash at any point the same members are found."""
    nodes(world)
    items = gang(world)
    restored = State.restored(world.now, saved_of(world.state))
    assert [task.id for task in restored.work.round_of(restored.work.jobs[JobId("j1")])] == [
        i.task.id for i in items
    ]
    assert problems(restored) == []


def test_gang_in_front_keeps_its_nodes(world: World) -> None:
    nodes(world)
    world.submit("long", gpus=1, timeout_s=1000.0)
    task = world.state.work.tasks[TaskId("long.1")]
    world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
    world.offers(offer("rest", task.agent_id, gpus=1, cpus=6))
    gang(world)
    world.submit("passes", gpus=1, timeout_s=500.0)
    assert world.job("passes").state is JobState.STARTING, "it ends before the gang can start"
    world.submit("waits", gpus=1, timeout_s=2000.0)
    assert world.job("waits").state is JobState.PENDING, "it would delay the gang"


def test_queue_limit_counts_all_members_of_a_gang() -> None:
    world = World(settings=Settings.of("executor", "monitor", queue_limits={"small": 5}))
    world.register()
    nodes(world)
    gang(world, queue="small")
    assert world.job().state is JobState.PENDING
    world.submit("j2", gpus=2, tasks=2, queue="small")
    assert world.job("j2").state is JobState.STARTING
    world.submit("j3", gpus=2, queue="small")
    assert world.job("j3").state is JobState.PENDING


def test_task_records_of_earlier_releases_still_count(world: World) -> None:
    nodes(world)
    world.submit("one", gpus=1)
    task = world.state.work.tasks[TaskId("one.1")]
    assert (task.launch, task.rank) == (0, 0)
    assert world.state.work.current(task) is world.job("one")


def test_late_end_of_a_launch_that_was_given_up_changes_nothing(world: World) -> None:
    running(world)
    lost = members(world)[2]
    world.status(lost.id, "TASK_LOST", agent=lost.agent_id)
    each(world, "TASK_KILLED", skip=2)
    effects = world.status("j1.1.0", "TASK_FAILED", agent="a0")
    assert not every(effects, SaveJob)
    assert not every(effects, SaveTask)
    assert world.state.work.tasks[TaskId("j1.1.0")].state is TaskState.LOST
    assert AgentId("a0") in world.state.cluster.nodes


def test_gang_estimate_is_unknown_beside_a_job_without_an_end(world: World) -> None:
    nodes(world)
    world.submit("endless", gpus=1)
    world.status("endless.1", "TASK_RUNNING", agent="a0")
    world.offers(offer("rest", "a0", gpus=1, cpus=6))
    gang(world)
    estimate = explain_job(View(world.state, world.settings, world.now), JobId("j1")).estimate
    assert estimate is not None
    assert estimate.at is None
    assert "the end of job endless on a0.example is unknown" in estimate.basis


def test_gang_estimate_is_that_of_the_last_node_to_be_ready(world: World) -> None:
    nodes(world)
    world.submit("limited", gpus=1, timeout_s=100.0)
    world.status("limited.1", "TASK_RUNNING", agent="a0")
    world.offers(offer("rest", "a0", gpus=1, cpus=6))
    gang(world)
    estimate = explain_job(View(world.state, world.settings, world.now), JobId("j1")).estimate
    assert estimate is not None
    assert estimate.at == world.now + 100
    assert "then there is room for all its 3 tasks" in estimate.basis


def test_gang_that_can_never_start_hides_no_single_job_that_asks_for_the_same(world: World) -> None:
    nodes(world, count=1)
    world.submit("long", gpus=1, timeout_s=1000.0)
    world.status("long.1", "TASK_RUNNING", agent="a0")
    world.offers(offer("rest", "a0", gpus=1, cpus=6))
    gang(world, tasks=9, gpus=2, priority=5)
    world.submit("pair", gpus=2)
    world.submit("waits", gpus=1, timeout_s=2000.0)
    assert world.job("waits").state is JobState.PENDING, "what is free is kept for the pair"
    view = View(world.state, world.settings, world.now)
    assert explain_job(view, JobId("j1")).estimate != explain_job(view, JobId("pair")).estimate
    pair = explain_job(view, JobId("pair")).estimate
    assert pair is not None
    assert pair.at == world.now + 1000
