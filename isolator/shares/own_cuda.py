"""A libcuda that an image brings, and that a dynamic linker finds: with it a task would pass by what keeps it to its
share.

Looked at are the directories that a linker looks into (ld.so(8), ldconfig(8)), as the image has them: its own, those of
/etc/ld.so.conf and of LD_LIBRARY_PATH, and what /etc/ld.so.cache names. Links are followed inside the image, never to
the host. A program that names another directory itself (DT_RPATH, dlopen of a path, a variable that it sets) is not
found out by this, as one with a static libcuda is not: the monitor sees what is mapped.
"""

import contextlib
import errno
import fnmatch
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from isolator.host.not_started import NotStarted
from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH

#: Where a dynamic linker looks by itself, on the machines that there are drivers for.
PLACES: Final = (
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/lib",
)
HWCAPS: Final = "glibc-hwcaps"  # below each, for newer processors, and first
CONF, CACHE = "etc/ld.so.conf", "etc/ld.so.cache"
LOOK_S: Final = 10.0
MAX_PATHS: Final = 2000
_MAX_LINKS: Final = 40  # of one path, as in Linux
_MAX_CONF, _MAX_CACHE = 1 << 16, 1 << 24  # bytes
_NAME: Final = b"/libcuda.so"
_MAX_LENGTH: Final = 4096  # bytes of a path, PATH_MAX of limits.h; a linker opens none that is longer


def libcuda_of(root: str, also: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> str:
    """The first libcuda that a linker finds in a task's root, as the task names it; "": there is none.

    Args:
        root: The directory that is the task's root.
        also: Further directories where its linker looks, as LD_LIBRARY_PATH has them.
        clock: In seconds.

    Raises:
        NotStarted: There is too much to look at.
        OSError: The root is gone.
    """
    with contextlib.ExitStack() as stack:
        fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        return _Image(fd, clock).libcuda(also)


def search_path(pid: int) -> tuple[str, ...]:
    """LD_LIBRARY_PATH of a process.

    Raises:
        OSError: There is no such process.
    """
    with open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(b"LD_LIBRARY_PATH="):
                return tuple(re.split("[:;]", os.fsdecode(entry.partition(b"=")[2])))
    return ()


class _Image:
    """A root, with how much of it was looked at."""

    def __init__(self, root: int, clock: Callable[[], float]) -> None:
        self._root, self._clock = root, clock
        self._until, self._seen = clock() + LOOK_S, 0

    def libcuda(self, also: Sequence[str]) -> str:
        ours = {self._identity(f"{VOLUME_PATH}/{name}") for name in ("lib", "lib64")}
        for place in dict.fromkeys((*PLACES, *also, *self._configured())):
            path = f"/{place.strip('/')}"
            if self._identity(path) in ours:
                continue
            for directory in (path, *(f"{path}/{HWCAPS}/{name}" for name, _ in self._in(f"{path}/{HWCAPS}"))):
                for name, is_directory in self._in(directory):
                    if name.startswith("libcuda.so") and not is_directory:
                        return f"{directory.rstrip('/')}/{name}"
        return self._cached(ours)

    def _configured(self, name: str = CONF, depth: int = 0) -> Iterator[str]:
        """Directories that a configuration of the linker names, with those that it includes."""
        for line in os.fsdecode(self._content(name, _MAX_CONF)).splitlines():
            words = line.partition("#")[0].replace(",", " ").replace(":", " ").split()
            if words[:1] != ["include"]:
                yield from (word.partition("=")[0] for word in words if word.startswith("/"))
                continue
            for pattern in words[1:] if depth < 2 else ():
                where = PurePosixPath("/etc", pattern)
                for each in sorted(fnmatch.filter((n for n, _ in self._in(str(where.parent))), where.name)):
                    yield from self._configured(f"{where.parent}/{each}", depth + 1)

    def _cached(self, ours: set[tuple[int, int] | None]) -> str:
        for path in self._in_cache(self._content(CACHE, _MAX_CACHE)):
            if self._identity(path) is not None and self._identity(os.path.dirname(path)) not in ours:
                return path
        return ""

    def _in_cache(self, content: bytes) -> Iterator[str]:
        """Paths of a libcuda among the strings of the linker's cache, each ended by 0. No pattern, which could take
        for ever where the image has put something else there."""
        at = content.find(_NAME)
        while at >= 0:
            self._see_time()
            before = content[max(at - _MAX_LENGTH, 0) : at].rpartition(b"\0")[2]
            name, ended, _ = content[at + 1 : at + _MAX_LENGTH].partition(b"\0")
            if ended and b"/" not in name and (first := (before + b"/").find(b"/")) >= 0:
                yield os.fsdecode(before[first:] + b"/" + name)
            at = content.find(_NAME, at + 1)

    def _in(self, path: str) -> Iterator[tuple[str, bool]]:
        """Names in a directory, and whether each is one; none, if it is none."""
        with self._opened(path) as fd:
            if fd is None or not stat.S_ISDIR(os.fstat(fd).st_mode):
                return
            with os.scandir(f"/proc/self/fd/{fd}") as entries:
                for number, entry in enumerate(entries):
                    if number % 1024 == 0:
                        self._see_time()
                    yield entry.name, entry.is_dir(follow_symlinks=False)

    def _content(self, path: str, most: int) -> bytes:
        """The beginning of a regular file; nothing, if it is none."""
        with self._opened(path) as fd:
            if fd is None or not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            with open(f"/proc/self/fd/{fd}", "rb") as file:
                return file.read(most)

    def _identity(self, path: str) -> tuple[int, int] | None:
        with self._opened(path) as fd:
            return None if fd is None else (os.fstat(fd).st_dev, os.fstat(fd).st_ino)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """What a path of the image leads to, links followed as in the image (O_PATH); None: nowhere."""
        self._count()
        way = [self._root]  # from the root to where it is
        try:
            yield self._walked(way, path.split("/"))
        finally:
            for fd in way[1:]:
                os.close(fd)

    def _walked(self, way: list[int], parts: list[str]) -> int | None:
        links = 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                if len(way) > 1:
                    os.close(way.pop())
                continue
            if part in ("", "."):
                continue
            try:
                fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way[-1])
            except OSError as error:  # not there, no directory, too long
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise _unseen("its directories lie too deep") from error
                return None
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                way.append(fd)
                continue
            target = os.readlink("", dir_fd=fd)
            os.close(fd)
            links += 1
            if links > _MAX_LINKS:
                return None
            while target.startswith("/") and len(way) > 1:
                os.close(way.pop())
            parts = [*target.split("/"), *parts]
        return way[-1]

    def _count(self) -> None:
        self._seen += 1
        if self._seen > MAX_PATHS:
            raise _unseen(f"its linker looks at more than {MAX_PATHS} paths")
        self._see_time()

    def _see_time(self) -> None:
        if self._clock() > self._until:
            raise _unseen(f"to look takes more than {LOOK_S:g} s")


def _unseen(why: str) -> NotStarted:
    return NotStarted(
        f"whether the image brings a libcuda of its own cannot be seen: {why}; isolation strict needs an image where "
        "it can"
    )
