"""The ground of a plan of moves: which nodes and which jobs it may count on, and where each may go."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.match.moves import problem_of
from mesos_gpu.engine.match.placing import BEHAVIOR_LABEL
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.room.defrag import Problem
from tests.doubles.builders import World, gpu, offer, spec

A, B = AgentId("a1"), AgentId("b1")
UNIQUE = (Constraint("hostname", Operator.UNIQUE),)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    for agent in A, B:
        world.node(agent, *(gpu(f"{agent}-{i}") for i in range(2)))
    return world


def runs(world: World, name: str, **fields: object) -> Job:
    world.submit(name, **{"gpus": 1, "preemptible": True, **fields})
    for task in world.state.work.round_of(world.job(name)):
        world.status(task.id, "TASK_STARTING", agent=task.agent_id)
        world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
    assert world.job(name).state.value == "running"
    return world.job(name)


def asked(world: World, **fields: object) -> Problem:
    request = replace(world.job(), id=JobId("asked"), spec=spec(**{"gpus": 2, **fields}))
    return problem_of(world.state, world.settings, world.now, request)


def movable(world: World) -> dict[str, list[str]]:
    return {
        each.node.agent_id: [task.job_id for task in each.tasks]
        for each in asked(world).candidates
        if each.tasks
    }


def test_moves_are_of_preemptible_jobs_of_one_task_that_run(world: World) -> None:
    runs(world, "j1")
    runs(world, "fixed", preemptible=False)
    world.node("c1", gpu("c1-0"), gpu("c1-1"))
    runs(world, "gang", tasks=2)
    assert [job_id for jobs in movable(world).values() for job_id in jobs] == ["j1"]


def test_moves_are_of_no_job_that_is_being_ended(world: World) -> None:
    job = runs(world, "j1")
    assert movable(world)
    world.feed(ev.KillRequested(job.id))
    assert not movable(world)


def test_moves_are_of_no_job_that_is_cut_off(world: World) -> None:
    job = runs(world, "j1")
    assert job.task_id is not None
    world.status(job.task_id, "TASK_UNREACHABLE", agent=world.state.work.tasks[job.task_id].agent_id)
    assert not movable(world)


def test_moves_count_the_work_that_is_lost_in_gpu_seconds(world: World) -> None:
    runs(world, "j1", gpus=2)
    world.tick(30.0)
    (task,) = [task for each in asked(world).candidates for task in each.tasks]
    assert (task.lost_gpu_s, len(task.gpus), task.bound) == (60.0, 2, False)


def test_moves_use_no_node_that_is_drained_or_lost(world: World) -> None:
    runs(world, "j1")
    assert {each.node.agent_id for each in asked(world).candidates} == {A, B}
    world.feed(ev.AgentLost(A))
    assert {each.node.agent_id for each in asked(world).candidates} == {B}


def test_moves_are_hopeless_where_no_node_is_large_enough(world: World) -> None:
    runs(world, "j1")
    assert asked(world).hopeless == ""
    assert "large enough" in asked(world, gpus=3).hopeless
    nowhere = (Constraint("hostname", Operator.CLUSTER, "elsewhere"),)
    assert asked(world, constraints=nowhere).hopeless == "no node meets its constraints"


def test_moves_keep_the_constraints_of_a_job_among_its_company(world: World) -> None:
    for name in "j1", "j2":
        runs(world, name, app="/web", constraints=UNIQUE)
    problem = asked(world)
    at = {task.job_id: each.node.agent_id for each in problem.candidates for task in each.tasks}
    assert {*at.values()} == {A, B}
    assert all(task.bound for each in problem.candidates for task in each.tasks)
    mine, other = at[JobId("j1")], at[JobId("j2")]
    assert problem.open_to(JobId("j1"), mine, {}, ()), "it is not in its own way"
    assert not problem.open_to(JobId("j1"), other, {}, ())
    assert problem.open_to(JobId("j1"), other, {JobId("j2"): mine}, ()), "the other has left"


def test_moves_of_a_job_without_constraints_go_anywhere(world: World) -> None:
    runs(world, "j1")
    problem = asked(world)
    assert not problem.bound
    assert all(problem.open_to(who, agent, {}, ()) for who in (JobId("j1"), None) for agent in (A, B))


def test_moves_take_a_job_that_keeps_off_gpus_to_no_node_with_gpus(world: World) -> None:
    runs(world, "j1")
    world.offers(offer("bare", "c1", gpus=0))
    problem = asked(world, gpus=0, labels={BEHAVIOR_LABEL: "restricted"})
    assert not problem.open_to(None, A, {}, ())
    assert problem.open_to(None, AgentId("c1"), {}, ())


def test_moves_for_a_gang_see_the_members_that_are_placed(world: World) -> None:
    runs(world, "j1")
    problem = asked(world, gpus=1, tasks=2, constraints=UNIQUE)
    assert problem.bound
    assert problem.open_to(None, A, {}, ())
    assert not problem.open_to(None, A, {}, (A,))
    assert problem.open_to(None, B, {}, (A,))
