"""Detection of changed files."""

import os
from pathlib import Path

Stamp = tuple[int, ...]


def stamp_of(path: Path) -> Stamp | None:
    """Return a value that changes when a file is replaced, written, or gets other modes; None without access."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
