"""Events of cgroups of version 1 whose memory is used up.

Files of version 1 do not show them: `memory.failcnt` counts each allocation that met the limit, also if file cache was
given back for it.
Source: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst (9, 10).
"""

import contextlib
import os
from typing import Final

from isolator.devices.cgroups import Cgroup

#: Descriptors of events, by cgroup; an executor has one.
_events: Final[dict[Cgroup, int]] = {}


def note_lacks(memory: Cgroup) -> None:
    """Have the kernel report when a cgroup of version 1 runs out of memory, for `has_lacked`.

    Args:
        memory: Cgroup that limits the memory of the task, before the task starts.
    """
    if memory not in _events:
        with contextlib.suppress(OSError):  # the kernel does not report this
            _events[memory] = event_of(str(memory.path), os.EFD_NONBLOCK)


def has_lacked(memory: Cgroup) -> bool | None:
    """Return whether a cgroup ran out of memory since `note_lacks`; None if the kernel does not report that."""
    if (event := _events.get(memory)) is None:
        return None
    try:
        count = os.eventfd_read(event)
    except BlockingIOError:
        return False
    os.eventfd_write(event, count)  # keeps the count for the next call
    return True


def event_of(directory: str, flags: int) -> int:
    """Return a descriptor that counts how often a cgroup of version 1 ran out of memory.

    Raises:
        OSError: The kernel refuses.
    """
    event = os.eventfd(0, os.EFD_CLOEXEC | flags)
    try:
        control = os.open(f"{directory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with open(f"{directory}/cgroup.event_control", "w") as file:
                file.write(f"{event} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(event)
        raise
    return event
