"""Consistent copies of a state and of its webhooks, also while a scheduler writes them."""

import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mesos_gpu.adapters.hooks.store import hooks_of
from mesos_gpu.adapters.sqlite.files import OWN, code_of, lacks_room, sync
from mesos_gpu.errors import Conflict, Damaged, NoRoom, NotFound


def backup(path: Path, target: Path) -> list[Path]:
    """Write a backup of the state in `path`, and beside it one of its webhooks, also while its scheduler runs.

    Webhooks are copied first: the state's copy then has all events that the webhooks' copy has not processed yet, and
    they are processed after a restore.

    Returns:
        The files, that of the state first.

    Raises:
        NotFound: The state does not exist.
        Conflict: A target exists.
        Damaged: The state, or its webhooks, cannot be read.
        NoRoom: The disk of `target` is full.
    """
    if not path.is_file():
        raise NotFound(f"there is no state in {path}", remedy="give the file of the scheduler's --state")
    pairs = [(hooks_of(path), hooks_of(target)), (path, target)]
    try:
        if os.path.lexists(hooks_of(target)):  # a restore would use the webhooks of another backup
            raise FileExistsError(errno.EEXIST, "it exists", str(hooks_of(target)))
        with ExitStack() as parts, ExitStack() as undone:
            copies = [
                (parts.enter_context(_copied(original, to)), to)
                for original, to in pairs
                if original.is_file()
            ]
            for part, to in copies:
                os.link(part, to)  # unlike a rename, this does not replace a file
                undone.callback(to.unlink)
            sync(target.parent)
            undone.pop_all()
    except FileExistsError as error:
        raise Conflict(f"{error.filename2 or error.filename} exists", remedy="give a new file") from error
    return [to for _, to in reversed(copies)]


@contextmanager
def _copied(path: Path, target: Path) -> Iterator[Path]:
    """Yield a complete copy of a database beside its target; the copy is removed at the end."""
    part = target.with_name(f".{target.name}.part")
    handle = _create_locked(part)
    try:
        copy_into(path, part)
        yield part
    finally:
        part.unlink()
        os.close(handle)


def copy_into(path: Path, part: Path, *, read_only: bool = False) -> None:
    """Write a complete copy of a database to a file that is empty or missing, and force it to disk.

    Raises:
        Damaged: The database cannot be read.
        NoRoom: The disk of `part` is full.
    """
    try:
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
        try:
            db.execute("VACUUM INTO ?", (str(part),))
        finally:
            db.close()
        sync(part)
    except (OSError, sqlite3.DatabaseError) as error:
        if lacks_room(error, part.parent):
            raise NoRoom(
                f"a copy of {path} cannot be written to {part.parent}: {error}",
                remedy="make room on that file system, or give a file on another one",
            ) from error
        if isinstance(error, OSError):
            raise
        raise Damaged(
            f"{path} cannot be copied: {_reason(error)}",
            remedy="check that it is the scheduler's --state file",
        ) from error


def _reason(error: sqlite3.DatabaseError) -> str:
    """Return the reason of a failed copy; SQLite's text would name the copy if the original cannot be read."""
    return "its pages are damaged" if code_of(error) == sqlite3.SQLITE_CORRUPT else str(error)


def _create_locked(part: Path) -> int:
    """Create and lock a file. A file that no process locks was left by a backup that was killed, and is replaced.

    Raises:
        FileExistsError: Another backup is writing the file, or it belongs to another user.
    """
    if _is_left(part):
        part.unlink()
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, OWN)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _is_left(part: Path) -> bool:
    """Return whether a file is an unlocked leftover of this user's."""
    try:
        handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # it does not exist, or belongs to another user
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
