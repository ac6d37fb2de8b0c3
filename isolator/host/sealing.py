"""Sealing of a sandbox after the end of its task, so that only root can change names in the sandbox.

A task may have passed a descriptor of a directory in its sandbox to another task that outlives it (unix(7),
SCM_RIGHTS). A mount namespace does not prevent that other task from exchanging names in the directory. Root reads and
removes the sandbox by paths, for example in Mesos' agent (`FilesProcess::resolve` in files.cpp, `os::rmdir` in
rmdir.hpp). Sealing therefore gives each directory to root, and removes the write bits of group and others and the
access control lists, before it reads the names in that directory. Afterwards the names cannot change, so the walk is
complete when no directory below is left. The walk is repeated until it finds nothing to change.

A tenant chooses how many directories there are, how deep, and how long their names: a walk keeps a bounded part of
the names in memory, and the others in a file.

A file descriptor that is open for writing still writes to its file, and to nothing else. Device nodes cannot be there:
no task may make one. A root task can undo all of this.
"""

import contextlib
import errno
import os
import stat
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Final

from isolator.host.beneath import DIRECTORY, open_in

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ACLS: Final = ("system.posix_acl_access", "system.posix_acl_default")
_ACL_GROUP_OBJ: Final = 0x04  # linux/posix_acl.h
_WRITABLE: Final = 0o022  # group and others; with an access control list the group bits are its mask (acl(5))
_SET_IDS: Final = 0o6000
_LOOK: Final = 256  # entries between two looks at the clock
_MAX_NAMES: Final = 8192  # most names of directories to enter that are kept in memory: at most 4 MiB
_MAX_LINKED: Final = 8192  # most files with several names whose names are counted


def seal(sandbox: str, timeout_s: float) -> None:
    """Seal a sandbox directory with everything below it. Do nothing if the directory does not exist.

    A file with several hard links keeps its owner unless all its links are in the sandbox, because it may be a file of
    another user.

    Args:
        sandbox: Path of the sandbox; only root may be able to change the directories above it.
        timeout_s: Seconds until the walk is given up.

    Raises:
        OSError: ETIMEDOUT: another process adds directories as fast as they are sealed, or there are too many files.
            EXDEV: a file system is mounted in the sandbox. Other errors of system calls.
    """
    deadline = time.monotonic() + timeout_s
    try:
        top = os.open(sandbox, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        while _Walk(top, deadline).changed:
            pass
    finally:
        os.close(top)


def is_sealed(status: os.stat_result) -> bool:
    """Return whether only root can change a file or directory with this status."""
    return status.st_uid == 0 and not status.st_mode & _WRITABLE


class _Walk:
    """A walk over a sandbox that holds one directory open at a time, whatever the depth and width of the tree."""

    def __init__(self, top: int, deadline: float) -> None:
        self.changed = 0
        self._deadline = deadline
        self._seen = 0
        # number of names seen of each file that has several
        self._linked: Counter[tuple[int, int]] = Counter()
        self._at = os.dup(top)
        try:
            with contextlib.closing(_Names()) as names:
                self._walk(names)
        finally:
            os.close(self._at)

    def _walk(self, names: "_Names") -> None:
        inodes: list[int] = []  # inodes of the directories from the top
        left: list[int] = []  # for the same directories, numbers of names that are not entered yet
        device = os.fstat(self._at).st_dev  # `open_in` crosses no mount point
        while True:
            inodes.append(os.fstat(self._at).st_ino)
            left.append(names.push(self._sealed_here()))
            while not left[-1]:
                left.pop()
                inodes.pop()
                if not left:
                    return
                self._go(os.open("..", _DIRECTORY, dir_fd=self._at))
                status = os.fstat(self._at)
                if (status.st_dev, status.st_ino) != (device, inodes[-1]):
                    raise OSError(errno.ESTALE, "root moved a directory of the sandbox while it was sealed")
            left[-1] -= 1
            self._go(open_in(names.pop(), self._at, DIRECTORY))

    def _go(self, fd: int) -> None:
        os.close(self._at)
        self._at = fd

    def _sealed_here(self) -> Iterator[str]:
        """Seal the directory and the entries in it that are no directories; yield the names of directories."""
        status = os.fstat(self._at)
        if not is_sealed(status):
            self._take(self._at, status)
        with os.scandir(self._at) as entries:
            for entry in entries:
                self._watch_clock()
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name
                    continue
                with contextlib.suppress(FileNotFoundError):  # root removed it
                    inner = entry.stat(follow_symlinks=False)
                    if not is_sealed(inner) and not stat.S_ISLNK(inner.st_mode) and self._is_own(inner):
                        self._take_file(entry.name)

    def _is_own(self, status: os.stat_result) -> bool:
        """Return whether all hard links of a file have been seen in the sandbox by this walk."""
        if status.st_nlink == 1:
            return True
        identity = status.st_dev, status.st_ino
        if len(self._linked) >= _MAX_LINKED and identity not in self._linked:
            return False
        self._linked[identity] += 1
        return self._linked[identity] == status.st_nlink

    def _take_file(self, name: str) -> None:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._at)
        try:
            self._take(fd, os.fstat(fd))
        finally:
            os.close(fd)

    def _take(self, fd: int, status: os.stat_result) -> None:
        """Give a file or directory to root, then remove write bits: its former owner could set them again."""
        path = f"/proc/self/fd/{fd}"
        os.chown(path, 0, -1)
        mode = stat.S_IMODE(status.st_mode)
        if (group := _group_of_acl(path)) is not None:
            mode = mode & ~0o070 | group << 3  # the group bits of the mode are the list's mask
        os.chmod(path, mode & ~(_WRITABLE | _SET_IDS))
        for name in _ACLS if group is not None or stat.S_ISDIR(status.st_mode) else ():
            _remove(path, name)
        self.changed += 1

    def _watch_clock(self) -> None:
        self._seen += 1
        if self._seen % _LOOK == 0 and time.monotonic() > self._deadline:
            raise TimeoutError(
                errno.ETIMEDOUT, "the sandbox has too many files, or another task keeps adding more"
            )


