"""Jobs of several tasks: where the members find each other, and what the end of some means for all. Pure."""

import json
from collections.abc import Sequence
from enum import Enum

from mesos_gpu.model.jobs.job import OnMemberFailure
from mesos_gpu.model.tasks.task import Task, TaskState


def environment(rank: int, hosts: Sequence[str], ports: Sequence[int]) -> dict[str, str]:
    """What a member is told of its gang: the names of torch.distributed's env:// method and of TensorFlow.

    Args:
        rank: Its own, from 0.
        hosts, ports: Of all members, by rank; each may listen on its port of its host.
    """
    workers = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(ports[0]),
        "HOST": hosts[rank],
        "PORT": str(ports[rank]),
        "PORT0": str(ports[rank]),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
    }


class Verdict(Enum):
    """What becomes of a job when the last task of a launch has ended."""

    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"
    RETRY = "retry"  # an attempt is used up
    REQUEUE = "requeue"  # none is


def verdict(members: Sequence[Task], policy: OnMemberFailure, *, kill_requested: bool) -> Verdict | None:
    """None: some may still run. A launch that was given up as unreachable counts as lost."""
    if not all(member.ended or member.state is TaskState.ABANDONED for member in members):
        return None
    if all(member.state is TaskState.FINISHED for member in members):
        return Verdict.FINISHED
    if kill_requested:
        return Verdict.KILLED
    failed = any(member.state is TaskState.FAILED for member in members)
    if policy is OnMemberFailure.FAIL and (failed or any(_lost(member) for member in members)):
        return Verdict.FAILED
    return Verdict.RETRY if failed else Verdict.REQUEUE


def _lost(member: Task) -> bool:
    """By the infrastructure: not because we ended it."""
    return member.state in (TaskState.LOST, TaskState.ABANDONED) and not member.evicted
