"""Updates of tasks that are believed, and those that are only echoes."""

import pytest

from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.tasks.trust import doubt, is_echo, is_left_over

ECHO = "REASON_RECONCILIATION"


def task(*, sealed: bool = True) -> Task:
    return Task(
        TaskId("t"), AgentId("a1"), "e", None, TaskState.RUNNING, 0.0, sealed=sealed, proof=3
    )  # fmt: skip


def status(
    state: str,
    reason: str = "",
    source: str = "SOURCE_EXECUTOR",
    *,
    agent: str | None = "a1",
    proof: int | None = 3,
) -> Status:
    return Status(TaskId("t"), state, AgentId(agent) if agent else None, reason, source, proof=proof)


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (status("TASK_RUNNING"), ""),
        (status("TASK_FINISHED"), ""),
        (status("TASK_RUNNING", agent=None), ""),
        (status("TASK_RUNNING", proof=4), ""),
        (status("TASK_RUNNING", agent="a2"), "it comes from agent a2, and its task is on a1"),
        (status("TASK_RUNNING", proof=None), "it lacks the seal of its task's executor"),
        (status("TASK_RUNNING", proof=2), "its number 2 is lower than 3, which was received before"),
        (status("TASK_FAILED", source="SOURCE_AGENT", proof=None), ""),
        (status("TASK_LOST", source="SOURCE_MASTER", proof=None), ""),
        (status("TASK_LOST", source="SOURCE_SLAVE", proof=None), ""),
        (status("TASK_FINISHED", ECHO, "SOURCE_MASTER", proof=None), ""),
        (status("TASK_FINISHED", source="SOURCE_AGENT", proof=None), "SOURCE_AGENT cannot report a finished task"),
        (status("TASK_LOST", source="SOURCE_MASTER", agent="a2"), "it comes from agent a2, and its task is on a1"),
    ],
)  # fmt: skip
def test_update_of_a_sealed_task_is_doubted_where_it_cannot_be_true(update: Status, why: str) -> None:
    assert doubt(task(), update) == why
    assert doubt(task(sealed=False), update) == ""


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(
    "state", ["TASK_FAILED", "TASK_ERROR", "TASK_KILLED", "TASK_FINISHED", "TASK_RUNNING"]
)
def test_reconciled_end_is_an_echo_and_one_without_its_seal_may_be_false(state: str, sealed: bool) -> None:
    ends = state != "TASK_RUNNING" and (sealed or state != "TASK_FINISHED")
    assert is_echo(task(sealed=sealed), status(state, ECHO)) is ends
    assert not is_echo(task(sealed=sealed), status(state, "REASON_GC_ERROR"))
    assert is_left_over(task(sealed=sealed), status(state, ECHO)) is sealed
    assert not is_left_over(task(sealed=sealed), status(state))
