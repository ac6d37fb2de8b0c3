"""Names opened in an open directory by openat2(2), without following links or crossing mount points."""

import ctypes
import errno
import os
import struct
from typing import Final

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY
FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_SYS_OPENAT2: Final = 437  # on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08  # linux/openat2.h
_RESOLVE: Final = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_libc: Final = ctypes.CDLL(None, use_errno=True)


def open_in(name: str, above: int, flags: int) -> int:
    """Open a file or directory by its name in an open directory; return the descriptor, which the caller closes.

    Args:
        name: One name, without a slash.
        above: Descriptor of the directory that contains the name.
        flags: `DIRECTORY` or `FILE`.

    Raises:
        OSError: ENOTDIR: the name is not a directory. ELOOP: it is a symbolic link. EXDEV: it is a mount point. Other
            errors of openat2(2).
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    how = struct.pack("=QQQ", flags, 0, _RESOLVE)
    fd = _libc.syscall(_SYS_OPENAT2, above, os.fsencode(name), how, len(how))
    if fd >= 0:
        return int(fd)
    number = ctypes.get_errno()
    if number != errno.ENOSYS:
        raise OSError(number, os.strerror(number), name)
    fd = os.open(
        name, flags, dir_fd=above
    )  # before Linux 5.6, where bind mounts of the same device go unnoticed
    if os.fstat(fd).st_dev != os.fstat(above).st_dev:
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return fd
