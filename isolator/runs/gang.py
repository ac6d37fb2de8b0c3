"""A gang's member on its host: where the others are, and the barrier before its command."""

import json
import os
import threading
from typing import Final

from isolator.host.sandbox import Sandbox
from mesos_gpu.model.tasks.assignment import Assignment

HOSTFILE: Final = "hostfile"
HOSTFILE_IN_IMAGE: Final = "/etc/mesos-gpu-hostfile"


def hostfile_in(sandbox: str) -> str:
    """Where a member's list of hosts is on its own host."""
    return os.path.join(sandbox, HOSTFILE)


def write_hostfile(plan: Assignment, sandbox: str) -> None:
    """One line a member, by rank, as mpirun reads it (Open MPI, orte_hosts(7)): host and slots."""
    slots = max(len(plan.gpus), 1)
    lines = "".join(f"{host} slots={slots}\n" for host in plan.hosts)
    with Sandbox(sandbox) as place:  # what was fetched may have a link of that name
        place.put(HOSTFILE, lines.encode())


class Barrier:
    """Opened by the scheduler's word, or by the wish for an end. It stays open."""

    def __init__(self) -> None:
        """Closed."""
        self._open = threading.Event()

    def open(self) -> None:
        """Let the member through."""
        self._open.set()

    def hear(self, data: bytes) -> None:
        """A message of the scheduler; another one than `mesos_v1.start_message` is none of its business."""
        try:
            value = json.loads(data)
        except ValueError:
            return
        if isinstance(value, dict) and value.get("start") is True:
            self.open()

    def wait(self) -> None:
        """Until it is open."""
        self._open.wait()
