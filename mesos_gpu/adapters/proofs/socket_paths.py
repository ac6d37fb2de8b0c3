"""Short paths of Unix sockets: the kernel takes 107 bytes at most (unix(7)), and longer ones are reached through a
descriptor of their directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(directory: Path) -> Iterator[Path]:
    """Yield a short path of a directory, valid within this context.

    Raises:
        OSError: The directory does not exist, or may not be entered.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
