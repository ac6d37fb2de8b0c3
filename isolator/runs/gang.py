"""A gang's member on its host: where the others are, and the barrier before its command."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from isolator.host.port_ranges import unbindable
from isolator.host.sandbox import Sandbox
from mesos_gpu.model.tasks.assignment import FREE_PORT, Assignment
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.digest import blake2b

HOSTFILE: Final = "hostfile"
PORTS: Final = ("MASTER_PORT", "PET_MASTER_PORT")
#: Ports that are tried: the kernel gives those from 32768 on to connections.
_FIRST_PORT: Final = 10_000
_PORTS: Final = 20_000
_STEP: Final = 1009  # so that a range of ports of other tasks is left at once
_MAX_TRIED: Final = 100
HOSTFILE_IN_IMAGE: Final = "/etc/mesos-gpu-hostfile"


def with_port(plan: Assignment, task_id: str, may_bind: Callable[[int], bool]) -> Assignment:
    """Return the launch of a job's only task with a free port of this host as its MASTER_PORT.

    Args:
        plan: Launch whose environment has the port 0 where the scheduler asks for a free port.
        task_id: Task id of Mesos, by which tasks that start at one moment try different ports first.
        may_bind: Function that returns whether the task may bind a port.
    """
    wanted = [name for name in PORTS if plan.env.get(name) == str(FREE_PORT)]
    if not wanted:
        return plan
    first = int.from_bytes(blake2b(task_id.encode(), digest_size=4).digest(), "big")
    tried = (_FIRST_PORT + (first + number * _STEP) % _PORTS for number in range(_MAX_TRIED))
    port = next((port for port in tried if may_bind(port) and not unbindable([port])), FREE_PORT)
    return replace(plan, env={**plan.env, **dict.fromkeys(wanted, str(port))})


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
