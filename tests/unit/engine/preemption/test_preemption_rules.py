"""Rules of preemption: who ends already, who may be ended, and from which second on."""

from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.preemption.candidates import ending, may_have_ports
from mesos_gpu.engine.preemption.preempting import just_launched, may_be_ended, possible
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.room.knapsack import Victim
from tests.doubles.builders import World, every, gpu, spec

NOW: Final = 1000.0
NOTICE: Final = Notice(1, NoticeReason.DRAIN, "why", 900.0, 1100.0)


def state_of(state: JobState = JobState.RUNNING, *, preemptible: bool = True, **task: Any) -> State:
    """Make a state in which one job runs, and one waits with a higher priority."""
    made = State(started_at=0.0)
    fields = {"gpus": 1, "priority": 0, "preemptible": preemptible}
    job = Job(JobId("j"), spec(**fields), 0.0, 1, state=state, task_id=TaskId("t"))
    made.put(job)
    made.put(Task(TaskId("t"), AgentId("a"), "t", job.id, TaskState.RUNNING, 0.0, **task))
    made.put(Job(JobId("w"), spec(gpus=1, priority=1), 0.0, 2))
    return made


@pytest.mark.parametrize(
    ("job_state", "task", "ends"),
    [
        (JobState.RUNNING, {}, False),
        (JobState.KILLING, {"kill_sent_at": 990.0}, True),
        (JobState.KILLING, {"kill_sent_at": 990.0, "preempted_for": JobId("w")}, True),
        (JobState.RUNNING, {"preempted_for": JobId("w")}, True),
        (JobState.RUNNING, {"notice": NOTICE}, True),
        (JobState.RUNNING, {"notice": replace(NOTICE, recalled_at=990.0)}, False),
        (JobState.RUNNING, {"notice": replace(NOTICE, warning=True)}, False),
        (JobState.UNREACHABLE, {"kill_sent_at": 990.0, "notice": NOTICE}, False),
    ],
)
def test_job_is_ending_when_it_was_told_to(job_state: JobState, task: dict[str, Any], ends: bool) -> None:
    state = state_of(job_state, **task)
    assert ending(state) == ({"j"} if ends else set())
    state.put(replace(state.work.jobs[JobId("j")], task_id=TaskId("later")))
    assert ending(state) == set(), "that launch was given up"


@pytest.mark.parametrize(
    ("job_state", "preemptible", "kill_requested", "may"),
    [
        (JobState.STARTING, True, False, True),
        (JobState.RUNNING, True, False, True),
        (JobState.RUNNING, False, False, False),
        (JobState.RUNNING, True, True, False),
        (JobState.PENDING, True, False, False),
        (JobState.UNREACHABLE, True, False, False),
        (JobState.KILLING, True, False, False),
    ],
)
def test_job_may_be_ended_while_it_runs(
    job_state: JobState, preemptible: bool, kill_requested: bool, may: bool
) -> None:
    job = Job(
        JobId("j"), spec(preemptible=preemptible), 0.0, 1, state=job_state, kill_requested=kill_requested
    )
    assert may_be_ended(job) is may


@pytest.mark.parametrize(
    ("waits", "runs", "preemptible", "allowed", "may"),
    [
        (1, 0, True, True, True),
        (1, 0, False, True, False),
        (1, 0, True, False, False),
        (0, 0, True, True, False),
        (-1, 0, True, True, False),
        (None, 0, True, True, False),
    ],
)
def test_preemption_is_possible_where_somebody_of_higher_priority_waits(
    waits: int | None, runs: int, preemptible: bool, allowed: bool, may: bool
) -> None:
    world = World()
    world.settings = world.settings.changed(preemption=allowed)
    state = state_of(preemptible=preemptible)
    waiting = state.work.jobs[JobId("w")]
    if waits is None:
        state.put(replace(waiting, state=JobState.KILLED))
    else:
        state.put(replace(waiting, spec=replace(waiting.spec, priority=waits)))
    assert possible(Turn(state, world.settings, NOW)) is may
    assert state.work.jobs[JobId("j")].priority == runs


