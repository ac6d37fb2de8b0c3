"""How much a task may fetch: a small archive can stand for more than any disk holds.

The program that fetches is Mesos' own and bounds nothing but the pause between two bytes. So what is in its directory
is counted while it works and when it has ended, as root has to: over directory handles, and no link is followed.
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

LIMIT: Final = "MESOS_GPU_FETCH_LIMIT"  # of this host, in MiB
MAX_MIB: Final = 1 << 20
MAX_FILES: Final = 1_000_000
DEEPEST: Final = 64
MAX_RATIO: Final = 100  # of what is extracted to the archives that it came from, beyond FREE_BYTES
FREE_BYTES: Final = 1 << 30
LOOK_S: Final = 0.5
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RUN_AS_OWNER: Final = stat.S_ISUID | stat.S_ISGID
_ENDS: Final = (".tar", ".tgz", ".gz", ".tbz2", ".bz2", ".txz", ".xz", ".zip")


class TooMuch(Exception):
    """More than may be fetched; the text says of what."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one task's files may come to. `size_bytes` is of blocks on the disk, as are archives and what is in them."""

    size_bytes: int = MAX_MIB << 20
    files: int = MAX_FILES
    ratio: int = MAX_RATIO
    free_bytes: int = FREE_BYTES

    @classmethod
    def on(cls, directory: str, env: Mapping[str, str]) -> Self:
        """Read the limits of this host: what its operator says, and nine tenths of what is free now.

        Raises:
            BadConfiguration: LIMIT is no number of MiB.
            OSError: The directory is not there.
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
    """What is there: bytes on the disk, of these those of archives, and files of every kind."""

    size_bytes: int = 0
    archive_bytes: int = 0
    files: int = 0

    def check(self, limits: FetchLimits) -> None:
        """See that it is within them.

        Raises:
            TooMuch: It is not.
        """
        if self.files > limits.files:
            raise TooMuch(f"more than {limits.files} files")
        if self.size_bytes > limits.size_bytes:
            raise TooMuch(f"more than {limits.size_bytes >> 20} MiB, which this host allows or has room for")
        extracted = self.size_bytes - self.archive_bytes
        if self.archive_bytes and extracted > limits.free_bytes + limits.ratio * self.archive_bytes:
            raise TooMuch(f"an archive that grows to more than {limits.ratio} times its size")


def measure(directory: str, limits: FetchLimits, *, done: bool) -> Fetched:
    """Count what is in a directory that others may change meanwhile.

    Args:
        directory: Where it is fetched to; its path is the agent's.
        limits: Counting ends when they are passed.
        done: Nothing is added any more: also see that nothing is there that a task has no use for, and take the right
            away to run a file as its owner.

    Raises:
        TooMuch: It is more than the limits, too deep, or (`done`) a device.
        OSError: The kernel refuses.
    """
    top = os.open(directory, _DIRECTORY)
    counting = _Counting(limits, done, os.fstat(top).st_uid)
    counting.count(top, DEEPEST)
    return counting.fetched


@dataclass(slots=True)
class _Counting:
    """Counts what is below one directory. `done`: as of `measure`; `owner`: uid of who fetches."""

    limits: FetchLimits
    done: bool
    owner: int
    fetched: Fetched = field(default_factory=Fetched)

    def count(self, fd: int, deep: int) -> None:
        """Count what is in a directory, and close it; `deep`: how many there may be in each other."""
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
            except PermissionError:  # of this process, which is the task's user, too
                return
            self.count(inner, deep - 1)
        elif self.done and (stat.S_ISBLK(seen.st_mode) or stat.S_ISCHR(seen.st_mode)):
            raise TooMuch(f"{entry.name}, which is a device")
        elif self.done and stat.S_ISREG(seen.st_mode) and seen.st_mode & _RUN_AS_OWNER:
            self._make_plain(entry.name, fd)

    def _make_plain(self, name: str, fd: int) -> None:
        """Make a program one that runs as whoever starts it. One of another user is a hard link to a program of the
        host, which must stay as it is."""
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        try:
            status = os.fstat(file)
            if status.st_nlink > 1 and status.st_uid != self.owner:
                raise TooMuch(f"{name}, which is a program of another user")
            os.fchmod(file, stat.S_IMODE(status.st_mode) & ~_RUN_AS_OWNER)
        finally:
            os.close(file)


class Watched:
    """While it is entered, `stop` is called as soon as a directory has more than its limits."""

    def __init__(
        self, directory: str, limits: FetchLimits, stop: Callable[[], None], look_s: float = LOOK_S
    ) -> None:
        """Nothing is watched yet."""
        self._directory, self._limits, self._stop, self._look_s = directory, limits, stop, look_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fetch-bounds", daemon=True)
        self._failure: TooMuch | OSError | None = None

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look for the last time.

        Raises:
            NotStarted: It was too much, and of what.
            OSError: It cannot be counted.
        """
        self._over.set()
        self._thread.join()
        try:
            if self._failure is not None:
                raise self._failure
            measure(self._directory, self._limits, done=True)
        except TooMuch as error:
            raise NotStarted(f"what was to be fetched is {error}") from error

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
            pause_s = max(self._look_s, 4 * (time.monotonic() - began))  # many files take long to count
