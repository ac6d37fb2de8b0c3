"""Search for a libcuda in an image: a task that loads it would bypass the enforcement of its share.

Searched are the directories of the dynamic linker (ld.so(8), ldconfig(8)) as the image has them: the default
ones, those of /etc/ld.so.conf and LD_LIBRARY_PATH, and entries of /etc/ld.so.cache. Links are followed inside
the image, never to the host. Not detected are programs that name another directory (DT_RPATH, dlopen of a
path, a variable that they set) or have a static libcuda: the monitor sees what they map.
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

#: Default directories of the dynamic linker on the architectures that have NVIDIA drivers.
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
HWCAPS: Final = "glibc-hwcaps"  # subdirectory of each, searched first, with variants for newer processors
CONF, CACHE = "etc/ld.so.conf", "etc/ld.so.cache"
LOOK_S: Final = 10.0
MAX_PATHS: Final = 2000
_MAX_LINKS: Final = 40  # per path, as in Linux
_MAX_CONF, _MAX_CACHE = 1 << 16, 1 << 24  # bytes
_NAME: Final = b"/libcuda.so"
_MAX_LENGTH: Final = 4096  # bytes of a path, PATH_MAX of limits.h; a linker opens none that is longer


def libcuda_of(root: str, also: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> str:
    """Return the path, within the root, of the first libcuda that a dynamic linker finds there, or "".

    Args:
        root: Root directory of the task.
        also: Further directories of the linker, from LD_LIBRARY_PATH.
        clock: Clock in seconds.

    Raises:
        NotStarted: The search exceeds its limits.
        OSError: The root is gone.
    """
    with contextlib.ExitStack() as stack:
        fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        return _Image(fd, clock).libcuda(also)


def search_path(pid: int) -> tuple[str, ...]:
    """Return the directories in LD_LIBRARY_PATH of a process.

    Raises:
        OSError: The process does not exist.
    """
    with open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(b"LD_LIBRARY_PATH="):
                return tuple(re.split("[:;]", os.fsdecode(entry.partition(b"=")[2])))
    return ()


class _Image:
    """Root directory of an image, with limits on the time and number of paths of a search."""

    def __init__(self, root: int, clock: Callable[[], float]) -> None:
        self._root, self._clock = root, clock
        self._until, self._seen = clock() + LOOK_S, 0

    def libcuda(self, also: Sequence[str]) -> str:
        """Search the directories of the linker, then its cache; return the path or "". Our own driver volume
        is skipped.
        """
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
        """Yield the directories in the linker's configuration and in the files that it includes."""
        for line in os.fsdecode(self._content(name, _MAX_CONF)).splitlines():
            words = line.partition("#")[0].replace(",", " ").replace(":", " ").split()
            if words[:1] != ["include"]:
                yield from (word.partition("=")[0] for word in words if word.startswith("/"))
                continue
            for pattern in words[1:] if depth < 2 else ():
                where = PurePosixPath("/etc", pattern)
                for file in sorted(fnmatch.filter((n for n, _ in self._in(str(where.parent))), where.name)):
                    yield from self._configured(f"{where.parent}/{file}", depth + 1)

    def _cached(self, ours: set[tuple[int, int] | None]) -> str:
        for path in self._in_cache(self._content(CACHE, _MAX_CACHE)):
            if self._identity(path) is not None and self._identity(os.path.dirname(path)) not in ours:
                return path
        return ""

    def _in_cache(self, content: bytes) -> Iterator[str]:
        """Yield paths of a libcuda among the strings, each ended by 0, of the linker's cache.

        Regular expressions are not used: on hostile content they could take forever.
        """
        at = content.find(_NAME)
        while at >= 0:
            self._see_time()
            before = content[max(at - _MAX_LENGTH, 0) : at].rpartition(b"\0")[2]
            name, ended, _ = content[at + 1 : at + _MAX_LENGTH].partition(b"\0")
            if ended and b"/" not in name and (first := (before + b"/").find(b"/")) >= 0:
                yield os.fsdecode(before[first:] + b"/" + name)
            at = content.find(_NAME, at + 1)

    def _in(self, path: str) -> Iterator[tuple[str, bool]]:
        """Yield the names in a directory, and whether each is a directory; nothing if the path is no
        directory.
        """
        with self._opened(path) as fd:
            if fd is None or not stat.S_ISDIR(os.fstat(fd).st_mode):
                return
            with os.scandir(f"/proc/self/fd/{fd}") as entries:
                for number, entry in enumerate(entries):
                    if number % 1024 == 0:
                        self._see_time()
                    yield entry.name, entry.is_dir(follow_symlinks=False)

    def _content(self, path: str, most: int) -> bytes:
        """Return up to `most` bytes of a regular file; empty for anything else."""
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
        """Open a path of the image (O_PATH) with links followed inside the image; None if it leads nowhere."""
        self._count()
        way = [self._root]  # descriptors of all directories from the root to the current one, for ".."
        try:
            yield self._walked(way, path.split("/"))
        finally:
            for fd in way[1:]:
                os.close(fd)

    def _walked(self, way: list[int], parts: list[str]) -> int | None:
        """Follow the parts of a path from the root; return the descriptor of its end, or None if it leads
        nowhere.

        `way` holds the open directories from the root on, which the caller closes.
        """
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
            except OSError as error:  # missing, no directory, or too long
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
        f"cannot find out whether the image has a libcuda of its own: {why}; isolation strict needs an image where "
        "that can be checked"
    )
