"""Show the progress of pip: `pip install -r LOCK | python -m scripts.installing LOCK DIR`.

DIR is the directory where pip installs packages. Lines show the number of packages; on a terminal one line is
overwritten, elsewhere a new line follows every `EVERY_S`.
"""

import os
import re
import select
import sys
import time
from pathlib import Path
from typing import Final

EVERY_S: Final = 10.0
_LOOK_S: Final = 0.5
_PINNED: Final = re.compile(rb"^[A-Za-z0-9]\S*==", re.MULTILINE)
_HAD: Final = re.compile(rb"^(?:Collecting|Requirement already satisfied:) ", re.MULTILINE)
_LEFT_OUT: Final = re.compile(rb"^Ignoring .*: markers", re.MULTILINE)
_INSTALLS: Final = re.compile(rb"^Installing collected packages: (.*)$", re.MULTILINE)


class Progress:
    """Progress of pip, by the lines that it has printed and by the packages in the directory."""

    def __init__(self, lock: Path, packages: Path) -> None:
        """Count the packages of a lock.

        Args:
            lock: File of requirements, a pinned package a line.
            packages: Directory where pip installs them.
        """
        self._total, self._packages = len(_PINNED.findall(lock.read_bytes())), packages
        self._said, self._before = b"", self._there()

    def _there(self) -> int:
        return sum(1 for _ in self._packages.glob("*.dist-info"))

    def take(self, piece: bytes) -> None:
        """Add a piece of pip's output."""
        self._said += piece

    @property
    def total(self) -> int:
        """Return the number of the lock's packages for this Python and machine."""
        return self._total - len(_LEFT_OUT.findall(self._said))

    def words(self) -> str:
        """Describe how many packages are fetched, or installed."""
        if (names := _INSTALLS.search(self._said)) is None:
            return f"{min(len(_HAD.findall(self._said)), self.total)} of {self.total} packages found"
        new = len(names[1].split(b", "))
        done = min(max(self._there() - self._before, 0), new)
        return f"{self.total - new + done} of {self.total} packages installed"


def main(lock: str, packages: str) -> None:
    """Read pip's output from stdin to its end, and show the progress."""
    progress, began_at = Progress(Path(lock), Path(packages)), time.monotonic()
    on_terminal, printed_at = sys.stdout.isatty(), began_at
    while True:
        if select.select([0], [], [], _LOOK_S)[0]:
            if not (piece := os.read(0, 65536)):
                break
            progress.take(piece)
        now = time.monotonic()
        line = f"setup: {progress.words()}, {now - began_at:.0f} s"
        if on_terminal:
            print(f"\r\x1b[K{line}", end="", flush=True)
        elif now - printed_at >= EVERY_S:
            printed_at = now
            print(line, flush=True)
    print("\r\x1b[K" if on_terminal else "", end="")
    print(f"setup: {progress.words()}, {time.monotonic() - began_at:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
