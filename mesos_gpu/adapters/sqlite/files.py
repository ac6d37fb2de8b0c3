"""Files of a state: `PATH`, and beside it `PATH-wal`, which is a part of the state, `PATH-shm`, `PATH.lock` and
`PATH.mark`, all readable by their owner only.
"""

import errno
import fcntl
import glob
import logging
import os
import re
import sqlite3
import stat
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Conflict, NoRoom

OWN: Final = stat.S_IRUSR | stat.S_IWUSR
ALONE: Final = (
    "audit",
    "journal",
    "log",
    "uploads",
)  # other names in a directory that only one scheduler uses
#: Kinds of copies beside a state: before a newer schema, and before a restore, e.g. `PATH.before-v12`.
_COPIES: Final = ("before-v", "replaced-")
_STAMP: Final = {"before-v": r"\d+", "replaced-": r"\d{8}T\d{6}Z(-\d+)?"}
MAX_COPIES: Final = 3  # of each kind; the oldest are removed when another is made
_BESIDE: Final = ("-wal", "-shm", "-journal", ".lock", ".mark")
logger = logging.getLogger(__name__)


def lock_of(path: Path) -> int:
    """Lock a state. Return the handle; the lock lasts until it is closed.

    Raises:
        Conflict: A scheduler or a restore holds the lock.
    """
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, OWN)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise Conflict(
            f"another scheduler uses the state in {path}",
            remedy="stop it first, or give this one another --state file",
        ) from error
    return handle


def restoring(path: Path) -> Path:
    """Return the path of the file that exists while a backup replaces a state."""
    return Path(f"{path}.restoring")


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error; 0 if Python raised it, e.g. for invalid text."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def lacks_room(error: Exception, directory: Path) -> bool:
    """Return whether an error means that a directory cannot be written, which says nothing about its content."""
    if isinstance(error, sqlite3.OperationalError):
        kind = code_of(error)
        full = kind == sqlite3.SQLITE_CANTOPEN and not os.statvfs(directory).f_bavail
        return full or kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def no_room(path: Path, error: Exception) -> NoRoom:
    """Return the error for a state that cannot be written."""
    return NoRoom(
        f"the state in {path} cannot be written: {error}",
        remedy="make room on that file system; running jobs continue, and the scheduler resumes by itself",
    )


def sync(path: Path) -> None:
    """Force a file, or the names in a directory, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private(path: Path) -> None:
    """Create the file and its directory, and restrict files that an earlier version let others read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    copies = [copy for kind in _COPIES for copy in path.parent.glob(f"{glob.escape(path.name)}.{kind}*")]
    for file in (path, *(Path(f"{path}{end}") for end in _BESIDE), *copies):
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if file == path else 0)
        try:
            handle = os.open(file, flags, OWN)
        except FileNotFoundError:
            continue
        try:
            if stat.S_IMODE(os.fstat(handle).st_mode) & ~OWN:
                os.fchmod(handle, OWN)
        finally:
            os.close(handle)
    _close_directory(path)


def keep_few(path: Path, kind: str) -> list[Path]:
    """Remove the oldest copies of a kind, `before-v` or `replaced-`, with their files. Return the removed copies."""
    copies = {
        file.with_name(name[0])
        for file in path.parent.glob(f"{glob.escape(path.name)}.{kind}*")
        if (name := re.match(rf"{re.escape(path.name)}\.{kind}{_STAMP[kind]}(?![^.-])", file.name))
    }
    gone = sorted(copies, key=_age)[:-MAX_COPIES]
    for copy in gone:
        for file in path.parent.glob(f"{glob.escape(copy.name)}*"):
            if re.fullmatch(rf"{re.escape(copy.name)}(\.hooks)?(-wal|-shm)?", file.name):
                file.unlink(missing_ok=True)
    return gone


def _age(copy: Path) -> tuple[int, ...]:
    """Return the sort key of a copy: the number of its schema, or its time."""
    return tuple(map(int, re.findall(r"\d+", copy.name.rpartition(".")[2])))


def _close_directory(path: Path) -> None:
    """Restrict the state's directory to its owner, unless it contains other files too, which others may need."""
    here = path.parent
    mode = stat.S_IMODE(here.stat().st_mode)
    alone = all(entry.name.startswith(path.name) or entry.name in ALONE for entry in here.iterdir())
    if alone and mode & 0o077 and here.stat().st_uid == os.geteuid():
        here.chmod(0o700)
    elif not alone and mode & 0o022 and not mode & stat.S_ISVTX:
        logger.warning("other users may write to %s, and could replace the state", here)
