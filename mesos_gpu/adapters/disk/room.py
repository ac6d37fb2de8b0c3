"""Free space of a file system: blocks allocated beyond a file's end, and a reserve that only the state may use."""

import ctypes
import errno
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

AHEAD: Final = 1 << 20  # bytes allocated beyond the end of a file: room for some thousand records
_DEFAULT_RESERVE: Final = 1 << 30  # bytes
_DEFAULT_PART: Final = 10  # divisor: a tenth of the file system
_KEEP_SIZE: Final = 0x01  # FALLOC_FL_KEEP_SIZE (Linux 2.6.38): allocate blocks without changing the file size
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class Free:
    """Free space of a file system, in bytes.

    Attributes:
        whole: Bytes that this process may use.
        reserve: Bytes of `whole` that are kept for the scheduler's state, records and journal.
    """

    whole: int
    reserve: int

    @property
    def spare(self) -> int:
        """Bytes above the reserve; negative if less than the reserve is free."""
        return self.whole - self.reserve


@dataclass(frozen=True, slots=True)
class Reserve:
    """Free space that the scheduler leaves on a file system: below it, data that it can do without is refused or
    removed.

    Attributes:
        size: Size in bytes; None for the larger of 1 GiB and a tenth of the file system.
    """

    size: int | None = None

    def free(self, directory: Path) -> Free:
        """Return the free space of the file system that holds a directory.

        Raises:
            OSError: The directory cannot be accessed (statvfs(3)).
        """
        seen = os.statvfs(directory)
        default = max(_DEFAULT_RESERVE, seen.f_blocks * seen.f_frsize // _DEFAULT_PART)
        return Free(seen.f_bavail * seen.f_frsize, default if self.size is None else self.size)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc


def take(fd: int, begin: int, length: int) -> None:
    """Allocate disk blocks for a part of a file; on a file system without fallocate(2), check that the bytes are free.

    Args:
        fd: Descriptor of the file, open for writing.
        begin: Offset of the first byte.
        length: Number of bytes.

    Raises:
        OSError: ENOSPC: the file system does not have so many free bytes. Other errors of fallocate(2).
    """
    if _libc().fallocate(fd, _KEEP_SIZE, begin, length) == 0:
        return
    number = ctypes.get_errno()
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number))
    free = os.fstatvfs(fd)
    if free.f_bavail * free.f_frsize < length:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
