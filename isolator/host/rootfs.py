"""Files that a task writes to the file system of its image, kept from removal by the agent if the agent runs
the image.

The agent gives an image a file system by overlayfs, and removes what was written to it when the container
ends, as root and by full paths (`os::rmdir` in stout/os/posix/rmdir.hpp). Another task may hold a descriptor
of a directory there, and exchange it for a link meanwhile. Sealing does not help: overlayfs decides by the
attributes that it has read before (`ovl_permission` in fs/overlayfs/inode.c). So the directory is moved to
where the agent does not look; overlayfs holds it, whatever its name is. It is removed by rm(1), which goes by
descriptors and follows no link. Other backends of the agent write nothing (bind), or call rm(1) themselves
(copy).
"""

import errno
import os
from collections.abc import Sequence
from typing import Final

REMOVE_S: Final = 60.0
# beside `containers`, the only directory that the agent manages (provisioner/paths.cpp)
_OURS: Final = "mesos-gpu"


def place_of(sandbox: str) -> str:
    """Return the directory for what a container writes to its image; empty if that is not known.

    Args:
        sandbox: Sandbox of the executor, in whose container the image's is nested.
    """
    work, below, container = _places(sandbox)
    return f"{work}/provisioner/{_OURS}/{container}" if below else ""


def move(sandbox: str, containers: Sequence[str]) -> None:
    """Move what the container of an image writes to that directory, before its task runs.

    Args:
        sandbox: Sandbox of the executor.
        containers: Names of the nested container's directories below that of the executor's container.

    Raises:
        OSError: It cannot be moved.
    """
    work, _, container = _places(sandbox)
    place = place_of(sandbox)
    scratch = "/".join((work, "provisioner/containers", container, *containers, "backends/overlay/scratch"))
    try:
        names = os.listdir(scratch) if place else []
    except FileNotFoundError:  # another backend
        return
    for name in names:
        os.makedirs(place, mode=0o700, exist_ok=True)
        os.rename(f"{scratch}/{name}/upperdir", f"{place}/{name}")


def remove(path: str, limit_s: float = REMOVE_S) -> None:
    """Remove what a task wrote to its image; harmless if it does not exist.

    Args:
        path: Directory to remove.
        limit_s: Seconds after which to give up; what is removed by then stays removed.

    Raises:
        OSError: It cannot be removed now, because another task may add to it.
    """
    if not os.path.lexists(path):
        return
    import subprocess  # deferred: needed only for images

    try:
        done = subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", path], capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(
            errno.ETIMEDOUT, "there are too many files, or another task keeps adding more", path
        ) from error
    if done.returncode:
        why = done.stderr.decode(errors="replace").partition("\n")[0]
        raise OSError(errno.ENOTEMPTY, f"files that a task wrote to its image cannot be removed: {why}")


def _places(sandbox: str) -> tuple[str, str, str]:
    """Return the agent's work_dir, the path below it, and the container (slave/paths.hpp)."""
    work, below, _ = os.path.realpath(sandbox).partition("/slaves/")
    return work, below, os.path.basename(os.path.realpath(sandbox))
