"""Whose the processes are that a driver names by their ids: an id is used again, and what is told of it is of then."""

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from isolator.host.processes import living_thread
from mesos_gpu.adapters.proc import start_ticks

NOBODYS: Final = ""  # in place of a task
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Whose:
    """The tasks that a process id on a card stands for. None: nobody can tell.

    Attributes:
        present: Whose the process is that the driver has found on the card.
        worked: Whose the work is that it tells of under that id since the look before.
    """

    present: str | None
    worked: str | None


@dataclass(frozen=True, slots=True)
class _Process:
    started_ticks: int
    task: str


class Processes:
    """Remembers the processes that were on cards from look to look, each by its id and its start."""

    def __init__(self) -> None:
        """None is known."""
        self._before: dict[int, _Process] = {}

    def look(self, pids: Collection[int], tasks: Mapping[int, str], began_ticks: int) -> dict[int, Whose]:
        """Tell whose each is.

        A process that has ended since the look before is the one that had its id then. Two that have ended since, one
        after the other under one id, cannot be told apart.

        Args:
            pids: All that the driver names, on any card.
            tasks: By process id, the task of each process that is of one now.
            began_ticks: When the driver was asked, clock ticks since boot. What has started since it cannot mean.
        """
        now = {
            pid: _Process(started, tasks.get(pid, NOBODYS))
            for pid in pids
            if (started := started_ticks(pid)) is not None
        }
        whose = {pid: _whose(self._before.get(pid), now.get(pid), began_ticks) for pid in pids}
        self._before = now
        return whose


def _whose(before: _Process | None, now: _Process | None, began_ticks: int) -> Whose:
    """`before`, `now`: which process had the id at the look before, and has it now."""
    if now is None:
        task = None if before is None else before.task
        return Whose(task, task)
    if now.started_ticks > began_ticks:
        return Whose(None, None)
    same = before is None or before.started_ticks == now.started_ticks
    return Whose(now.task, now.task if same else None)


def started_ticks(pid: int) -> int | None:
    """When a process started, clock ticks since boot; None: it has ended."""
    return start_ticks(living_thread(pid))


def ticks_now() -> int:
    """Clock ticks since boot, by which the kernel says when a process started (proc_pid_stat(5))."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
