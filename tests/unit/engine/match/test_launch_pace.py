"""Limits of launches under way on an agent, for all kinds of tasks and after restarts."""

from collections import Counter
from dataclasses import replace

import pytest

from mesos_gpu.api.metrics.families import metrics, snapshot
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.queue_why import queue_why
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks.evictions import MAX_KILLS
from mesos_gpu.engine.tasks.starting import TIMED_OUT
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tenancy import QueueSpec
from mesos_gpu.policy.queueing.launch_window import FIRST_SIZE, MIN_BACK_OFF_S, PROBE_SIZE
from tests.doubles.builders import World, every, gpu, offer, saved_of, spec
from tests.unit.engine.tenancy.lending import Tenants

APP = App("/k", cmd="exec sleep 3600", instances=100, cpus=0.01, mem_mib=8, port_definitions=())


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def offered(world: World, *agents: str, gpus: int = 0) -> None:
    """Let each agent offer all its free resources."""
    world.serial += 1
    each = [offer(f"{agent}-{world.serial}", agent, cpus=64, mem=1e6, gpus=gpus) for agent in agents]
    world.offers(*each)


def submit(world: World, count: int, first: int = 0, **fields: object) -> None:
    wanted = spec(**{"gpus": 0, "cpus": 0.01, **fields})
    world.feed(*(ev.JobSubmitted(JobId(f"j{n}"), wanted) for n in range(first, first + count)))


def under_way(world: World) -> Counter[str]:
    tasks = [world.state.work.tasks[task_id] for task_id in world.state.work.live]
    return Counter(str(task.agent_id) for task in tasks if task.state is TaskState.LAUNCHED)


def running(world: World, agent: str, count: int) -> None:
    """Let the executors of an agent's oldest launches register."""
    tasks = [world.state.work.tasks[task_id] for task_id in world.state.work.live]
    waiting = [t for t in tasks if t.state is TaskState.LAUNCHED and t.agent_id == agent]
    for task in waiting[:count]:
        world.status(task.id, "TASK_RUNNING", agent=agent)


def why(world: World, name: str) -> str:
    return explain_job(View(world.state, world.settings, world.now), JobId(name)).summary


def test_launch_window_bounds_the_launches_of_an_agent(world: World) -> None:
    submit(world, 100)
    offered(world, "a1")
    assert under_way(world) == {"a1": FIRST_SIZE}
    offered(world, "a1")
    assert under_way(world) == {"a1": FIRST_SIZE}
    assert why(world, "j99") == f"waits for its turn on a1.example: {FIRST_SIZE} launches are under way"
    running(world, "a1", 10)
    offered(world, "a1")
    assert FIRST_SIZE <= under_way(world)["a1"] <= FIRST_SIZE + 10


def test_launch_window_opens_with_each_registration(world: World) -> None:
    submit(world, 100)
    for _ in range(20):
        offered(world, "a1")
        running(world, "a1", 5)
    assert all(job.state is JobState.RUNNING for job in world.state.work.jobs.values())


def test_instances_of_an_app_are_spread_over_agents_that_are_equally_good(world: World) -> None:
    app_of(world, 100)
    offered(world, "a1", "a2", "a3")
    assert under_way(world) == dict.fromkeys(("a1", "a2", "a3"), FIRST_SIZE)
    few = World()
    few.register()
    submit(few, 24)
    offered(few, "a1", "a2", "a3")
    assert under_way(few) == dict.fromkeys(("a1", "a2", "a3"), 8)


def test_few_tasks_without_gpus_are_bundled_and_those_with_gpus_always_are(world: World) -> None:
    submit(world, 7)
    offered(world, "a1", "a2")
    assert list(under_way(world).values()) == [7], "the other agent stays free for large tasks"
    other = World()
    other.register()
    for agent in ("b1", "b2"):
        other.node(agent, *(gpu(f"{agent}-{n}") for n in range(12)), cpus=32)
    submit(other, 12, gpus=1)
    assert len(under_way(other)) == 1


def test_cpu_tasks_do_not_go_to_a_node_with_more_free_gpus_to_be_spread(world: World) -> None:
    world.node("full", gpu("g0"), cpus=32)
    world.node("free", gpu("g1"), cpus=32)
    world.submit("holder", gpus=1)
    holder = world.state.work.tasks_of(JobId("holder"))[0].agent_id
    world.offers(offer("again", holder, cpus=30))
    submit(world, 20)
    assert Counter(t.agent_id for t in world.state.work.tasks.values() if t.job_id)[holder] == 21


