"""Validation of status updates against the executor's seal. Pure."""

from typing import Final

from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task

#: Mesos' own updates need no seal: neither a master nor an agent accepts these sources from an executor
#: (slave/validation.cpp: "with invalid source, expecting 'SOURCE_EXECUTOR'").
_OF_MESOS: Final = ("SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_SLAVE")
_ECHO: Final = "REASON_RECONCILIATION"


def doubt(task: Task, status: Status) -> str:
    """Return why a status update cannot be genuine; "" if it is accepted."""
    if not task.sealed:
        return ""
    if status.agent_id not in (None, task.agent_id):
        return f"it comes from agent {status.agent_id}, and its task is on {task.agent_id}"
    if status.source not in _OF_MESOS:
        if status.proof is None:
            return "it lacks the seal of its task's executor"
        if status.proof < task.proof:
            return f"its number {status.proof} is lower than {task.proof}, which was received before"
    elif status.state == "TASK_FINISHED" and status.reason != _ECHO:
        return f"{status.source} cannot report a finished task"
    return ""


def is_echo(task: Task, status: Status) -> bool:
    """Return whether an update is only the master's record of an end, without the executor's report.

    The agent repeats the report itself until it is acknowledged. Until then the recorded end of a sealed task may be
    forged.
    """
    if status.reason != _ECHO:
        return False
    ends = ("TASK_FAILED", "TASK_ERROR", "TASK_KILLED", *(("TASK_FINISHED",) if task.sealed else ()))
    return status.state in ends


def is_left_over(task: Task, status: Status) -> bool:
    """Return whether a task's executor may still run although Mesos has recorded its end.

    That is so for a sealed task whose end was reported to Mesos by another sender.
    """
    return task.sealed and status.reason == _ECHO
