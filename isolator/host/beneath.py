"""Opening of names by openat2(2): in a directory without following links or crossing mount points, or below a
root.
"""

import ctypes
import errno
import os
import struct
from typing import Final

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY
FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_SYS_OPENAT2: Final = 437  # on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT = 0x01, 0x02, 0x04, 0x08, 0x10  # linux/openat2.h
_RESOLVE: Final = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
#: Attempts at a path with "..", which fail with EAGAIN while anything on the host is renamed or mounted (openat2(2)).
MAX_ATTEMPTS: Final = 128
_libc: Final = ctypes.CDLL(None, use_errno=True)


def open_in(name: str, above: int, flags: int) -> int:
    """Open a file or directory by its name in an open directory; return the descriptor, which the caller closes.

    Args:
        name: Name without a slash.
        above: Descriptor of the directory that contains the name.
        flags: `DIRECTORY` or `FILE`.

    Raises:
        OSError: ENOTDIR: the name is not a directory. ELOOP: it is a symbolic link. EXDEV: it is a mount point. Other
            errors of openat2(2).
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return _openat2(name, above, flags, _RESOLVE)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    # Before Linux 5.6, where bind mounts of the same device go unnoticed.
    fd = os.open(name, flags, dir_fd=above)
    if os.fstat(fd).st_dev != os.fstat(above).st_dev:
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return fd


def open_below_root(path: str, root: int, flags: int) -> int:
    """Open a path as a process with that root directory does; return the descriptor, which the caller closes.

    Args:
        path: Path in that root; symbolic links are followed within it.
        root: Descriptor of the root directory, also of another mount namespace.
        flags: Flags of open(2).

    Raises:
        OSError: Errors of openat2(2). ENOSYS: this kernel is older than Linux 5.6.
    """
    return _openat2(path, root, flags | os.O_CLOEXEC, _IN_ROOT | _NO_MAGICLINKS)


def _openat2(path: str, above: int, flags: int, resolve: int) -> int:
    how = struct.pack("=QQQ", flags, 0, resolve)
    for _ in range(MAX_ATTEMPTS):
        fd = _libc.syscall(_SYS_OPENAT2, above, os.fsencode(path), how, len(how))
        if fd >= 0:
            return int(fd)
        if ctypes.get_errno() != errno.EAGAIN:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
