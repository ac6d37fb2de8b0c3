"""Tasks of one launch: environment of the members, their common state, and the result of their ends. Pure.

A job of one task is a gang of one.
"""

import json
from collections.abc import Container, Mapping, Sequence
from enum import Enum
from typing import Final

from mesos_gpu.model.jobs.job import JobState, OnMemberFailure
from mesos_gpu.model.tasks.assignment import FREE_PORT
from mesos_gpu.model.tasks.task import Task, TaskState

#: State of a job by that of its unfinished task; LAUNCHED is that of a task that was unreachable and is back.
SHOWN: Final = {
    TaskState.LAUNCHED: JobState.STARTING,
    TaskState.STARTING: JobState.STARTING,
    TaskState.RUNNING: JobState.RUNNING,
    TaskState.KILLING: JobState.KILLING,
    TaskState.UNREACHABLE: JobState.UNREACHABLE,
}
_HERE: Final = "127.0.0.1"
_AWAY: Final = (TaskState.UNREACHABLE, TaskState.ABANDONED)
_UP: Final = (TaskState.RUNNING, TaskState.FINISHED)


def environment(
    rank: int, hosts: Sequence[str], ports: Sequence[int], *, gpus: int, own: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables by which a member finds its gang.

    They are those of torch.distributed's env:// method and of TensorFlow, and torchrun's options (PET_*), which the job
    may override.

    Args:
        rank: Rank of the member, from 0.
        hosts, ports: Host and port of each member, by rank; each may listen on its port.
        gpus: GPUs of each member.
        own: Environment of the job.
    """
    workers = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
    options, names = _torch(rank, len(hosts), hosts[0], ports[0], gpus)
    return {
        **{name: value for name, value in options.items() if name not in own},
        **names,
        "HOST": hosts[rank],
        "PORT": str(ports[rank]),
        "PORT0": str(ports[rank]),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
    }


def environment_alone(*, gpus: int, own: Container[str]) -> dict[str, str]:
    """Return the variables of torch.distributed and torchrun for the only task of a job.

    Args:
        gpus: GPUs of the task.
        own: Names of variables that the job itself sets; they are left out.
    """
    options, names = _torch(0, 1, _HERE, FREE_PORT, gpus)
    return {name: value for name, value in {**options, **names}.items() if name not in own}


def _torch(rank: int, size: int, host: str, port: int, gpus: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return torchrun's options (PET_*), and the variables of torch.distributed's env:// method."""
    options = {
        "PET_NNODES": str(size),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(max(gpus, 1)),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": str(port),
    }
    names = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": host, "MASTER_PORT": str(port)}
    return options, names


class Verdict(Enum):
    """Consequence for a job after the last task of a launch has ended."""

    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"
    RETRY = "retry"  # an attempt is used up
    REQUEUE = "requeue"  # no attempt is used up


def shown(members: Sequence[Task], *, kill_requested: bool) -> JobState:
    """Return the state of a job whose tasks have not all ended: the common state of several tasks."""
    states = {member.state for member in members}
    if kill_requested:
        return JobState.KILLING
    if any(state in _AWAY for state in states):
        return JobState.UNREACHABLE
    if all(state in _UP for state in states):
        return JobState.RUNNING
    # Some members run and others do not: the gang is starting as long as one of them is.
    return SHOWN[states.pop()] if len(states) == 1 else JobState.STARTING


def verdict(members: Sequence[Task], policy: OnMemberFailure, *, kill_requested: bool) -> Verdict | None:
    """Return the consequence of the ends of a job's tasks; None if some may still run.

    Args:
        members: Tasks of the latest launch; a task that was given up as unreachable counts as lost.
        policy: Consequence of losing one of several members; ignored for a job of one task.
        kill_requested: Whether a user requested the end.
    """
    if not all(member.ended or member.state is TaskState.ABANDONED for member in members):
        return None
    if all(member.state is TaskState.FINISHED for member in members):
        return Verdict.FINISHED
    if kill_requested or all(member.state is TaskState.KILLED for member in members):
        return Verdict.KILLED
    failed = any(member.state is TaskState.FAILED for member in members)
    strict = policy is OnMemberFailure.FAIL and len(members) > 1
    if strict and (failed or any(_lost(member) for member in members)):
        return Verdict.FAILED
    return Verdict.RETRY if failed else Verdict.REQUEUE


def _lost(member: Task) -> bool:
    """Return whether the infrastructure lost a member, not counting members that the scheduler ended."""
    return member.state in (TaskState.LOST, TaskState.ABANDONED) and not member.evicted
