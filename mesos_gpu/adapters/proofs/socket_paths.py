"""Paths of Unix sockets, of which the kernel takes 107 bytes at most (unix(7)): a longer one is reached through a
descriptor of its directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(directory: Path) -> Iterator[Path]:
    """A short path of a directory, as long as this lasts.

    Raises:
        OSError: It is not there, or may not be passed.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