def test_gang_that_is_larger_than_the_window_starts_when_nothing_else_is_under_way(world: World) -> None:
    submit(world, 10)
    offered(world, "a1")
    world.submit("gang", gpus=0, cpus=0.01, tasks=3 * FIRST_SIZE)
    submit(world, 5, first=10)
    offered(world, "a1")
    assert world.job("gang").state is JobState.PENDING
    assert under_way(world) == {"a1": 10}, (
        "what comes after the gang does not keep the window from being empty"
    )
    assert why(world, "gang") == "waits for its turn on a1.example: 10 launches are under way"
    running(world, "a1", 9)
    offered(world, "a1")
    assert under_way(world) == {"a1": 1}
    running(world, "a1", 1)
    offered(world, "a1")
    assert world.job("gang").state is JobState.STARTING
    assert under_way(world) == {"a1": 3 * FIRST_SIZE}
    offered(world, "a1")
    assert world.job("j14").state is JobState.PENDING


def test_gang_has_room_beside_others_in_the_window(world: World) -> None:
    submit(world, 10)
    offered(world, "a1")
    world.submit("gang", gpus=0, tasks=FIRST_SIZE - 10)
    offered(world, "a1")
    assert under_way(world) == {"a1": FIRST_SIZE}


def test_launch_window_takes_one_large_gang_at_a_time(world: World) -> None:
    world.feed(
        *(ev.JobSubmitted(JobId(n), spec(gpus=0, cpus=0.01, tasks=FIRST_SIZE + 1)) for n in ("one", "two"))
    )
    offered(world, "a1")
    assert under_way(world) == {"a1": FIRST_SIZE + 1}
    running(world, "a1", FIRST_SIZE + 1)
    offered(world, "a1")
    assert world.job("two").state is JobState.STARTING


def test_gang_takes_the_windows_of_several_agents(world: World) -> None:
    submit(world, 24)
    offered(world, "a1", "a2", "a3")
    assert under_way(world) == {"a1": 8, "a2": 8, "a3": 8}
    world.submit("gang", gpus=0, tasks=3 * (FIRST_SIZE - 8))
    offered(world, "a1", "a2", "a3")
    assert under_way(world) == dict.fromkeys(("a1", "a2", "a3"), FIRST_SIZE)


def test_launch_window_preempts_no_job_for_room(world: World) -> None:
    submit(world, FIRST_SIZE, preemptible=True)
    offered(world, "a1")
    world.submit("urgent", gpus=0, priority=10)
    for _ in range(10):
        world.now += 1
        offered(world, "a1")
    assert world.job("urgent").state is JobState.PENDING
    assert not any(
        task.kill_sent_at or task.evicted or task.notice for task in world.state.work.tasks.values()
    )


def test_monitors_and_cover_tasks_count(world: World) -> None:
    submit(world, FIRST_SIZE)
    offered(world, "a1")
    offered(world, "a1", gpus=2)
    assert world.state.cluster.nodes[AgentId("a1")].monitor is None
    running(world, "a1", 1)
    offered(world, "a1", gpus=2)
    assert world.state.cluster.nodes[AgentId("a1")].monitor is not None
    assert under_way(world) == {"a1": FIRST_SIZE}


def test_launch_window_opens_a_card_only_with_room_for_its_cover(world: World) -> None:
    world.node("a1", replace(gpu("g0"), sharing=Sharing(80_000, ((Ability.SHIM, ""),))), cpus=64)
    submit(world, FIRST_SIZE - 1)
    offered(world, "a1", gpus=1)
    world.submit("share", gpus=1, gpu_milli=500, cpus=0.01)
    submit(world, 3, first=FIRST_SIZE)
    for _ in range(3):
        world.now += 1
        offered(world, "a1", gpus=1)
    assert world.job("share").state is JobState.PENDING
    assert under_way(world) == {"a1": FIRST_SIZE - 1}, "the last place is kept for it"
    running(world, "a1", 1)
    offered(world, "a1", gpus=1)
    assert world.job("share").state is JobState.STARTING
    assert under_way(world) == {"a1": FIRST_SIZE}


def test_launches_under_way_are_known_after_a_restart(world: World) -> None:
    submit(world, 100)
    offered(world, "a1")
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    offered(world, "a1")
    assert under_way(world) == {"a1": FIRST_SIZE}


def time_out(world: World, agent: str) -> None:
    tasks = [world.state.work.tasks[task_id] for task_id in world.state.work.live]
    for task in [t for t in tasks if t.agent_id == agent and t.state is TaskState.LAUNCHED]:
        world.status(task.id, "TASK_FAILED", agent=agent, reason=TIMED_OUT)


def agents_backed_off(world: World) -> float:
    families = metrics(snapshot(View(world.state, world.settings, world.now)))
    ((_, number),) = {each.name: each.samples for each in families}["mesos_gpu_nodes_backed_off"]
    return number


