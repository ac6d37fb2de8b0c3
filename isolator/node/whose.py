"""Attribution of process ids that a driver reports to tasks: ids are reused, and a report is about the past."""

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from isolator.host.processes import living_thread
from mesos_gpu.adapters.proc import start_ticks

NOBODYS: Final = ""  # in place of a task's id: the process belongs to no task
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Whose:
    """Tasks that a process id on a card stands for; None if that is unknown.

    Attributes:
        present: Task of the process that the driver has found on the card.
        worked: Task of the work that the driver reports under this id since the last look.
    """

    present: str | None
    worked: str | None


@dataclass(frozen=True, slots=True)
class _Process:
    """Process that had an id at a look."""

    started_ticks: int
    task: str


class Processes:
    """Memory of the processes on cards from look to look, each by id and start time."""

    def __init__(self) -> None:
        self._before: dict[int, _Process] = {}

    def look(self, pids: Collection[int], tasks: Mapping[int, str], began_ticks: int) -> dict[int, Whose]:
        """Return the tasks for which each process id stands.

        A process that has ended since the last look is taken for the one that had the id then. Two that had
        the same id one after the other, and have both ended since, cannot be distinguished.

        Args:
            pids: Process ids in the driver's report, on any card.
            tasks: Task of each process that belongs to one now.
            began_ticks: Time when the driver was asked, in clock ticks since boot; processes that started
                later are not meant.
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
    """Attribute one id.

    Args:
        before: Process with the id at the last look.
        now: Process with the id now.
        began_ticks: Time when the driver was asked, in clock ticks since boot.
    """
    if now is None:
        task = None if before is None else before.task
        return Whose(task, task)
    if now.started_ticks > began_ticks:
        return Whose(None, None)
    same = before is None or before.started_ticks == now.started_ticks
    return Whose(now.task, now.task if same else None)


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it has ended."""
    return start_ticks(living_thread(pid))


def ticks_now() -> int:
    """Return the clock ticks since boot, the unit of start times in proc_pid_stat(5)."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
