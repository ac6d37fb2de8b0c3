"""A libcuda that an image brings: with it a task would pass by what keeps it to its share."""

import errno
import os
import stat
from typing import Final

#: Where a dynamic linker looks by itself (ld.so(8)), on the machines that there are drivers for. Not CUDA's forward
#: compatibility, which lies elsewhere, and is no longer in the way of the driver volume.
PLACES: Final = (
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/lib",
)


def libcuda_of(root: str) -> str:
    """The first libcuda below a directory that is a task's root, as the task names it; "": there is none. Links on the
    way are not followed: they would lead to the host's."""
    for place in PLACES:
        for name in sorted(_names(root, place.split("/"))):
            if name.startswith("libcuda.so"):
                return f"/{place}/{name}"
    return ""


def _names(root: str, parts: list[str]) -> list[str]:
    """Files and links in a directory; none: it is none, or a link leads to it."""
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(root, how)
    try:
        for part in parts:
            deeper = os.open(part, how | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = deeper
        names = os.listdir(fd)
        return [name for name in names if not stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:
            return []
        raise
    finally:
        os.close(fd)
