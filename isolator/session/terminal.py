"""Terminals of commands in tasks: pairs of a task's own devpts, so that a terminal has its name in the task.

Sources: ioctl_tty(2), drivers/tty/pty.c and fs/devpts/inode.c of Linux.
"""

import fcntl
import os
import stat
import struct
from typing import Final

from isolator.host.beneath import open_below_root

_PTMX: Final = os.makedev(5, 2)  # Documentation/admin-guide/devices.txt
_TIOCSPTLCK: Final = 0x40045431  # asm-generic/ioctls.h; the same on all architectures that agents run on
_TIOCGPTPEER: Final = 0x5441  # since Linux 4.13


def open_terminal(root: int) -> tuple[int, int]:
    """Open a terminal that has a name below a root directory, if there is a devpts.

    In a task without /dev/ptmx, such as an image to which the agent gives no /dev, the terminal is from this
    process' own root: it works, but has no name in the task.

    Args:
        root: Descriptor of the root directory of a task, also in another mount namespace.

    Returns:
        The descriptors of the master and of the terminal; the caller closes both.

    Raises:
        OSError: No terminal is left.
    """
    master = _open_master(root)
    if master is None:
        return os.openpty()
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
        # Not opened by its path, which is in another mount namespace, and which the task could exchange.
        terminal = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        os.close(master)
        raise
    return master, terminal


def _open_master(root: int) -> int | None:
    try:
        ptmx = open_below_root("dev/ptmx", root, os.O_PATH)
    except OSError:
        return None
    try:
        status = os.fstat(ptmx)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _PTMX:
            return None
        # The kernel makes the pair in the devpts that contains the node, or that is mounted at pts beside it.
        return os.open(f"/proc/self/fd/{ptmx}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(ptmx)