class _Names:
    """A stack of names; a bounded number of them is in memory, those below in a file without a name."""

    def __init__(self) -> None:
        self._top: list[str] = []
        self._offsets: list[int] = []  # offsets of the parts that are in the file
        self._file: IO[bytes] | None = None

    def push(self, names: Iterable[str]) -> int:
        """Put names on top; return how many."""
        count = 0
        for name in names:
            self._top.append(name)
            count += 1
            if len(self._top) >= _MAX_NAMES:
                self._put_away()
        return count

    def pop(self) -> str:
        """Take the name on top."""
        if not self._top:
            assert self._file is not None
            offset = self._offsets.pop()
            self._file.seek(offset)
            self._top = [os.fsdecode(name) for name in self._file.read().split(b"\0")]
            self._file.truncate(offset)
        return self._top.pop()

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()

    def _put_away(self) -> None:
        """Move the lower half to the file."""
        if self._file is None:
            import tempfile  # deferred: few sandboxes need it

            self._file = tempfile.TemporaryFile()  # noqa: SIM115 # closed by `close`
        half = _MAX_NAMES // 2
        self._offsets.append(self._file.seek(0, os.SEEK_END))
        self._file.write(b"\0".join(map(os.fsencode, self._top[:half])))
        del self._top[:half]


def _group_of_acl(path: str) -> int | None:
    """Return the permission bits of the owning group in the access control list; None if there is no list."""
    try:
        acl = os.getxattr(path, _ACLS[0])
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise
    return next((may for tag, may, _ in struct.iter_unpack("<HHI", acl[4:]) if tag == _ACL_GROUP_OBJ), 0)


def _remove(path: str, attribute: str) -> None:
    try:
        os.removexattr(path, attribute)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
