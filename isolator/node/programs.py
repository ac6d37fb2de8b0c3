"""Old releases of mesos-gpu-executor.pyz, and what they have unpacked on this host: removed when nothing uses them.

Each program that runs from such a directory holds it, and notes its start in its time (mesos_gpu/install/start.py).
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

KEPT_S: Final = 7 * 86400.0  # since its last start: an upgrade may be taken back
OFTEN_S: Final = 3600.0  # between looks
DIRECTORY: Final = "programs"  # of the node
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
_TREE: Final = re.compile(r"[0-9a-f]{32}-[a-z0-9-]+", re.ASCII)
_ARCHIVE: Final = re.compile(r"[0-9a-f]{64}\.pyz|\.fetched-\w+", re.ASCII)
_HOLDS: Final = "isolator/node/programs.py"  # is in releases whose programs hold their directory
logger = logging.getLogger(__name__)


def tidy(node: Path, now: float) -> list[str]:
    """Remove what was not started for `KEPT_S`, and is held by no process.

    Args:
        node: The directory of the node.
        now: Seconds since the epoch.

    Returns:
        Names of what was removed.

    Raises:
        OSError: It cannot be.
    """
    top = node / DIRECTORY
    if not _is_ours(top):
        return []
    with _turn(top) as mine:
        return sorted(each.name for each in top.iterdir() if _gone(each, now)) if mine else []


def _is_ours(top: Path) -> bool:
    """Whether there is one, which nobody else can change."""
    try:
        status = top.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022 and status.st_uid == os.geteuid():
        return True
    logger.warning("%s is no directory that this user alone can write: nothing in it is removed", top)
    return False


@contextlib.contextmanager
def _turn(top: Path) -> Iterator[bool]:
    """Whether nobody else unpacks or removes meanwhile (mesos_gpu/install/unpack.py)."""
    handle = os.open(top / ".lock", _LOCK, 0o600)
    try:
        yield locked_now(handle)
    finally:
        os.close(handle)


def _gone(path: Path, now: float) -> bool:
    """Remove one, if it is old and nobody holds it."""
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
            part = path.with_name(f".part-{path.name}")  # if this ends here, the next to unpack removes it
            path.rename(part)
            shutil.rmtree(part)
        else:
            path.unlink()
    finally:
        os.close(handle)
    logger.info("removed %s: nothing was started from it for a week", path)
    return True
