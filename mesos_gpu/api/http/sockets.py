"""The Unix socket for callers on this host, in a directory that other users cannot change."""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.proofs.socket_paths import opened
from mesos_gpu.errors import BadConfiguration, Conflict

NAME: Final = "api.sock"
_FOR_ALL: Final = 0o666  # any user may connect; the kernel reports which one it is
_BACKLOG: Final = 128


class LocalSocket:
    """A Unix socket that listens from its creation."""

    def __init__(self, path: Path) -> None:
        """Bind and listen, replacing the socket that a killed scheduler has left.

        Raises:
            BadConfiguration: Other users may change its directory, or the directory cannot be made.
            Conflict: Another scheduler listens there.
        """
        self.path = path
        _make_directory(path.parent)
        with opened(path.parent) as directory:
            _refuse_used(directory / path.name, path)
            part = directory / f".{path.name}.{os.getpid()}"
            part.unlink(missing_ok=True)
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.listener.bind(str(part))
                part.chmod(_FOR_ALL)
                self.listener.listen(_BACKLOG)
                self._identity = _identity(part)
                part.rename(directory / path.name)
            except OSError as error:
                self.listener.close()
                raise BadConfiguration(
                    f"cannot listen on {path}: {error.strerror}", remedy="name another path by --socket"
                ) from error

    def close(self) -> None:
        """Stop listening, and remove the socket if it is still this one."""
        self.listener.close()
        with contextlib.suppress(FileNotFoundError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def _make_directory(directory: Path) -> None:
    """Make the directory of a socket if it is missing.

    Raises:
        BadConfiguration: It cannot be made, or other users may change it.
    """
    try:
        directory.mkdir(mode=0o755, exist_ok=True)
        status = directory.lstat()
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            directory.chmod(0o755)
    except OSError as error:
        raise BadConfiguration(
            f"{directory}: {error.strerror}", remedy="name a path by --socket whose directory can be made"
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise BadConfiguration(
            f"{directory}: other users may replace a socket in it: owner {status.st_uid}, "
            f"mode {stat.S_IMODE(status.st_mode):04o}",
            remedy=f"chown {os.geteuid()} {directory}; chmod 755 {directory}; or name another path by --socket",
        )


def _refuse_used(reached: Path, path: Path) -> None:
    """Refuse a path with something else than a socket, or with a socket that still accepts connections."""
    try:
        if not stat.S_ISSOCK(reached.lstat().st_mode):
            raise BadConfiguration(
                f"{path} is not a socket", remedy="remove it, or name another path by --socket"
            )
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(reached))
        except OSError:
            return
    raise Conflict(f"another scheduler listens on {path}", remedy="end it, or name another path by --socket")


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
