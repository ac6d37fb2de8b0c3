"""High-water mark beside a state file, by which an older state file in its place is detected.

The store counts its transactions in the state file itself, and writes the number to the mark after each commit. So the
mark is never ahead of what was committed: a state file behind its mark has lost something. A mark that is outdated
after a power cut detects less, but never rejects a correct state.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from mesos_gpu.errors import Damaged

SIZE: Final = 512  # bytes: within a sector and a page, so that a write is atomic


@dataclass(frozen=True, slots=True)
class Mark:
    """State of the last commit."""

    batch: int
    framework_id: str | None = None
    key: bytes | None = None  # seals running tasks; without it none of their status reports is accepted


class HighWater:
    """File of the mark, open as long as its store is.

    Args:
        path: Path of the file, which is created if missing.

    Raises:
        Damaged: The file exists, but is no mark.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        os.fchmod(self._file, stat.S_IRUSR | stat.S_IWUSR)

    def read(self) -> Mark | None:
        """Return the mark; None if there is no mark yet."""
        data = os.pread(self._file, SIZE, 0).rstrip(b" \n\0")
        if not data:
            return None
        try:
            return msgspec.json.decode(data, type=Mark)
        except msgspec.DecodeError as error:
            raise Damaged(
                f"{self._path} is not a mark of the last state: {error}",
                remedy="if the state file is the latest copy, start once with --accept-older-state",
            ) from error

    def write(self, mark: Mark) -> None:
        """Write the mark, after the commit and before any effect that depends on it leaves this process."""
        data = msgspec.json.encode(mark)
        os.pwrite(self._file, data.ljust(SIZE - 1) + b"\n", 0)

    def sync(self) -> None:
        """Force the mark to disk, so that a new mark survives a power cut."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
