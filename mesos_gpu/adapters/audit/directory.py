"""Directory of an audit log: private, opened once, and never through a link."""

import errno
import fcntl
import os
import re
import stat
import time
from pathlib import Path
from typing import Final, Self

import msgspec

from mesos_gpu.access.chain import Head
from mesos_gpu.errors import BadConfiguration, Conflict

FILE: Final = re.compile(r"(changes|refusals)-([0-9]{8})\.jsonl")
_MARK_BYTES: Final = 512  # within a sector and a page, so that a write is atomic
_AGAIN_S: Final = 0.05  # between attempts to lock
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Directory:
    """Directory of an audit log.

    Args:
        path: Path of the directory.
        make: Whether to create it if missing, and to make it private.

    Raises:
        BadConfiguration: The directory cannot be created or opened, is a link, or belongs to another user.
    """

    def __init__(self, path: Path, *, make: bool) -> None:
        self.path = path
        self._lock: int | None = None
        try:
            if make:
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            what = "is a link or not a directory" if is_link else error.strerror
            raise (_wrong(path, f"{what}") if make else _unread(path, f"{what}")) from error
        if make:
            self._make_private()

    def _make_private(self) -> None:
        status = os.fstat(self._fd)
        if status.st_uid != os.geteuid():
            os.close(self._fd)
            raise _wrong(self.path, f"belongs to uid {status.st_uid}, not to this process")
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(self._fd, 0o700)

    def lock(self, wait_s: float = 0.0) -> None:
        """Become the only writer until this is closed; wait up to `wait_s` seconds for another one.

        Raises:
            Conflict: Another process holds the lock.
        """
        self._lock = self._private("lock", os.O_RDWR)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise Conflict(
                        f"another scheduler writes the audit log in {self.path}",
                        remedy="stop it first, or give this one another --audit-dir",
                    ) from error
                time.sleep(_AGAIN_S)

    def numbers(self, kind: str) -> list[int]:
        """Return the numbers of the files of one kind, the oldest first."""
        matches = (FILE.fullmatch(name) for name in os.listdir(self._fd))
        return sorted(int(match[2]) for match in matches if match and match[1] == kind)

    def open_to_read(self, kind: str, number: int) -> int:
        """Return a descriptor for reading an existing, regular file."""
        fd = os.open(name_of(kind, number), _READ, dir_fd=self._fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is not a regular file", name_of(kind, number))
        return fd

    def open_to_append(self, kind: str, number: int) -> int:
        """Return a descriptor for appending to a file, which is created if missing, and private."""
        return self._private(name_of(kind, number), os.O_RDWR | os.O_APPEND)

    def _private(self, name: str, flags: int) -> int:
        """Return a descriptor of a file, which is created if missing, and made readable by its owner only."""
        flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(name, flags, 0o600, dir_fd=self._fd)
        os.fchmod(fd, 0o600)
        return fd

    def remove(self, kind: str, number: int) -> None:
        """Remove a file."""
        os.unlink(name_of(kind, number), dir_fd=self._fd)

    def sync(self) -> None:
        """Force the names of files to disk."""
        os.fsync(self._fd)

    def mark(self, kind: str) -> Head | None:
        """Return the end of a chain that its mark gives; None if there is no readable mark."""
        try:
            fd = os.open(f"{kind}.mark", _READ, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(os.pread(fd, _MARK_BYTES, 0).rstrip(b" \n\0"), type=Head)
        except msgspec.DecodeError:
            return None
        finally:
            os.close(fd)

    def open_mark(self, kind: str) -> int:
        """Return a descriptor for `set_mark`."""
        return self._private(f"{kind}.mark", os.O_RDWR)

    def close(self) -> None:
        """Close the directory, and release its lock."""
        os.close(self._fd)
        if self._lock is not None:
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def set_mark(fd: int, head: Head) -> None:
    """Write the end of a chain to its mark, after the chain's lines are on disk."""
    os.pwrite(fd, msgspec.json.encode(head).ljust(_MARK_BYTES - 1) + b"\n", 0)


def name_of(kind: str, number: int) -> str:
    """Return the name of a file."""
    return f"{kind}-{number:08}.jsonl"


def _unread(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"there is no audit log to read in {path}: {why}",
        remedy="give the directory of the scheduler's --audit-dir: mesos-gpu audit --verify --dir DIRECTORY",
    )


def _wrong(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"the audit log cannot be kept in {path}: {why}",
        remedy="give a directory that belongs to this user with --audit-dir",
    )
