"""What this monitor was started from, and whether something else lies there by now: then it is to be replaced.

An archive (mesos_gpu/install/archive.py) is told by its bytes; what pip or Debian's packages installed, by the list of
its files, which has their digests.
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

SETTLED_S: Final = 5.0  # a file that is written anew is left alone until it has not changed for so long
_MAX_BYTES: Final = 256 << 20
_ZIP: Final = b"PK\x05\x06"  # how the last record of an archive begins; a comment may follow it
_TAIL_BYTES: Final = 22 + 65_535  # of that record, with the longest comment
_Stat = tuple[int, int, int]


class Started:
    """What was there at the start, and what is there now."""

    def __init__(
        self, now: Callable[[], float], argv: Sequence[str] | None = None, path: Path | None = None
    ) -> None:
        """Look at what is there now: the start was a moment ago.

        Args:
            now: Seconds, on a clock that never goes back.
            argv: As of `sys.argv`, which is the default.
            path: What stands for the program; None: it is looked for.
        """
        self._now, self._path = now, path or _place(sys.argv if argv is None else argv)
        self._seen = _stat(self._path)
        self._since = now()
        self._digest = _digest(self._path)
        self._latest = self._digest

    def look(self) -> Program:
        """What this program is; a file that cannot be read, or is just being written, has not changed."""
        seen = _stat(self._path)
        if seen != self._seen:
            self._seen, self._since = seen, self._now()
            self._latest = ""  # not known yet
        elif not self._latest and self._now() - self._since >= SETTLED_S:
            self._latest = _digest(self._path) or self._digest
        replaced = self._latest if self._latest not in ("", self._digest) and self._digest else ""
        return Program(__version__, WIRE, OLDEST, self._digest, replaced)


def _place(argv: Sequence[str]) -> Path | None:
    """The archive that a process was started from, else the list of what is installed; None: neither is known."""
    started = Path(os.path.abspath(argv[0]))
    if _is_archive(started):
        return started
    from importlib import metadata  # it takes memory that a host with an archive need not give

    try:
        files = metadata.distribution("mesos_gpu").files or ()
    except metadata.PackageNotFoundError:
        return None
    lists = [each for each in files if each.name == "RECORD"]
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
    """The SHA-256, hexadecimal; "": the file cannot be read, or is larger than any program of ours."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