@pytest.mark.parametrize(("launched_at", "just"), [(NOW, True), (NOW + 1, True), (NOW - 0.5, False)])
def test_job_of_this_very_match_is_just_launched(launched_at: float, just: bool) -> None:
    state = state_of()
    state.put(replace(state.work.tasks[TaskId("t")], launched_at=launched_at))
    assert just_launched(Turn(state, World().settings, NOW), [Victim(JobId("j"), 0, 1)]) is just
    assert not just_launched(Turn(state, World().settings, NOW), [])


@pytest.mark.parametrize(
    ("free", "held", "tasks", "may"),
    [
        (None, (), 1, True),
        ((), (), 1, False),
        ((), (80,), 1, True),
        ((80,), (), 1, True),
        ((81,), (79,), 1, False),
        ((), (), 2, True),
    ],
)
def test_ports_asked_for_by_number_are_free_or_held_by_victims(
    free: tuple[int, ...] | None, held: tuple[int, ...], tasks: int, may: bool
) -> None:
    ports = None if free is None else tuple(PortRange(port, port) for port in free)
    allocation = Allocation(JobId("v"), NOTHING, ports=tuple(PortRange(port, port) for port in held))
    node = NodeCapacity(AgentId("a"), "a", ports=ports, allocations=(allocation,))
    wishes = () if tasks > 1 else (PortWish(None, 80, 80),)
    job = Job(JobId("j"), spec(ports=wishes, tasks=tasks), 0.0, 1)
    assert may_have_ports(job, node) is may


# --- when


@pytest.fixture
def world() -> World:
    """A job has both GPUs of a node, and has run for ten seconds."""
    made = World()
    made.register()
    made.node("a1", gpu("g0"), gpu("g1"), cpus=32)
    made.submit("low", gpus=2, preemptible=True)
    made.status("low.1", "TASK_STARTING")
    made.status("low.1", "TASK_RUNNING")
    made.tick(10)
    made.report("a1", gpu("g0"), gpu("g1"))
    return made


def ticks(world: World, seconds: float) -> list[TaskId]:
    """Let time pass at once; the tasks that are ended."""
    world.now += seconds
    return [kill.task_id for kill in every(world.feed(ev.Tick()), fx.Kill)]


def test_preemption_waits_until_free_gpus_were_offered_since_each_of_three_moments(world: World) -> None:
    world.submit("high", gpus=2, priority=1)
    assert ticks(world, 2.5) == []
    world.state.put(replace(world.job("high"), not_before=world.now))
    assert ticks(world, 2.5) == []
    world.state.mesos.registered_at = world.now
    assert ticks(world, 1.5) == []
    assert ticks(world, 1.5) == ["low.1"]
    assert world.job("high").room_made_at == world.now


def test_preemption_is_tried_again_when_the_room_went_elsewhere(world: World) -> None:
    world.submit("high", gpus=2, priority=1)
    world.state.put(replace(world.job("high"), room_made_at=world.now))
    for _ in range(2):
        world.report("a1", gpu("g0"), gpu("g1"))
        assert ticks(world, 14.5) == []
    world.report("a1", gpu("g0"), gpu("g1"))
    assert ticks(world, 1.0) == ["low.1"]


@pytest.mark.parametrize(("kinds", "ended"), [(15, True), (16, False)])
def test_preemption_is_tried_for_sixteen_kinds_of_jobs_a_match(world: World, kinds: int, ended: bool) -> None:
    jobs = [ev.JobSubmitted(JobId(f"vain{i}"), spec(gpus=3 + i, priority=2)) for i in range(kinds)]
    alike = [ev.JobSubmitted(JobId(f"alike{i}"), spec(gpus=3, priority=2)) for i in range(3)]
    world.feed(*jobs, *alike, ev.JobSubmitted(JobId("high"), spec(gpus=2, priority=1)))
    assert bool(ticks(world, 3.0)) is ended


def test_preemption_makes_no_room_for_an_equal_priority(world: World) -> None:
    world.submit("same", gpus=2, priority=0)
    assert ticks(world, 3.5) == []
    world.submit("high", gpus=2, priority=1)
    assert ticks(world, 3.5) == ["low.1"]
