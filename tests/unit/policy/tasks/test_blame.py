"""Ends of launches: which state an update means, and whether the job or the infrastructure is to blame."""

import pytest

from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.policy.tasks.blame import ended_by_itself, exit_code, is_final_error, next_state

LOST_AGENT = "REASON_AGENT_REMOVED"


def update(state: str, reason: str = "", message: str = "") -> Status:
    return Status(TaskId("t.1"), state, AgentId("a1"), reason, "", message, None, b"")


def meant(state: str, reason: str = "", outcome: Outcome | None = None, **why: bool) -> TaskState | None:
    told = {"kill_requested": False, "sick_gpu": False, **why}
    return next_state(update(state, reason), outcome, **told)


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("TASK_STAGING", TaskState.LAUNCHED),
        ("TASK_STARTING", TaskState.STARTING),
        ("TASK_RUNNING", TaskState.RUNNING),
        ("TASK_KILLING", TaskState.KILLING),
        ("TASK_UNREACHABLE", TaskState.UNREACHABLE),
        ("TASK_UNKNOWN", TaskState.UNREACHABLE),
        ("TASK_FINISHED", TaskState.FINISHED),
        ("TASK_LOST", TaskState.LOST),
        ("TASK_DROPPED", TaskState.LOST),
        ("TASK_GONE", TaskState.LOST),
        ("TASK_GONE_BY_OPERATOR", TaskState.LOST),
        ("TASK_FAILED", TaskState.FAILED),
        ("TASK_ERROR", TaskState.FAILED),
        ("TASK_KILLED", TaskState.LOST),  # by an operator, or with its agent
        ("TASK_OF_TOMORROW", None),
    ],
)
def test_blame_of_a_plain_update_follows_from_its_state(state: str, wanted: TaskState | None) -> None:
    assert meant(state) is wanted


KILLS: dict[str, tuple[dict[str, bool], Outcome | None, TaskState]] = {
    "a user asked": ({"kill_requested": True}, None, TaskState.KILLED),
    "a user asked, and it was at fault": ({"kill_requested": True, "at_fault": True}, None, TaskState.KILLED),
    "nobody asked": ({}, None, TaskState.LOST),
    "it was at fault": ({"at_fault": True}, None, TaskState.FAILED),
    "its executor found it unhealthy": ({}, Outcome(unhealthy="no answer"), TaskState.FAILED),
    "at fault, and its executor says nothing of health": ({"at_fault": True}, Outcome(), TaskState.FAILED),
    "it was well": ({}, Outcome(exit_status=143), TaskState.LOST),
    "at fault on a sick card": ({"at_fault": True, "sick_gpu": True}, None, TaskState.LOST),
}


@pytest.mark.parametrize(("why", "outcome", "wanted"), KILLS.values(), ids=KILLS)
def test_blame_of_a_kill_is_of_who_wanted_it(
    why: dict[str, bool], outcome: Outcome | None, wanted: TaskState
) -> None:
    assert meant("TASK_KILLED", "", outcome, **why) is wanted


FAILURES: dict[str, tuple[str, dict[str, bool], Outcome | None, TaskState]] = {
    "by itself": ("REASON_COMMAND_EXECUTOR_FAILED", {}, Outcome(exit_status=1), TaskState.FAILED),
    "its agent is gone": (LOST_AGENT, {}, None, TaskState.LOST),
    "its card is sick": ("", {"sick_gpu": True}, Outcome(exit_status=1), TaskState.LOST),
    "its host could not start it": ("", {}, Outcome(infrastructure=True), TaskState.LOST),
    "its image needs a newer driver": ("", {}, Outcome(min_driver="550.1"), TaskState.LOST),
    "a user asked": ("", {"kill_requested": True}, Outcome(signal=9), TaskState.FAILED),
}


@pytest.mark.parametrize(("reason", "why", "outcome", "wanted"), FAILURES.values(), ids=FAILURES)
def test_blame_of_a_failure_is_the_infrastructures_where_it_says_nothing_of_the_command(
    reason: str, why: dict[str, bool], outcome: Outcome | None, wanted: TaskState
) -> None:
    assert meant("TASK_FAILED", reason, outcome, **why) is wanted


@pytest.mark.parametrize(
    ("state", "reason", "wanted", "final"),
    [
        ("TASK_ERROR", "REASON_TASK_INVALID", TaskState.FAILED, True),
        ("TASK_ERROR", "REASON_INVALID_OFFERS", TaskState.LOST, False),
        ("TASK_FAILED", "REASON_TASK_INVALID", TaskState.FAILED, False),
    ],
)
def test_errors_of_the_master_are_final_unless_of_the_infrastructure(
    state: str, reason: str, wanted: TaskState, final: bool
) -> None:
    assert meant(state, reason) is wanted
    assert is_final_error(update(state, reason)) is final


@pytest.mark.parametrize(
    ("state", "message", "itself"),
    [
        ("TASK_FAILED", "Command exited with status 1", True),
        ("TASK_FINISHED", "Command exited with status 0", True),
        ("TASK_FAILED", "Command terminated with signal Killed", True),
        ("TASK_FAILED", "out of memory", False),
        ("TASK_KILLED", "Command terminated with signal Killed", False),
    ],
)
def test_command_ended_by_itself_where_its_executor_says_so(state: str, message: str, itself: bool) -> None:
    assert ended_by_itself(update(state, "", message)) is itself


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (None, None),
        (Outcome(), None),
        (Outcome(exit_status=3), 3),
        (Outcome(signal=9), 137),
        (Outcome(exit_status=0), 0),
    ],
)
def test_exit_code_is_as_a_shell_gives_it(outcome: Outcome | None, code: int | None) -> None:
    assert exit_code(outcome) == code
