"""Verdicts over the tasks of a launch: a job of one task is a gang of one."""

import json
from dataclasses import replace

import pytest

from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState, OnMemberFailure
from mesos_gpu.model.tasks.task import LIVE, Task, TaskState
from mesos_gpu.policy.tasks.gang import SHOWN, Verdict, environment, environment_alone, shown, verdict

S, V = TaskState, Verdict
RESTART, FAIL = OnMemberFailure.RESTART, OnMemberFailure.FAIL


def members(*states: TaskState) -> list[Task]:
    return [
        Task(TaskId(f"j.1.{rank}"), AgentId("a"), "e", JobId("j"), state, 0.0, rank=rank)
        for rank, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ((S.FINISHED,), V.FINISHED),
        ((S.FAILED,), V.RETRY),
        ((S.KILLED,), V.KILLED),  # by its health checks: no user asked
        ((S.LOST,), V.REQUEUE),
        ((S.ABANDONED,), V.REQUEUE),
        ((S.RUNNING,), None),
        ((S.FINISHED, S.RUNNING), None),
        ((S.FINISHED, S.FINISHED), V.FINISHED),
        ((S.FINISHED, S.LOST), V.REQUEUE),
        ((S.KILLED, S.LOST), V.REQUEUE),
        ((S.FAILED, S.KILLED), V.RETRY),
    ],
)
def test_ends_of_all_members_decide_what_becomes_of_the_job(
    states: tuple[TaskState, ...], wanted: Verdict | None
) -> None:
    assert verdict(members(*states), RESTART, kill_requested=False) is wanted


@pytest.mark.parametrize("state", [S.FAILED, S.LOST, S.KILLED, S.ABANDONED])
@pytest.mark.parametrize("count", [1, 3])
def test_kill_that_a_user_requested_comes_before_every_bad_end(state: TaskState, count: int) -> None:
    assert verdict(members(*[state] * count), FAIL, kill_requested=True) is V.KILLED
    assert verdict(members(*[S.FINISHED] * count), FAIL, kill_requested=True) is V.FINISHED


def test_member_failure_policy_is_for_jobs_of_several_tasks_alone() -> None:
    assert verdict(members(S.LOST), FAIL, kill_requested=False) is V.REQUEUE
    assert verdict(members(S.FAILED), FAIL, kill_requested=False) is V.RETRY
    assert verdict(members(S.LOST, S.FINISHED), FAIL, kill_requested=False) is V.FAILED
    ours = [replace(task, evicted="makes room") for task in members(S.LOST, S.LOST)]
    assert verdict(ours, FAIL, kill_requested=False) is V.REQUEUE, "the scheduler ended them itself"


@pytest.mark.parametrize("state", LIVE)
def test_single_task_shows_its_own_state(state: TaskState) -> None:
    assert shown(members(state), kill_requested=False) is SHOWN[state]
    assert shown(members(state), kill_requested=True) is JobState.KILLING


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ((S.RUNNING, S.FINISHED), JobState.RUNNING),
        ((S.RUNNING, S.STARTING), JobState.STARTING),
        ((S.LAUNCHED, S.STARTING), JobState.STARTING),
        ((S.RUNNING, S.UNREACHABLE), JobState.UNREACHABLE),
        ((S.RUNNING, S.ABANDONED), JobState.UNREACHABLE),
        ((S.RUNNING, S.KILLING), JobState.STARTING),
    ],
)
def test_gang_shows_what_its_members_are_together(states: tuple[TaskState, ...], wanted: JobState) -> None:
    assert shown(members(*states), kill_requested=False) is wanted


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_environment_of_a_member_names_the_first_member_and_itself(gpus: int) -> None:
    env = environment(
        1, ("a", "b", "c"), (31001, 31002, 31003), gpus=gpus, own={"PET_NNODES": "1:3", "X": "y"}
    )
    assert json.loads(env.pop("TF_CONFIG")) == {
        "cluster": {"worker": ["a:31001", "b:31002", "c:31003"]},
        "task": {"type": "worker", "index": 1},
    }
    assert env == {
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": str(gpus or 1),
        "PET_MASTER_ADDR": "a",
        "PET_MASTER_PORT": "31001",
        "RANK": "1",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "31001",
        "HOST": "b",
        "PORT": "31002",
        "PORT0": "31002",
    }


def test_environment_of_the_only_task_asks_for_a_free_port_and_leaves_the_job_its_own() -> None:
    assert environment_alone(gpus=4, own={"RANK", "PET_NNODES"}) == {
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }


def test_environment_of_a_member_counts_the_members() -> None:
    assert environment(0, ("a", "b"), (1, 2), gpus=1, own={})["PET_NNODES"] == "2"
