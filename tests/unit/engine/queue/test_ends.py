"""Ends of launches, and jobs that no node could serve: what is known of them at one moment."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine.parts.work import WorkPart
from mesos_gpu.engine.queue.nodes import Ends
from mesos_gpu.engine.room.hopeless import (
    HOPELESS,
    Ground,
    Hopeless,
    fit_nowhere,
    ground_now,
    is_hopeless,
    note_hopeless,
)
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import QueueSpec
from mesos_gpu.policy.capacity.node import ENDLESS, NodeCapacity
from tests.doubles.builders import gpu, request, spec
from tests.unit.engine.tenancy.worlds import apply, tree_world

NOW: Final = 1000.0
NOTICE: Final = Notice(1, NoticeReason.RECLAIM, "why", 900.0, 1100.0)


def job_of(**fields: Any) -> Job:
    made = spec(**{"kill_grace_s": 10.0, **fields})
    return Job(JobId("j"), made, 0.0, 1, state=JobState.RUNNING, task_id=TaskId("t"))


def end_of(job: Job, learnt: tuple[float, str] | None = None, **task: Any) -> tuple[float, float | None, str]:
    state = State(started_at=0.0, work=WorkPart(jobs={job.id: job}))
    made = Task(TaskId("t"), AgentId("a"), "t", job.id, TaskState.RUNNING, 800.0, **task)
    return Ends(state, NOW, None if learnt is None else lambda _: learnt).of(made, job)


@pytest.mark.parametrize(
    ("timeout_s", "task", "end"),
    [
        (None, {"started_at": 900.0}, (ENDLESS, None, "")),
        (300.0, {"started_at": 900.0}, (1200.0, 300.0, "")),
        (300.0, {}, (1300.0, 300.0, "")),
        (50.0, {"started_at": 900.0}, (NOW, 50.0, "")),  # it is overdue
        (300.0, {"started_at": 900.0, "kill_sent_at": 995.0}, (1005.0, None, "")),
        (300.0, {"started_at": 900.0, "kill_sent_at": 900.0}, (NOW, None, "")),
        (300.0, {"started_at": 900.0, "kill_sent_at": 995.0, "notice": NOTICE}, (1005.0, None, "")),
        (None, {"started_at": 900.0, "notice": NOTICE}, (1110.0, None, "")),
        (None, {"started_at": 900.0, "notice": replace(NOTICE, until=950.0)}, (NOW, None, "")),
        (None, {"started_at": 900.0, "notice": replace(NOTICE, recalled_at=950.0)}, (ENDLESS, None, "")),
        (300.0, {"started_at": 900.0, "notice": replace(NOTICE, warning=True)}, (1200.0, 300.0, "")),
    ],
)
def test_end_of_a_launch_follows_from_what_is_known(
    timeout_s: float | None, task: dict[str, Any], end: tuple[float, float | None, str]
) -> None:
    assert end_of(job_of(timeout_s=timeout_s), **task) == end


@pytest.mark.parametrize(
    ("lasts_s", "end"),
    [
        (250.0, (1150.0, 250.0, "as others")),
        (100.0, (ENDLESS, None, "")),
        (100.5, (1000.5, 100.5, "as others")),
    ],
)
def test_end_of_a_launch_without_a_limit_is_learnt(
    lasts_s: float, end: tuple[float, float | None, str]
) -> None:
    assert end_of(job_of(), (lasts_s, "as others"), started_at=900.0) == end
    assert end_of(job_of(timeout_s=300.0), (lasts_s, "as others"), started_at=900.0) == (1200.0, 300.0, "")


def test_launch_that_was_given_up_ends_never() -> None:
    given_up = replace(job_of(timeout_s=300.0), task_id=TaskId("later"))
    assert end_of(given_up, started_at=900.0) == (ENDLESS, None, "")


# --- jobs that no node could serve


def with_nodes() -> State:
    state = tree_world({"dev": QueueSpec()}).state
    cards = (gpu("g0"), gpu("g1"))
    state.put(Node(AgentId("a"), "a", inventory=Inventory(cards)))
    state.put(Node(AgentId("b"), "b", inventory=Inventory(cards), lost_at=5.0))
    return state


def test_ground_is_of_the_nodes_that_are_there() -> None:
    state = with_nodes()
    assert ground_now(state) == Ground(1, 2, state.quota.queues.version, state.quota.hours.span.since)
    state.put(replace(state.cluster.nodes[AgentId("b")], lost_at=None))
    assert ground_now(state)[:2] == (2, 4)


def test_job_that_fits_nowhere_is_so_for_a_minute_and_as_long_as_the_ground_is_the_same() -> None:
    state = with_nodes()
    note_hopeless(state, job_of(), NOW)
    assert state.books.notes[HOPELESS] == {"j": Hopeless(ground_now(state), NOW + 60)}
    assert fit_nowhere(state, NOW + 59.5) == {"j"}
    assert fit_nowhere(state, NOW + 60) == set()
    state.put(replace(state.cluster.nodes[AgentId("b")], lost_at=None))
    assert fit_nowhere(state, NOW) == set()


def test_job_that_fits_nowhere_is_forgotten_with_the_next_one() -> None:
    state = with_nodes()
    for name, at in (("old", NOW - 60), ("young", NOW - 59.5), ("new", NOW)):
        note_hopeless(state, replace(job_of(), id=JobId(name)), at)
    assert set(state.books.notes[HOPELESS]) == {"young", "new"}


def test_document_of_queues_gives_new_hope() -> None:
    world = tree_world({"dev": QueueSpec()})
    note_hopeless(world.state, job_of(), NOW)
    assert fit_nowhere(world.state, NOW) == {"j"}
    apply(world, {"dev": QueueSpec(), "ops": QueueSpec()})
    assert fit_nowhere(world.state, NOW) == set()
    assert fit_nowhere(State(started_at=0.0), NOW) == set()


@pytest.mark.parametrize(
    ("gpus", "unreported", "hopeless"), [(2, False, False), (3, False, True), (3, True, False)]
)
def test_job_is_hopeless_when_no_node_could_serve_it_empty(
    gpus: int, unreported: bool, hopeless: bool
) -> None:
    state = with_nodes()
    state.put(Node(AgentId("c"), "c", monitor_launches=1 if unreported else 0))
    cards = state.cluster.nodes[AgentId("a")].gpus
    nodes = [NodeCapacity(AgentId("a"), "a", installed=cards), NodeCapacity(AgentId("c"), "c")]
    assert is_hopeless(state, request(gpus=gpus), nodes) is hopeless


@pytest.mark.parametrize(("nodes", "hopeless"), [("a", True), ("ab", False)])
def test_gang_is_hopeless_when_a_constraint_keeps_its_tasks_apart_on_too_few_nodes(
    nodes: str, hopeless: bool
) -> None:
    state = State(started_at=0.0)
    cards = tuple(gpu(f"g{number}") for number in range(2))
    for name in nodes:
        state.put(Node(AgentId(name), name, inventory=Inventory(cards)))
    there = [NodeCapacity(AgentId(name), name, installed=cards) for name in nodes]
    gang = replace(request(gpus=1), tasks=2)

    def apart(rooms: Mapping[AgentId, int]) -> list[int] | None:
        able = [agent_id for agent_id, room in rooms.items() if room]
        return [1, 1] if len(able) >= gang.tasks else None

    assert not is_hopeless(state, gang, there)
    assert is_hopeless(state, gang, there, apart) is hopeless
