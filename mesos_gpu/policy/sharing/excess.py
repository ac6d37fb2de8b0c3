"""Tasks that use more memory than their share, and what is done about them. Pure.

Where libraries in the task keep its share, they can be passed by: what the driver says of its processes cannot. So the
host looks at that, too. Where hardware, kernel or driver keep the share there is nothing to be found.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final

from mesos_gpu.model.shares.request import OnExcess
from mesos_gpu.model.shares.share import Share

WARN_LOOKS: Final = 2  # in a row
END_LOOKS: Final = 3
MIB: Final = 1 << 20
File = tuple[int, int]  # device and inode


class Treatment(Enum):
    """What is done about a task."""

    NONE = "none"
    WARN = "warn"
    END = "end"


def is_watched(share: Share) -> bool:
    """Whether a share is kept by nothing but the task's own libraries, so that more than it can be used."""
    return share.method.memory_by == "shim"


def looks_over(share: Share, memory_mib: int | None, slack_mib: int, before: int) -> int:
    """How many looks in a row have found a task beyond its share.

    Args:
        share: What it is granted.
        memory_mib: What it uses; None: nobody can say, which neither counts nor clears it.
        slack_mib: What more is not minded: a driver's own memory for each process is not known exactly.
        before: Looks in a row until now.
    """
    if not is_watched(share):
        return 0
    if memory_mib is None:
        return before
    return min(before + 1, END_LOOKS) if memory_mib > share.memory_max_mib + slack_mib else 0


def treatment(looks: int, on_excess: OnExcess) -> Treatment:
    """What is done about a task that so many looks in a row have found beyond its share."""
    if on_excess is OnExcess.IGNORE or looks < WARN_LOOKS:
        return Treatment.NONE
    return Treatment.END if on_excess is OnExcess.END and looks >= END_LOOKS else Treatment.WARN


def foreign(mapped: Collection[tuple[str, File]], ours: frozenset[File], real: str) -> str:
    """The first libcuda that a process has and that does not keep its share; "": none.

    Args:
        mapped: Paths of files that it has mapped, each with device and inode; what is no libcuda may be left out.
        ours: Device and inode of each of the libraries that keep shares.
        real: What the driver's own is called beside ours, which alone loads it.
    """
    guarded = not ours.isdisjoint(file for _, file in mapped)
    for path, file in sorted(mapped):
        name = path.rpartition("/")[2]
        if name.startswith("libcuda.so") and file not in ours:  # not libcudart, which calls it
            return path
        if name == real and not guarded:
            return path
    return ""
