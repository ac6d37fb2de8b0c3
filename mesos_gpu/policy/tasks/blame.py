"""Cause of the end of a launch: the job, or the infrastructure. Pure."""

from typing import Final

from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import TaskState

BY_ITSELF: Final = ("Command exited ", "Command terminated ")  # beginnings of executors' messages
_LIVE: Final = {
    "TASK_STAGING": TaskState.LAUNCHED,
    "TASK_STARTING": TaskState.STARTING,
    "TASK_RUNNING": TaskState.RUNNING,
    "TASK_KILLING": TaskState.KILLING,
    "TASK_UNREACHABLE": TaskState.UNREACHABLE,
    # A master that has just started knows no agents, so an unknown task may still run.
    "TASK_UNKNOWN": TaskState.UNREACHABLE,
    "TASK_FINISHED": TaskState.FINISHED,
    "TASK_LOST": TaskState.LOST,
    "TASK_DROPPED": TaskState.LOST,
    "TASK_GONE": TaskState.LOST,
    "TASK_GONE_BY_OPERATOR": TaskState.LOST,
}

# TASK_FAILED for these reasons (mesos.proto, TaskStatus.Reason) says nothing about the command.
_INFRASTRUCTURE: Final = frozenset(
    {
        "REASON_CONTAINER_LAUNCH_FAILED",
        "REASON_CONTAINER_PREEMPTED",
        "REASON_CONTAINER_UPDATE_FAILED",
        "REASON_EXECUTOR_REGISTRATION_TIMEOUT",
        "REASON_EXECUTOR_REREGISTRATION_TIMEOUT",
        "REASON_EXECUTOR_TERMINATED",
        "REASON_EXECUTOR_UNREGISTERED",
        "REASON_GC_ERROR",
        "REASON_SLAVE_DISCONNECTED",
        "REASON_SLAVE_REMOVED",
        "REASON_SLAVE_REMOVED_BY_OPERATOR",
        "REASON_SLAVE_REREGISTERED",
        "REASON_SLAVE_RESTARTED",
        "REASON_SLAVE_UNKNOWN",
        "REASON_AGENT_DISCONNECTED",
        "REASON_AGENT_REMOVED",
        "REASON_AGENT_REMOVED_BY_OPERATOR",
        "REASON_AGENT_REREGISTERED",
        "REASON_AGENT_RESTARTED",
        "REASON_AGENT_UNKNOWN",
        "REASON_INVALID_OFFERS",
        "REASON_MASTER_DISCONNECTED",
    }
)


def next_state(
    status: Status,
    outcome: Outcome | None,
    *,
    kill_requested: bool,
    sick_gpu: bool,
    at_fault: bool = False,
) -> TaskState | None:
    """Return the state of a task after a status update; None for a state that Mesos 1.11 does not have.

    Args:
        status: Status update from Mesos.
        outcome: End as reported by the executor; None without such a report.
        kill_requested: Whether a user requested the end.
        sick_gpu: Whether one of the launch's GPUs is not healthy now.
        at_fault: Whether the scheduler ended the task for its own behaviour.
    """
    state = _LIVE.get(status.state)
    if state is not None:
        return state
    at_fault = at_fault or (outcome is not None and bool(outcome.unhealthy))
    if status.state == "TASK_KILLED" and (kill_requested or not at_fault):
        # Without a user's request, the agent or an operator shut the executor down.
        return TaskState.KILLED if kill_requested else TaskState.LOST
    if status.state == "TASK_ERROR":
        return TaskState.LOST if status.reason in _INFRASTRUCTURE else TaskState.FAILED
    if status.state in ("TASK_FAILED", "TASK_KILLED"):
        by_others = (
            sick_gpu
            or status.reason in _INFRASTRUCTURE
            or (outcome is not None and (outcome.infrastructure or outcome.min_driver is not None))
        )
        return TaskState.LOST if by_others else TaskState.FAILED
    return None


def ended_by_itself(status: Status) -> bool:
    """Return whether a command ended by itself, with any exit code, and was not killed or stopped at a limit."""
    return status.state in ("TASK_FAILED", "TASK_FINISHED") and status.message.startswith(BY_ITSELF)


def is_final_error(status: Status) -> bool:
    """Return whether every further attempt of the job must fail in the same way, as the master refused it."""
    return status.state == "TASK_ERROR" and status.reason not in _INFRASTRUCTURE


def exit_code(outcome: Outcome | None) -> int | None:
    """Return the exit code as a shell does; None if not known.

    That is the exit status, or 128 + N after signal N (POSIX, 2.8.2).
    """
    if outcome is None:
        return None
    return 128 + outcome.signal if outcome.signal is not None else outcome.exit_status
