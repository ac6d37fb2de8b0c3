"""Neighbours of a job: where constraints, `near`, `away` and secrets let it go, and what a rollback leaves."""

from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.capacity.node import NodeCapacity
from tests.doubles.builders import spec

UNIQUE: Final = Constraint("hostname", Operator.UNIQUE)
IN_R1: Final = Constraint("rack", Operator.LIKE, "r1")
SECRETS: Final = (Secret("A", "team/a"),)
AGENTS: Final = tuple(AgentId(f"a{i}") for i in range(3))


def job_of(name: str = "j", **fields: Any) -> Job:
    return Job(JobId(name), spec(name=name, **fields), 0.0, 1)


def state_of(*running: tuple[str, int, dict[str, Any]], waiting: tuple[Job, ...] = ()) -> State:
    """Make a state with three nodes, where jobs run: of each its name, the number of its node, and its request."""
    state = State(started_at=0.0)
    for agent_id in AGENTS:
        state.cluster.nodes[agent_id] = Node(
            agent_id, f"{agent_id}.example", attributes={"rack": f"r{agent_id[1]}"}
        )
    for name, place, fields in running:
        job = replace(job_of(name, **fields), state=JobState.RUNNING, task_id=TaskId(f"t-{name}"))
        state.work.jobs[job.id] = job
        task = Task(
            TaskId(f"t-{name}"), AGENTS[place], name, job.id, TaskState.RUNNING, 0.0, hostname="gone.example"
        )
        state.work.tasks[task.id] = task
        state.work.live[task.id] = None
    for i, job in enumerate(waiting):
        state.work.jobs[job.id] = job
        state.work.queue.append((i, job.id))
    return state


def barred(known: Neighbours, job: Job, state: State) -> list[str]:
    return [known.barred(job, node) for node in state.cluster.nodes.values()]


WEB: Final = ("web1", 1, {"app": "web"})
SHY: Final = ("shy", 2, {"app": "shy", "away": "web"})


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (job_of(), ["", "", ""]),
        (job_of(app="web"), ["", "", "runs shy, which is to be away from web"]),
        (job_of(app="db"), ["", "", ""]),
        (job_of(away="web"), ["", "runs web1, and this job is to be away from web", ""]),
        (job_of(away="none"), ["", "", ""]),
        (
            job_of(near="web"),
            [
                "runs no job of web, which this one is to be near",
                "",
                "runs no job of web, which this one is to be near",
            ],
        ),
        (job_of(near="none"), ["runs no job of none, which this one is to be near"] * 3),
        (job_of(near="db", app="db"), ["", "", ""]),  # the first of an app may go anywhere
        (
            job_of(near="web", app="web", constraints=()),
            [
                "runs no job of web, which this one is to be near",
                "",
                "runs no job of web, which this one is to be near",
            ],
        ),
        (job_of(constraints=(IN_R1,)), ["violates", "", "violates"]),
    ],
)
def test_job_may_go_where_its_neighbours_let_it(job: Job, words: list[str]) -> None:
    state = state_of(WEB, SHY)
    known = Neighbours(state)
    said = barred(known, job, state)
    for words_here, wanted in zip(said, words, strict=True):
        assert words_here == wanted or (
            wanted == "violates" and words_here.startswith(f"violates constraint {IN_R1}: ")
        )
    nodes = {agent_id: NodeCapacity(agent_id, agent_id) for agent_id in AGENTS}
    assert list(known.open_to(job, nodes)) == [a for a, why in zip(AGENTS, words, strict=True) if not why]
    assert (known.open_to(job, nodes) is nodes) == (known.key(job) is None)


def test_app_is_as_many_as_all_tasks_that_run_or_wait() -> None:
    grouped = Constraint("rack", Operator.GROUP_BY, "3")
    waiting = job_of("w", app="web", constraints=(grouped,))
    state = state_of(waiting=(waiting,))
    gang = replace(job_of("g", app="web", tasks=2), state=JobState.RUNNING, launches=1)
    state.work.jobs[gang.id] = gang
    for rank in range(2):
        task = Task(TaskId(f"g{rank}"), AGENTS[1], "g", gang.id, TaskState.RUNNING, 0.0, launch=1, rank=rank)
        state.work.tasks[task.id] = task
        state.work.live[task.id] = None
    why = f"violates constraint {grouped}: 2 of the app's 3 run there, which is its share of 3 groups"
    assert barred(Neighbours(state), waiting, state) == ["", why, ""]


@pytest.mark.parametrize(
    ("inventory", "why"),
    [
        (None, "has no monitor yet that reports a key for secrets"),
        (Inventory(), "takes no secrets: its monitor knows no key for them"),
        (Inventory(secrets_problem="no Landlock"), "takes no secrets: no Landlock"),
        (Inventory(secrets_key="A" * 44), ""),
    ],
)
def test_secrets_go_to_nodes_with_a_key(inventory: Inventory | None, why: str) -> None:
    state = state_of(WEB)
    node = replace(state.cluster.nodes[AGENTS[0]], inventory=inventory)
    known = Neighbours(state)
    assert known.barred(job_of(secrets=SECRETS), node) == why
    assert known.barred(job_of(), node) == ""
    state.cluster.nodes[AGENTS[0]] = node
    nodes = {AGENTS[0]: NodeCapacity(AGENTS[0], "a0")}
    assert list(known.open_to(job_of(secrets=SECRETS), nodes)) == ([] if why else [AGENTS[0]])


