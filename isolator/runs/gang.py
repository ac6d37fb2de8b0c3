"""A gang's member on its host: where the others are, and the barrier before its command."""

import os
from typing import Final

from isolator.host.sandbox import Sandbox
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.wire.body import parsed

HOSTFILE: Final = "hostfile"
HOSTFILE_IN_IMAGE: Final = "/etc/mesos-gpu-hostfile"


def hostfile_in(sandbox: str) -> str:
    """Where a member's list of hosts is on its own host."""
    return os.path.join(sandbox, HOSTFILE)


def write_hostfile(plan: Assignment, sandbox: str) -> None:
    """Write a line for each member, by rank, as mpirun reads it (Open MPI, orte_hosts(7)): host and slots."""
    slots = max(len(plan.gpus), 1)
    lines = "".join(f"{host} slots={slots}\n" for host in plan.hosts)
    with Sandbox(sandbox) as place:  # what was fetched may have a link of that name
        place.put(HOSTFILE, lines.encode())


def may_start(data: bytes) -> bool:
    """Whether a message of the scheduler says that all members are in their places (`mesos_v1.start_message`)."""
    try:
        value = parsed(data)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("start") is True
