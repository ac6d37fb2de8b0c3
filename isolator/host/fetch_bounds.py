"""Limits on what a task may fetch: a small archive can expand to more than any disk holds.

Mesos' fetcher limits nothing but the pause between two bytes. So its directory is measured while it works and
when it has ended, as root must: over directory handles, without following links.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from isolator.host.not_started import NotStarted
from mesos_gpu.errors import BadConfiguration

LIMIT: Final = "MESOS_GPU_FETCH_LIMIT"  # limit of this host, in MiB
MAX_MIB: Final = 1 << 20
MAX_FILES: Final = 1_000_000
DEEPEST: Final = 64
MAX_RATIO: Final = 100  # ratio of extracted files to their archives, beyond FREE_BYTES
FREE_BYTES: Final = 1 << 30
LOOK_S: Final = 0.5
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RUN_AS_OWNER: Final = stat.S_ISUID | stat.S_ISGID
_ENDS: Final = (".tar", ".tgz", ".gz", ".tbz2", ".bz2", ".txz", ".xz", ".zip")


class TooMuch(Exception):
    """Error: more was fetched than allowed; the text names the excess."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits on the files of one task.

    Attributes:
        size_bytes: Bytes of blocks on the disk, both of archives and of their content.
        files: Number of files.
        ratio: Largest ratio of extracted files to archives, in bytes.
        free_bytes: Bytes that archives may expand to in any case.
    """

    size_bytes: int = MAX_MIB << 20
    files: int = MAX_FILES
    ratio: int = MAX_RATIO
    free_bytes: int = FREE_BYTES

    @classmethod
    def on(cls, directory: str, env: Mapping[str, str]) -> Self:
        """Return the limits of this host: those of its operator, and nine tenths of the free space.

        Raises:
            BadConfiguration: LIMIT is not a number of MiB.
            OSError: The directory does not exist.
        """
        text = env.get(LIMIT, str(MAX_MIB))
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_MIB):
            raise BadConfiguration(
                f"{LIMIT} is {text!r}", remedy=f"set it to a number of MiB from 1 to {MAX_MIB} on this agent"
            )
        disk = os.statvfs(directory)
        return cls(size_bytes=min(int(text) << 20, disk.f_bavail * disk.f_frsize * 9 // 10))


@dataclass(slots=True)
class Fetched:
    """Amount of fetched files: bytes on the disk, bytes of archives among these, and files of every kind."""

    size_bytes: int = 0
    archive_bytes: int = 0
    files: int = 0

    def check(self, limits: FetchLimits) -> None:
        """Check the limits.

        Raises:
            TooMuch: A limit is exceeded.
        """
        if self.files > limits.files:
            raise TooMuch(f"more than {limits.files} files")
        if self.size_bytes > limits.size_bytes:
            raise TooMuch(
                f"more than {limits.size_bytes >> 20} MiB, the most that this host allows or has space for"
            )
        extracted = self.size_bytes - self.archive_bytes
        if self.archive_bytes and extracted > limits.free_bytes + limits.ratio * self.archive_bytes:
            raise TooMuch(f"an archive that expands to more than {limits.ratio} times its size")


def measure(directory: str, limits: FetchLimits, *, done: bool) -> Fetched:
    """Measure the content of a directory that others may change meanwhile.

    Args:
        directory: Target directory of the download; its path belongs to the agent.
        limits: Limits at which measuring stops.
        done: Whether the download has ended: then also refuse devices, and remove set-user-ID and
            set-group-ID bits.

    Raises:
        TooMuch: A limit is exceeded, directories are too deep, or (`done`) there is a device.
        OSError: The kernel refuses.
    """
    top = os.open(directory, _DIRECTORY)
    counting = _Counting(limits, done, os.fstat(top).st_uid)
    counting.count(top, DEEPEST)
    return counting.fetched


@dataclass(slots=True)
class _Counting:
    """Measurement of one directory.

    Attributes:
        done: Whether the download has ended.
        owner: Uid of the fetcher.
    """

    limits: FetchLimits
    done: bool
    owner: int
    fetched: Fetched = field(default_factory=Fetched)

    def count(self, fd: int, deep: int) -> None:
        """Measure a directory, and close it.

        Args:
            deep: Number of levels that directories may still be nested.
        """
        try:
            if not deep:
                raise TooMuch(f"directories {DEEPEST} deep")
            with os.scandir(fd) as entries:
                for entry in entries:
                    self.fetched.files += 1
                    try:
                        self._take(fd, entry, deep)
                    except FileNotFoundError:
                        if self.done:
                            raise
                    self.fetched.check(self.limits)
        finally:
            os.close(fd)

    def _take(self, fd: int, entry: "os.DirEntry[str]", deep: int) -> None:
        seen = entry.stat(follow_symlinks=False)
        self.fetched.size_bytes += seen.st_blocks * 512
        if deep == DEEPEST and entry.name.lower().endswith(_ENDS):
            self.fetched.archive_bytes += seen.st_blocks * 512
        if stat.S_ISDIR(seen.st_mode):
            try:
                inner = os.open(entry.name, _DIRECTORY, dir_fd=fd)
            except PermissionError:  # a directory of the task's user, which is this process' user, too
                return
            self.count(inner, deep - 1)
        elif self.done and (stat.S_ISBLK(seen.st_mode) or stat.S_ISCHR(seen.st_mode)):
            raise TooMuch(f"{entry.name}, which is a device")
        elif self.done and stat.S_ISREG(seen.st_mode) and seen.st_mode & _RUN_AS_OWNER:
            self._make_plain(entry.name, fd)

    def _make_plain(self, name: str, fd: int) -> None:
        """Remove the set-ID bits of a program.

        A program of another user is a hard link to one of the host, which must not be changed.
        """
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        try:
            status = os.fstat(file)
            if status.st_nlink > 1 and status.st_uid != self.owner:
                raise TooMuch(f"{name}, which is a program of another user")
            os.fchmod(file, stat.S_IMODE(status.st_mode) & ~_RUN_AS_OWNER)
        finally:
            os.close(file)


class Watched:
    """Context manager that calls `stop` as soon as a directory exceeds its limits.

    Args:
        directory: Directory to watch.
        limits: Limits of its content.
        stop: Function that ends the download.
        look_s: Seconds between two measurements.
    """

    def __init__(
        self, directory: str, limits: FetchLimits, stop: Callable[[], None], look_s: float = LOOK_S
    ) -> None:
        self._directory, self._limits, self._stop, self._look_s = directory, limits, stop, look_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fetch-bounds", daemon=True)
        self._failure: TooMuch | OSError | None = None

    def __enter__(self) -> Self:
        """Start the thread that measures."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Measure for the last time.

        Raises:
            NotStarted: A limit is exceeded; the text says which.
            OSError: The directory cannot be measured.
        """
        self._over.set()
        self._thread.join()
        try:
            if self._failure is not None:
                raise self._failure
            measure(self._directory, self._limits, done=True)
        except TooMuch as error:
            raise NotStarted(f"the files to fetch exceed a limit: {error}") from error

    def _watch(self) -> None:
        pause_s = self._look_s
        while not self._over.wait(pause_s):
            began = time.monotonic()
            try:
                measure(self._directory, self._limits, done=False)
            except (TooMuch, OSError) as error:
                self._failure = error
                self._stop()
                return
            pause_s = max(self._look_s, 4 * (time.monotonic() - began))  # measuring many files takes long
