"""Detection of an upgrade: whether the program that this monitor was started from has been replaced since.

An archive (mesos_gpu/install/archive.py) is identified by its bytes; an installation by pip or Debian's
packages by the list of its files, which has their digests.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mesos_gpu import __version__
from mesos_gpu.model.nodes.gpu import Program
from mesos_gpu.model.nodes.wires import OLDEST, WIRE

SETTLED_S: Final = 5.0  # a changed file is read only after it has stayed unchanged for so long
_MAX_BYTES: Final = 256 << 20
_ZIP: Final = b"PK\x05\x06"  # beginning of the last record of an archive; a comment may follow it
_TAIL_BYTES: Final = 22 + 65_535  # size of that record with the longest comment
_Stat = tuple[int, int, int]


class Started:
    """The program at the start of this process, compared with the one on disk.

    Args:
        now: Clock in seconds that never goes back.
        argv: Command line; `sys.argv` by default.
        path: File that identifies the program. By default the archive, or the list of installed files.
    """

    def __init__(
        self, now: Callable[[], float], argv: Sequence[str] | None = None, path: Path | None = None
    ) -> None:
        self._now, self._path = now, path or _place(sys.argv if argv is None else argv)
        self._seen = _stat(self._path)
        self._since = now()
        self._digest = _digest(self._path)
        self._latest = self._digest

    def look(self) -> Program:
        """Return the version of this program, and the digest of the one that has replaced it, if any.

        A file that cannot be read, or is being written, counts as unchanged.
        """
        seen = _stat(self._path)
        if seen != self._seen:
            self._seen, self._since = seen, self._now()
            self._latest = ""  # not known yet
        elif not self._latest and self._now() - self._since >= SETTLED_S:
            self._latest = _digest(self._path) or self._digest
        replaced = self._latest if self._latest not in ("", self._digest) and self._digest else ""
        return Program(__version__, WIRE, OLDEST, self._digest, replaced)


def _place(argv: Sequence[str]) -> Path | None:
    """Return the archive that a process was started from, else the list of installed files; None if neither
    is known.
    """
    started = Path(os.path.abspath(argv[0]))
    if _is_archive(started):
        return started
    from importlib import metadata  # deferred, as it takes memory that hosts with an archive need not spend

    try:
        files = metadata.distribution("mesos_gpu").files or ()
    except metadata.PackageNotFoundError:
        return None
    lists = [file for file in files if file.name == "RECORD"]
    return Path(str(lists[0].locate())) if lists else None


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            return _ZIP in file.read()
    except OSError:
        return False


def _stat(path: Path | None) -> _Stat | None:
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _digest(path: Path | None) -> str:
    """Return the hexadecimal SHA-256 of a file; "" if it cannot be read, or is larger than any program of
    ours.
    """
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
