"""SHA-256 digests of many files, computed on all processors."""

import hashlib
import mmap
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # an empty file cannot be mapped
            return hashlib.sha256().hexdigest()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            return hashlib.sha256(content).hexdigest()


def sha256_of_all(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the SHA-256 of each file, hexadecimal.

    The largest file is read first, so that no thread is left alone with it at the end.

    Raises:
        OSError: A file cannot be read.
    """
    ordered = sorted(paths, key=lambda path: path.stat().st_size, reverse=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # hashlib releases the interpreter's lock
        return dict(zip(ordered, pool.map(sha256_of, ordered), strict=True))
