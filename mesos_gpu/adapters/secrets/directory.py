"""Secrets as files of a directory that only the scheduler's user can read: `team/hf` is the file hf in team.

Directories must have mode 0700, files 0600 or 0400, and all must belong to the scheduler's user. Links are not
followed, and only regular files are read. One newline at the end of a file is not part of the value, as editors add it.
"""

import os
import stat
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.files import private
from mesos_gpu.errors import BadConfiguration, MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.secret import LARGEST_SECRET, SOURCE

#: Flags that neither follow links nor wait for a FIFO.
_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SecretDirectory:
    """`SecretStore` of files. They are read each time, so that changes apply from the next launch on.

    Args:
        path: Directory of the secrets.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def see(self) -> None:
        """Check that the directory exists and is private, as for `SecretStore.see`."""
        try:
            os.close(self._top())
        except MesosGpuError as error:
            raise BadConfiguration(f"--secrets-dir: {error.what}", remedy=error.remedy) from error

    def read(self, source: str) -> bytes:
        """Return the value of a secret, as for `SecretStore.read`."""
        if "#" in source or not SOURCE.fullmatch(source):
            raise NotFound(
                f"secret {source}: a file has one value, and no field after '#'",
                remedy="give only the file, or keep each value in its own file",
            )
        *above, name = source.split("/")
        at = self._top()
        try:
            for i, segment in enumerate(above):
                below = self._open(segment, os.O_DIRECTORY, at, source)
                os.close(at)
                at = below
                self._check_private(at, "/".join(above[: i + 1]), 0o700)
            file = self._open(name, 0, at, source)
            try:
                return self._value(file, source)
            finally:
                os.close(file)
        finally:
            os.close(at)

    def close(self) -> None:
        """Do nothing: no resource is kept open."""

    def _top(self) -> int:
        try:
            at = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(
                f"the directory of secrets {self._path} cannot be read: {error.strerror}",
                remedy=f"create it with mode 0700 for uid {os.geteuid()}",
            ) from error
        try:
            self._check_private(at, "", 0o700)
        except MesosGpuError:
            os.close(at)
            raise
        return at

    def _open(self, name: str, more: int, at: int, source: str) -> int:
        try:
            return os.open(name, _LOOK | more, dir_fd=at)
        except FileNotFoundError as error:
            raise NotFound(
                f"there is no secret {source} in {self._path}", remedy="write its file, with mode 0600"
            ) from error
        except OSError as error:  # ELOOP and ENOTDIR mean a link
            raise Unavailable(
                f"the secret {source} in {self._path} cannot be read: {error.strerror}",
                remedy=f"make it a file of uid {os.geteuid()}, with mode 0600; links are not followed",
            ) from error

    def _value(self, file: int, source: str) -> bytes:
        """Return the content of an open file, after checks of its type, mode and size."""
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unavailable(
                f"the secret {source} in {self._path} is not a file", remedy="replace it by a regular file"
            )
        self._check_private(file, source, 0o600)
        with os.fdopen(os.dup(file), "rb") as opened:
            value = opened.read(LARGEST_SECRET + 2)
        value = value.removesuffix(b"\n")
        if len(value) > LARGEST_SECRET:
            raise Unavailable(
                f"the secret {source} in {self._path} is larger than {LARGEST_SECRET} bytes",
                remedy="store it elsewhere, and only a key to it here",
            )
        return value

    def _check_private(self, file: int, name: str, mode: int) -> None:
        """Check that others cannot read a file or directory; a secret that others could have read is not used.

        Raises:
            Unavailable: Others could have read it.
        """
        try:
            private.check(os.fstat(file))
        except private.Exposed as error:
            path = self._path / name
            raise Unavailable(
                f"secrets in {path} are not used: {error.strerror}",
                remedy=f"chown {os.geteuid()} {path}; chmod {mode:o} {path}; and choose new secrets",
            ) from error