def test_jobs_with_one_key_go_to_the_same_nodes() -> None:
    state = state_of(WEB, SHY)
    known = Neighbours(state)
    assert known.key(job_of()) is None
    assert known.key(job_of(tasks=2)) is None
    assert known.key(job_of(app="db")) is None
    assert known.key(job_of("a", app="web")) == known.key(job_of("b", app="web", cpus=2))
    kinds: list[dict[str, Any]] = [
        {"app": "web"}, {"secrets": SECRETS}, {"constraints": (UNIQUE,)}, {"near": "web"}, {"away": "web"},
        {"away": "web", "app": "db"}, {"constraints": (UNIQUE,), "tasks": 2},
    ]  # fmt: skip
    keys = [known.key(job_of(**fields)) for fields in kinds]
    assert None not in keys
    assert len(set(keys)) == len(kinds)
    web = job_of("new", app="web")
    before = known.key(web)
    take = Take(AGENTS[0], web)
    known.take(take)
    assert known.key(web) != before
    known.undo(take)
    assert known.key(web) == before


def test_launch_counts_from_when_somebody_has_asked_and_is_undone_whole() -> None:
    state = state_of(WEB)
    known = Neighbours(state)
    early, shy, plain = (
        Take(AGENTS[0], job_of("early", away="db")),
        Take(AGENTS[0], job_of("s", away="db")),
        Take(AGENTS[0], job_of()),
    )
    known.take(early)  # before any question
    asks = job_of("d", app="db")
    assert barred(known, asks, state) == ["", "", ""]
    web = job_of("w", app="web", constraints=(UNIQUE,))
    assert [bool(why) for why in barred(known, web, state)] == [False, True, False]
    monitor = Take(AGENTS[0])
    taken = (shy, plain, Take(AGENTS[0], web), monitor)
    for take in taken:
        known.take(take)
    assert barred(known, asks, state) == ["runs s, which is to be away from db", "", ""]
    assert [bool(why) for why in barred(known, web, state)] == [True, True, False]
    for take in reversed(taken):
        known.undo(take)
    known.undo(early)
    assert barred(known, asks, state) == ["", "", ""]
    assert known.key(asks) is None
    assert [bool(why) for why in barred(known, web, state)] == [False, True, False]


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({"tasks": 2}, False),
        ({"tasks": 2, "constraints": (UNIQUE,)}, True),
        ({"tasks": 1, "constraints": (UNIQUE,)}, False),
        ({"tasks": 2, "constraints": (IN_R1,)}, False),
        ({"tasks": 2, "constraints": (IN_R1, UNIQUE)}, True),
        ({"tasks": 2, "app": "web", "near": "web"}, True),
        ({"tasks": 2, "app": "db", "near": "web"}, False),
    ],
)
def test_gang_has_rules_where_its_constraints_compare_its_own_tasks(
    fields: dict[str, Any], rules: bool
) -> None:
    assert (Neighbours(state_of()).placing_of(job_of(**fields)) is not None) is rules


def test_gang_is_placed_as_its_constraints_allow_and_leaves_nothing_behind() -> None:
    state = state_of()
    known = Neighbours(state)
    gang = job_of("g", tasks=2, constraints=(UNIQUE,))
    rooms = dict.fromkeys(AGENTS, 2)
    before = known.key(gang)
    assert known.place(gang, rooms).counts == (1, 1, 0)
    assert known.key(gang) == before
    assert barred(known, gang, state) == ["", "", ""]
    large = replace(gang, spec=replace(gang.spec, tasks=4))
    assert known.place(gang, rooms, {AGENTS[0]: 1}).counts == (0, 1, 1)
    assert known.place(large, rooms).counts is None
    assert known.most(large, rooms) == [1, 1, 1]


def test_gang_is_placed_beside_what_its_app_has_near_and_away_of_itself() -> None:
    rooms = dict.fromkeys(AGENTS, 3)
    fields = {"tasks": 3, "app": "web"}
    near, away = job_of("g", near="web", **fields), job_of("g", away="web", **fields)
    assert sorted(Neighbours(state_of()).place(near, rooms).counts or ()) == [0, 0, 3]
    assert Neighbours(state_of()).place(away, rooms).counts == (1, 1, 1)
    most = job_of("g", constraints=(Constraint("hostname", Operator.MAX_PER, "2"),), **fields)
    assert Neighbours(state_of(WEB)).place(most, rooms).counts in {(2, 1, 0), (0, 1, 2)}


def test_task_of_a_node_that_is_forgotten_counts_by_its_host_name() -> None:
    state = state_of(WEB)
    del state.cluster.nodes[AGENTS[1]]
    known = Neighbours(state)
    shy = job_of(away="web")
    assert (
        known.barred(shy, Node(AgentId("new"), "gone.example"))
        == "runs web1, and this job is to be away from web"
    )
    assert known.barred(shy, Node(AgentId("new"), "a1.example")) == ""


@pytest.mark.parametrize(("constraint", "out"), [(IN_R1, [True, False, True]), (UNIQUE, [False] * 3)])
def test_node_is_ruled_out_by_what_never_changes(constraint: Constraint, out: list[bool]) -> None:
    state = state_of(("web1", 1, {"app": "web"}))
    known = Neighbours(state)
    said = [
        known.ruled_out(spec(app="web", constraints=(constraint,)), node)
        for node in state.cluster.nodes.values()
    ]
    assert [bool(why) for why in said] == out
    assert all(why.startswith(f"violates constraint {constraint}: ") for why in said if why)
