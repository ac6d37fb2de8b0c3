"""Space of a file system: blocks taken ahead of a file's end, and a reserve that only the state may use."""

import ctypes
import errno
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

AHEAD: Final = 1 << 20  # bytes ahead of the end of a file: some thousand records
_DEFAULT_RESERVE: Final = 1 << 30  # bytes
_DEFAULT_PART: Final = 10  # of the file system: a tenth
_KEEP_SIZE: Final = 0x01  # FALLOC_FL_KEEP_SIZE, Linux 2.6.38: blocks beyond the end, which stays where it is
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class Free:
    """Free space of a file system. Bytes.

    Attributes:
        whole: Free for this process.
        reserve: The part of `whole` that is kept for the scheduler's state, records and journal.
    """

    whole: int
    reserve: int

    @property
    def spare(self) -> int:
        """Bytes above the reserve; negative if the reserve is not whole."""
        return self.whole - self.reserve


@dataclass(frozen=True, slots=True)
class Reserve:
    """The free space of a file system below which whatever the scheduler can do without is refused or removed.

    Attributes:
        size: Bytes; None for the larger of 1 GiB and a tenth of the file system.
    """

    size: int | None = None

    def free(self, directory: Path) -> Free:
        """Return the free space of the file system of a directory.

        Raises:
            OSError: The directory cannot be looked at.
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
