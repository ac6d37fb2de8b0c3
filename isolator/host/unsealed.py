"""Directories of ended tasks that are not sealed yet, kept from removal by the agent.

A process that holds a descriptor of a directory may add directories there faster than a walk seals them, so
sealing may never end. The agent removes sandboxes as root and by full paths, and those paths are not safe
before the end of the seal. So when a seal takes long, the directories are moved to where the agent does not
look. An empty directory keeps each name in the sandbox. They come back when they are sealed. Before each walk
there, processes that hold them are killed.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from isolator.host.sealing import is_sealed, seal

#: Time limit of a seal in the sandbox itself, in seconds: enough for some 100,000 files. The agent begins to count its
#: `gc_delay` when the executor ends, which is after that.
SOON_S: Final = 10.0
#: Time limit of the first walk over directories that were moved, in seconds. Each further walk has twice the time of
#: the one before, because it begins at the top.
_WALK_S: Final = 5.0
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Name of a directory beside `containers`, which is the only one that the agent manages (provisioner/paths.cpp).
_OURS: Final = "mesos-gpu-unsealed"
#: Mode of the directories that keep the names. It differs from that of a sealed directory, so their files are
#: not served yet.
_KEEPING: Final = 0o720


def place_of(sandbox: str) -> str:
    """Return where the directories of a sandbox are kept until they are sealed; "" if it is not one of an agent.

    Args:
        sandbox: Path of the sandbox (slave/paths.hpp).
    """
    work, below, _ = os.path.realpath(sandbox).partition("/slaves/")
    return f"{work}/provisioner/{_OURS}/{os.path.basename(os.path.realpath(sandbox))}" if below else ""


def seal_sandbox(sandbox: str, timeout_s: float, end_holders: Callable[[str, float], None]) -> None:
    """Seal a sandbox; move its directories away from the agent while they are not sealed.

    Args:
        sandbox: Path of the sandbox; only root may be able to change the directories above it.
        timeout_s: Seconds until the walk is given up. The next call goes on.
        end_holders: Function that kills processes that hold a directory below a path, until a time of
            `time.monotonic`.

    Raises:
        OSError: See `sealing.seal`; or the directories cannot be moved.
    """
    place = place_of(sandbox)
    if not os.path.lexists(place):
        try:
            seal(sandbox, min(SOON_S, timeout_s) if place else timeout_s)
        except OSError:
            if not place:
                raise
        else:
            return
    if os.path.lexists(sandbox):
        _move_out(sandbox, place)
        _seal_apart(place, time.monotonic() + timeout_s, end_holders)
    if os.path.lexists(sandbox):
        _move_back(place, sandbox)
    else:  # the agent has removed it
        from isolator.host.rootfs import remove  # few sandboxes need it

        remove(place)


def _seal_apart(place: str, deadline: float, end_holders: Callable[[str, float], None]) -> None:
    """Seal directories that were moved; between walks that are given up, kill processes that hold them."""
    walk_s = _WALK_S
    while True:
        end_holders(place, deadline)
        left_s = deadline - time.monotonic()
        try:
            seal(place, min(walk_s, left_s))
        except TimeoutError:
            if walk_s >= left_s:
                raise
            walk_s *= 2
        else:
            return


def _move_out(sandbox: str, place: str) -> None:
    """Move the directories of a sandbox, also those that an earlier call left."""
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    os.makedirs(place, mode=0o700, exist_ok=True)
    with _opened(sandbox) as top, _opened(place) as aside:
        if not is_sealed(os.fstat(top)):
            raise PermissionError(errno.EPERM, "users other than root can change its entries", sandbox)
        kept = set(os.listdir(aside))
        with os.scandir(top) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            if name not in kept:
                os.rename(name, name, src_dir_fd=top, dst_dir_fd=aside)
        for name in os.listdir(aside):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=top)
            os.chown(name, 0, 0, dir_fd=top, follow_symlinks=False)
            os.chmod(name, _KEEPING, dir_fd=top)


def _move_back(place: str, sandbox: str) -> None:
    with _opened(place) as aside, _opened(sandbox) as top:
        for name in os.listdir(aside):
            os.rename(name, name, src_dir_fd=aside, dst_dir_fd=top)
    os.rmdir(place)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)
