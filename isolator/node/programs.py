"""Removal of old releases of mesos-gpu-executor.pyz, and of their unpacked files, when they are no longer
used.

Each program that runs from such a directory holds a lock on it, and notes its start as the directory's time
(mesos_gpu/install/start.py).
"""

import contextlib
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from isolator.gpus.locks import locked_now

KEPT_S: Final = 7 * 86400.0  # since the last start; kept so long in case an upgrade is taken back
OFTEN_S: Final = 3600.0  # between looks
DIRECTORY: Final = "programs"  # below the node directory
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
_TREE: Final = re.compile(r"[0-9a-f]{32}-[a-z0-9-]+", re.ASCII)
_ARCHIVE: Final = re.compile(r"[0-9a-f]{64}\.pyz|\.fetched-\w+", re.ASCII)
# a file that exists in releases whose programs lock their directory
_HOLDS: Final = "isolator/node/programs.py"
logger = logging.getLogger(__name__)


def tidy(node: Path, now: float) -> list[str]:
    """Remove programs that were not started for `KEPT_S` and that no process holds.

    Args:
        node: The node directory.
        now: Seconds since the epoch.

    Returns:
        Names of what was removed.

    Raises:
        OSError: Something cannot be removed.
    """
    top = node / DIRECTORY
    if not _is_ours(top):
        return []
    with _turn(top) as mine:
        return sorted(entry.name for entry in top.iterdir() if _gone(entry, now)) if mine else []


def _is_ours(top: Path) -> bool:
    """Return whether the directory exists and only this user can change it."""
    try:
        status = top.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022 and status.st_uid == os.geteuid():
        return True
    logger.warning(
        "%s is not a directory that only this user can write: nothing in it is removed (chown, chmod go-w)",
        top,
    )
    return False


@contextlib.contextmanager
def _turn(top: Path) -> Iterator[bool]:
    """Lock the directory; yields False if another process unpacks or removes there
    (mesos_gpu/install/unpack.py).
    """
    handle = os.open(top / ".lock", _LOCK, 0o600)
    try:
        yield locked_now(handle)
    finally:
        os.close(handle)


def _gone(path: Path, now: float) -> bool:
    """Remove a program if it is old and not in use; return whether it was removed."""
    status = path.lstat()
    is_tree = stat.S_ISDIR(status.st_mode) and _TREE.fullmatch(path.name) and (path / _HOLDS).is_file()
    is_archive = stat.S_ISREG(status.st_mode) and _ARCHIVE.fullmatch(path.name)
    if now - status.st_mtime < KEPT_S or not (is_tree or is_archive):
        return False
    handle = os.open(path, os.O_NOFOLLOW)
    try:
        if not locked_now(handle):
            return False
        if is_tree:
            # if this process dies here, the next one that unpacks removes it
            part = path.with_name(f".part-{path.name}")
            path.rename(part)
            shutil.rmtree(part)
        else:
            path.unlink()
    finally:
        os.close(handle)
    logger.info("removed %s: nothing was started from it for a week", path)
    return True
