"""Which word of a task is believed. Pure."""

from typing import Final

from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task

#: Mesos' own words need no seal: neither a master nor an agent takes one of these sources from an executor
#: (slave/validation.cpp: "with invalid source, expecting 'SOURCE_EXECUTOR'").
_OF_MESOS: Final = ("SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_SLAVE")
_ECHO: Final = "REASON_RECONCILIATION"


def doubt(task: Task, status: Status) -> str:
    """Why an update cannot be what it says it is; "": it is believed."""
    if not task.sealed:
        return ""
    if status.agent_id not in (None, task.agent_id):
        return f"it comes from agent {status.agent_id}, and its task is on {task.agent_id}"
    if status.source not in _OF_MESOS:
        if status.proof is None:
            return "it lacks the seal of its task's executor"
        if status.proof < task.proof:
            return f"it is number {status.proof}, and number {task.proof} was heard"
    elif status.state == "TASK_FINISHED" and status.reason != _ECHO:
        return f"{status.source} cannot know that"
    return ""


def is_echo(task: Task, status: Status) -> bool:
    """Whether it is only what the master has heard of an end, without what its executor said: the agent repeats that
    itself until it is acknowledged. An end that was sealed may be of another's making until then."""
    if status.reason != _ECHO:
        return False
    ends = ("TASK_FAILED", "TASK_ERROR", "TASK_KILLED", *(("TASK_FINISHED",) if task.sealed else ()))
    return status.state in ends


def is_left_over(task: Task, status: Status) -> bool:
    """Whether the executor of a task that Mesos calls gone may run on: somebody else reported its end to Mesos."""
    return task.sealed and status.reason == _ECHO
