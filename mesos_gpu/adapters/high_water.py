"""The high-water mark beside a state file: how far it once was, so that an older one in its place is noticed.

The store counts its transactions in the file itself, and writes the number here after each commit. So the mark is
never ahead of what was committed: a file that is behind its mark has lost something. A mark that a power cut left
behind notices less, and refuses nothing that is right.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from mesos_gpu.errors import Damaged

SIZE: Final = 512  # bytes: within a sector and a page, so a write of it is whole or not there


@dataclass(frozen=True, slots=True)
class Mark:
    """What was committed last."""

    batch: int
    framework_id: str | None = None
    key: bytes | None = None  # what runs was sealed with it: without it nothing that it says is believed


class HighWater:
    """The mark's file, open as long as its store is.

    Raises:
        Damaged: It is there, and is no mark.
    """

    def __init__(self, path: Path) -> None:
        """Open or create it."""
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        os.fchmod(self._file, stat.S_IRUSR | stat.S_IWUSR)

    def read(self) -> Mark | None:
        """Read the mark; None: there is none yet."""
        data = os.pread(self._file, SIZE, 0).rstrip(b" \n\0")
        if not data:
            return None
        try:
            return msgspec.json.decode(data, type=Mark)
        except msgspec.DecodeError as error:
            raise Damaged(
                f"{self._path} is not a mark of how far the state was: {error}",
                remedy="if the state file is the newest there is, start once with --accept-older-state",
            ) from error

    def write(self, mark: Mark) -> None:
        """Write the mark, after the commit and before anything that follows from it leaves the house."""
        data = msgspec.json.encode(mark)
        os.pwrite(self._file, data.ljust(SIZE - 1) + b"\n", 0)

    def sync(self) -> None:
        """Force the mark to the disk: a new one must not be lost with the power."""
        os.fsync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
