"""Detection and treatment of tasks that use more GPU memory than their share. Pure.

A share that is enforced by libraries in the task can be bypassed, but what the driver reports of its processes cannot.
So the host checks that as well. Where hardware, kernel or driver enforce the share, no check is needed.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final

from mesos_gpu.model.shares.request import OnExcess
from mesos_gpu.model.shares.share import Share

WARN_LOOKS: Final = 2  # successive checks over the share before a warning
END_LOOKS: Final = 3  # successive checks over the share before the task is ended
MIB: Final = 1 << 20
File = tuple[int, int]  # device and inode


class Treatment(Enum):
    """Action against a task that exceeds its share."""

    NONE = "none"
    WARN = "warn"
    END = "end"


def is_watched(share: Share) -> bool:
    """Return whether only the task's own libraries enforce the share, so that it can be exceeded."""
    return share.method.memory_by == "shim"


def looks_over(share: Share, memory_mib: int | None, slack_mib: int, before: int) -> int:
    """Return the number of successive checks that found a task over its share.

    Args:
        share: Share of the task.
        memory_mib: Memory that it uses, in MiB; None if unknown, which leaves the count as it is.
        slack_mib: Tolerated excess in MiB: the driver's own memory for each process is not known exactly.
        before: Count before this check.
    """
    if not is_watched(share):
        return 0
    if memory_mib is None:
        return before
    return min(before + 1, END_LOOKS) if memory_mib > share.memory_max_mib + slack_mib else 0


def treatment(looks: int, on_excess: OnExcess) -> Treatment:
    """Return the action against a task that was over its share in `looks` successive checks."""
    if on_excess is OnExcess.IGNORE or looks < WARN_LOOKS:
        return Treatment.NONE
    return Treatment.END if on_excess is OnExcess.END and looks >= END_LOOKS else Treatment.WARN


def foreign(mapped: Collection[tuple[str, File]], ours: frozenset[File], real: str) -> str:
    """Return the path of the first libcuda in a process that does not enforce its share; "" without one.

    Args:
        mapped: Paths of the files that the process has mapped, with device and inode; files other than libcuda may be
            left out.
        ours: Device and inode of each library that enforces shares.
        real: File name of the driver's own library, which is allowed if one of ours is mapped: that one loads it.
    """
    guarded = not ours.isdisjoint(file for _, file in mapped)
    for path, file in sorted(mapped):
        name = path.rpartition("/")[2]
        if name.startswith("libcuda.so") and file not in ours:  # libcudart has another name: it calls libcuda
            return path
        if name == real and not guarded:
            return path
    return ""
