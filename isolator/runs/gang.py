"""Member of a gang on its host: its list of hosts, its port, and the barrier before its command."""

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
#: Range of ports to try, below those from 32768 on that the kernel gives to connections.
_FIRST_PORT: Final = 10_000
_PORTS: Final = 20_000
_STEP: Final = 1009  # step between tries, large enough to leave a range of other tasks' ports at once
_MAX_TRIED: Final = 100
HOSTFILE_IN_IMAGE: Final = "/etc/mesos-gpu-hostfile"


def with_port(plan: Assignment, task_id: str, may_bind: Callable[[int], bool]) -> Assignment:
    """Return the launch of a job's only task with a free port of this host as its MASTER_PORT.

    Args:
        plan: Launch whose environment has the port 0 where the scheduler asks for a free port.
        task_id: Task id of Mesos, by which tasks that start at one moment try different ports first.
        may_bind: Function that returns whether the task may bind a port.
    """
    names = [name for name in PORTS if plan.env.get(name) == str(FREE_PORT)]
    if not names:
        return plan
    first = int.from_bytes(blake2b(task_id.encode(), digest_size=4).digest(), "big")
    tried = (_FIRST_PORT + (first + number * _STEP) % _PORTS for number in range(_MAX_TRIED))
    port = next((port for port in tried if may_bind(port) and not unbindable([port])), FREE_PORT)
    return replace(plan, env={**plan.env, **dict.fromkeys(names, str(port))})


def hostfile_in(sandbox: str) -> str:
    """Return the path of a member's list of hosts in its sandbox."""
    return os.path.join(sandbox, HOSTFILE)


def write_hostfile(plan: Assignment, sandbox: str) -> None:
    """Write a line for each member, by rank, as mpirun reads it (Open MPI, orte_hosts(7)): host and slots."""
    slots = max(len(plan.gpus), 1)
    lines = "".join(f"{host} slots={slots}\n" for host in plan.hosts)
    with Sandbox(sandbox) as place:  # the safe way: a link of that name may have been fetched
        place.put(HOSTFILE, lines.encode())


def may_start(data: bytes) -> bool:
    """Return whether a scheduler message says that all members are ready (`mesos_v1.start_message`)."""
    try:
        value = parsed(data)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("start") is True
