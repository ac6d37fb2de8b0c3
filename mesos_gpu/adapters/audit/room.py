"""Room on the disk that is taken before it is needed: a record of what was done must never meet a full disk."""

import ctypes
import errno
import os
from functools import cache
from typing import Final

RESERVE: Final = 1 << 20  # bytes ahead of the end of a file: some thousand records
_KEEP_SIZE: Final = 0x01  # FALLOC_FL_KEEP_SIZE, Linux 2.6.38: blocks beyond the end, which stays where it is
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc


def take(fd: int, begin: int, length: int) -> None:
    """Take blocks for bytes of a file from `begin`. Where the file system cannot, see that as many are free.

    Raises:
        OSError: There are not.
    """
    if _libc().fallocate(fd, _KEEP_SIZE, begin, length) == 0:
        return
    number = ctypes.get_errno()
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number))
    free = os.fstatvfs(fd)
    if free.f_bavail * free.f_frsize < length:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
