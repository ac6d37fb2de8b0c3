"""Whether a file has changed since it was looked at."""

import os
from pathlib import Path

Stamp = tuple[int, ...]


def stamp_of(path: Path) -> Stamp | None:
    """What changes when a file is replaced, written or given other modes; None: it cannot be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
