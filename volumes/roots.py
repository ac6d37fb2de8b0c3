"""A directory seen as a file system of its own, as chroot(2) shows it, without chroot.

Links are followed here and not by the kernel: openat2(2) with RESOLVE_IN_ROOT would do it in one call, but it wants
Linux 5.6, sandboxes refuse it, and a second way for those would have to exist and be right too. So there is one way.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from mesos_gpu.errors import NotFound

#: Linux follows no more in one path (MAXSYMLINKS, include/linux/namei.h).
_MAX_LINKS: Final = 40


def owned_by_root(status: os.stat_result) -> bool:
    """Return whether a file belongs to root, or to the user of this process, as in tests."""
    return status.st_uid in (0, os.geteuid())


class Root:
    """A directory in the role of a root. Its paths are absolute strings; a relative one starts at the root as
    well.
    """

    def __init__(self, path: Path) -> None:
        """Wrap a directory.

        Raises:
            NotFound: The path is not a directory.
        """
        if not path.is_dir():
            raise NotFound(f"there is no directory {path}", remedy="name the root of a host's file system")
        self.path: Final = path.absolute()

    def resolve(self, path: str) -> str | None:
        """Resolve `path` to one without links; return None if it does not exist, leads in a circle or cannot
        be examined.
        """
        try:
            return self._follow(path)
        except (OSError, ValueError):  # ValueError: a name that no file can have
            return None

    def _follow(self, path: str) -> str | None:
        done: list[str] = []
        ahead = path.split("/")[::-1]
        links = 0
        while ahead:
            name = ahead.pop()
            if name in ("", ".", ".."):
                del done[len(done) - (name == "..") :]
                continue
            here = self.outside("/".join((*done, name)))
            mode = here.lstat().st_mode
            if stat.S_ISLNK(mode):
                links += 1
                target = os.readlink(here)
                if links > _MAX_LINKS:
                    return None
                if target.startswith("/"):
                    done.clear()
                ahead += target.split("/")[::-1]
            elif ahead and not stat.S_ISDIR(mode):
                return None
            else:
                done.append(name)
        return "/" + "/".join(done) if path else None

    def outside(self, path: str) -> Path:
        """Return the place of a resolved path in the real file system."""
        return self.path / path.lstrip("/")

    def find_writer(self, path: str) -> str | None:
        """Return which user other than root can change a file or its name, in words; None if only root can.

        A directory that its group can write is safe with the sticky bit, as the store of NixOS has it: the
        group can add names of its own, and neither remove nor replace those of root.

        Args:
            path: Resolved path. The file and all directories above it are examined, up to the root of this
                object.
        """
        names = [name for name in path.split("/") if name]
        for count in range(len(names), -1, -1):
            here = "/" + "/".join(names[:count])
            try:
                status = self.outside(here).lstat()
            except OSError as error:
                return f"{here} cannot be examined: {error.strerror}"
            sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
            writers = stat.S_IWOTH if sticky else stat.S_IWOTH | stat.S_IWGRP
            if not owned_by_root(status):
                return f"{here} belongs to user {status.st_uid}, not to root"
            if status.st_mode & writers:
                return f"{here} can be written by others than root (mode {stat.S_IMODE(status.st_mode):04o})"
        return None

    def is_file(self, path: str) -> bool:
        """Return whether a path leads to a regular file."""
        real = self.resolve(path)
        return real is not None and self.outside(real).is_file()

    def is_directory(self, path: str) -> bool:
        """Return whether a path leads to a directory."""
        real = self.resolve(path)
        return real is not None and self.outside(real).is_dir()

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is no such directory."""
        real = self.resolve(path)
        if real is None:
            return []
        try:
            with self._directory(real.split("/")) as above:
                here = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=above)
        except OSError:
            return []
        try:
            return sorted(os.listdir(here))
        finally:
            os.close(here)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading.

        Raises:
            OSError: The file does not exist, is of another kind, or may not be read.
        """
        real = self.resolve(path)
        if real is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        *directories, name = real.split("/")
        with self._directory(directories) as above:
            # Checked first, as opening a device has effects, and opening a pipe waits for its other end.
            if not stat.S_ISREG(os.stat(name or ".", dir_fd=above, follow_symlinks=False).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", path)
            return os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=above), "rb")

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file; raises the errors of `open`."""
        with self.open(path) as file:
            return file.read()

    @contextmanager
    def _directory(self, names: Sequence[str]) -> Iterator[int]:
        """Open a directory step by step without following links, so that a link that was put there meanwhile
        leads nowhere.
        """
        fd = os.open(self.path, os.O_PATH | os.O_DIRECTORY)
        try:
            for name in filter(None, names):
                below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)
