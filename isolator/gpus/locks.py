"""Locks on files and directories that their holder's death opens (flock(2)). Lean: the executor imports it."""

import fcntl
import time
from typing import Final

_POLL_S: Final = 0.005


def locked_within(fd: int, timeout_s: float) -> bool:
    """Lock what a descriptor is open on, for as long as it is open. Whether it was had in time.

    A holder that is stopped, as in a frozen cgroup, keeps it: so nobody waits without end.
    """
    deadline = time.monotonic() + timeout_s
    while not locked_now(fd):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def locked_now(fd: int) -> bool:
    """Lock it likewise, if nobody else has; whether it was had."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