def test_agent_whose_executors_time_out_is_backed_off_and_named(world: World) -> None:
    submit(world, 3)
    offered(world, "a1")
    time_out(world, "a1")
    node = world.state.cluster.nodes[AgentId("a1")]
    assert (node.timeouts, node.launch_not_before) == (3, world.now + MIN_BACK_OFF_S)
    assert agents_backed_off(world) == 1
    submit(world, 40, first=3)
    offered(world, "a1")
    assert not under_way(world)
    assert "waits for its turn on a1.example: 3 executors did not register in time" in why(world, "j9")
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    offered(world, "a1")
    assert not under_way(world), "a restart forgets it"
    offered(world, "a2")
    assert under_way(world) == {"a2": FIRST_SIZE}, "another agent gets them"
    world.tick(MIN_BACK_OFF_S + 1)
    offered(world, "a1")
    assert under_way(world)["a1"] > 0
    running(world, "a1", 1)
    node = world.state.cluster.nodes[AgentId("a1")]
    assert (node.timeouts, node.launch_not_before) == (0, 0.0)
    assert agents_backed_off(world) == 0


def test_backed_off_agent_is_tried_with_few_launches(world: World) -> None:
    submit(world, 100)
    offered(world, "a1")
    time_out(world, "a1")
    world.tick(MIN_BACK_OFF_S + 1)
    offered(world, "a1")
    assert under_way(world) == {"a1": PROBE_SIZE}
    time_out(world, "a1")
    assert world.state.cluster.nodes[AgentId("a1")].launch_not_before == world.now + 2 * MIN_BACK_OFF_S


def test_timeouts_of_launches_before_a_back_off_do_not_lengthen_it(world: World) -> None:
    submit(world, 2)
    offered(world, "a1")
    first, late = world.state.work.live
    world.tick(60.0)
    world.status(first, "TASK_FAILED", agent="a1", reason=TIMED_OUT)
    until = world.now + MIN_BACK_OFF_S
    world.tick(MIN_BACK_OFF_S + 1)
    world.status(late, "TASK_FAILED", agent="a1", reason=TIMED_OUT)
    assert world.state.cluster.nodes[AgentId("a1")].launch_not_before == until, "it was launched before"
    offered(world, "a1")
    assert under_way(world) == {"a1": 1}, "the other waits for its next attempt"
    world.tick(60.0)
    time_out(world, "a1")
    assert world.state.cluster.nodes[AgentId("a1")].launch_not_before == world.now + 2 * MIN_BACK_OFF_S


def test_launch_timeout_counts_though_another_registered_late(world: World) -> None:
    submit(world, 1)
    offered(world, "a1")
    (first,) = world.state.work.live
    world.tick(60.0)
    world.status(first, "TASK_FAILED", agent="a1", reason=TIMED_OUT)
    world.tick(MIN_BACK_OFF_S + 1)
    submit(world, 1, first=1)
    offered(world, "a1")
    slow, hung = [t.id for t in world.state.work.tasks.values() if t.launched_at == world.now]
    world.tick(30.0)
    world.status(slow, "TASK_RUNNING", agent="a1")
    world.tick(30.0)
    world.status(hung, "TASK_FAILED", agent="a1", reason=TIMED_OUT)
    assert world.state.cluster.nodes[AgentId("a1")].launch_not_before == world.now + 2 * MIN_BACK_OFF_S


def test_many_tasks_of_an_agent_are_told_to_end_in_turns(world: World) -> None:
    submit(world, 100)
    for _ in range(30):
        offered(world, "a1")
        running(world, "a1", FIRST_SIZE)
    kills = every(world.feed(*(ev.KillRequested(JobId(f"j{n}")) for n in range(100))), fx.Kill)
    assert len(kills) == MAX_KILLS
    told = {kill.task_id for kill in kills}
    for kill in kills[1:]:
        world.status(kill.task_id, "TASK_KILLED")
    more = every(world.feed(ev.Tick()), fx.Kill)
    assert len(more) == MAX_KILLS - 1
    assert not told & {kill.task_id for kill in more}
    total = len(every(world.tick(60), fx.Kill))
    assert total >= 100 - len(kills) - len(more), (
        "tasks that take long to end do not keep others from being told"
    )
    for task_id in list(world.state.work.live):
        world.status(task_id, "TASK_KILLED")
    assert all(job.state is JobState.KILLED for job in world.state.work.jobs.values())


