"""Locks on files and directories that the kernel releases when their holder dies (flock(2)). Lean: the
executor imports it.
"""

import fcntl
import time
from typing import Final

_POLL_S: Final = 0.005


def locked_within(fd: int, timeout_s: float) -> bool:
    """Lock the file of a descriptor for as long as it is open; return whether that succeeded in time.

    A holder that is stopped, as in a frozen cgroup, keeps its lock; hence the time limit.
    """
    deadline = time.monotonic() + timeout_s
    while not locked_now(fd):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def locked_now(fd: int) -> bool:
    """Lock the file of a descriptor without waiting; return whether that succeeded."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
