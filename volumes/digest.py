"""SHA-256 of many files, on all processors."""

import hashlib
import mmap
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
            return hashlib.sha256().hexdigest()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            return hashlib.sha256(content).hexdigest()


def sha256_of_all(paths: Iterable[Path]) -> dict[Path, str]:
    """The SHA-256 of each file, hexadecimal.

    The largest is read first, so that no thread is left alone with it at the end.

    Raises:
        OSError: One cannot be read.
    """
    ordered = sorted(paths, key=lambda path: path.stat().st_size, reverse=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # hashlib lets go of the interpreter's lock
        return dict(zip(ordered, pool.map(sha256_of, ordered), strict=True))