def test_tasks_of_one_owner_that_take_long_to_end_delay_no_kill_of_another(world: World) -> None:
    wanted = spec(gpus=0, cpus=0.01)
    world.feed(*(ev.JobSubmitted(JobId(f"m{n}"), wanted, owner="mallory") for n in range(100)))
    world.feed(ev.JobSubmitted(JobId("victor"), wanted, owner="victor"))
    for _ in range(30):
        offered(world, "a1")
        running(world, "a1", FIRST_SIZE)
    kills = every(world.feed(*(ev.KillRequested(JobId(f"m{n}")) for n in range(100))), fx.Kill)
    assert len(kills) == MAX_KILLS
    (kill,) = every(world.feed(ev.KillRequested(JobId("victor"))), fx.Kill)
    assert world.state.work.tasks[kill.task_id].job_id == "victor"


def cut_off(world: World, agent: str) -> list[TaskId]:
    ids = [t for t in world.state.work.live if world.state.work.tasks[t].agent_id == agent]
    for task_id in ids:
        world.status(task_id, "TASK_UNREACHABLE", agent=agent)
    return ids


def app_of(world: World, count: int) -> None:
    world.feed(ev.AppsChanged("d1", Group("/", (replace(APP, instances=count),))))
    world.tick(3)


@pytest.mark.parametrize("count", [20, FIRST_SIZE])
def test_instances_of_an_agent_that_was_starting_some_are_not_given_up_at_once(
    world: World, count: int
) -> None:
    app_of(world, 60)
    offered(world, "a1")
    running(world, "a1", count)
    ids = cut_off(world, "a1")
    world.tick(40)
    assert not any(world.state.work.tasks[task_id].state is TaskState.ABANDONED for task_id in ids)
    for task_id in ids[:20]:
        assert not every(world.status(task_id, "TASK_RUNNING"), fx.Kill), "it is back, and as it was"
    cut_off(world, "a1")
    world.tick(65)
    assert any(world.state.work.tasks[t].state is TaskState.ABANDONED for t in ids), (
        "it was not back in a minute"
    )


def test_instances_of_a_lost_agent_are_replaced_at_the_pace_of_launches(world: World) -> None:
    app_of(world, 2 * FIRST_SIZE)
    for _ in range(4):
        offered(world, "a1")
        running(world, "a1", FIRST_SIZE)
    assert Counter(t.state for t in world.state.work.tasks.values()) == {TaskState.RUNNING: 2 * FIRST_SIZE}
    world.now += 60
    world.tick(1)
    world.feed(ev.AgentLost(AgentId("a1")))
    ids = cut_off(world, "a1")
    world.tick(3)
    states = Counter(world.state.work.tasks[task_id].state for task_id in ids)
    assert states[TaskState.ABANDONED] == FIRST_SIZE
    for _ in range(6):
        offered(world, "a2")
        running(world, "a2", FIRST_SIZE)
        world.tick(1)
    there = [
        t for t in world.state.work.tasks.values() if t.state is TaskState.RUNNING and t.agent_id == "a2"
    ]
    assert len(there) == 2 * FIRST_SIZE


def test_explanation_names_the_agent_whose_turn_a_job_waits_for(world: World) -> None:
    submit(world, 100)
    offered(world, "a1", "a2")
    offered(world, "a1", "a2")
    answer = explain_job(View(world.state, world.settings, world.now), JobId("j99"))
    assert answer.summary.startswith("waits for its turn on a1.example (and on 1 more node): 32 launches")
    assert [each.stage for each in answer.nodes] == [Stage.PACE, Stage.PACE]
    assert answer.can_ever_run


def test_queue_why_counts_jobs_that_wait_for_their_turn_in_the_words_of_why() -> None:
    world = Tenants()
    world.register()
    world.document_of({"many": QueueSpec()})
    submit(world, FIRST_SIZE + 8, queue="many")
    submit(world, 2, first=100, queue="many", cpus=1000.0)
    offered(world, "a1")
    offered(world, "a1")
    answer = queue_why(world.state, world.settings, "many", world.now)
    assert [(each.reason, each.jobs) for each in answer.waits] == [("pace", 8), ("gpus", 2)]
    first, words = answer.waits[0].first, answer.waits[0].words
    assert (
        words == why(world, first) == f"waits for its turn on a1.example: {FIRST_SIZE} launches are under way"
    )
    running(world, "a1", FIRST_SIZE)
    offered(world, "a1")
    answer = queue_why(world.state, world.settings, "many", world.now)
    assert [(each.reason, each.jobs) for each in answer.waits] == [("gpus", 2)]


def test_queue_why_names_an_agent_that_is_backed_off() -> None:
    world = Tenants()
    world.register()
    world.document_of({"many": QueueSpec()})
    submit(world, 3, queue="many")
    offered(world, "a1")
    time_out(world, "a1")
    submit(world, 5, first=3, queue="many")
    offered(world, "a1")
    waits = queue_why(world.state, world.settings, "many", world.now).waits
    words = next(each.words for each in waits if each.reason == "pace")
    assert "3 executors did not register in time" in words
