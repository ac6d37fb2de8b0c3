"""Copies of a state and of its webhooks: whole, also while a scheduler writes them."""

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
    """Write a copy of the state in `path` that can stand for it, and beside that one of its webhooks, also while its
    scheduler runs; the files, that of the state first.

    Webhooks are copied first: what happens meanwhile is an event of the state's copy that they have not taken over yet,
    and take over after a restore.

    Raises:
        NotFound: There is no state.
        Conflict: A target exists.
        Damaged: The state, or its webhooks, cannot be read.
        NoRoom: The disk of `target` is full.
    """
    if not path.is_file():
        raise NotFound(f"there is no state in {path}", remedy="name the file of the scheduler's --state")
    pairs = [(hooks_of(path), hooks_of(target)), (path, target)]
    try:
        if os.path.lexists(hooks_of(target)):  # of another backup: a restore would take it for this one's
            raise FileExistsError(errno.EEXIST, "it exists", str(hooks_of(target)))
        with ExitStack() as parts, ExitStack() as undone:
            copies = [(parts.enter_context(_copied(each, to)), to) for each, to in pairs if each.is_file()]
            for part, to in copies:
                os.link(part, to)  # and not a rename: what is there stays
                undone.callback(to.unlink)
            sync(target.parent)
            undone.pop_all()
    except FileExistsError as error:
        raise Conflict(f"{error.filename2 or error.filename} exists", remedy="name a new file") from error
    return [to for _, to in reversed(copies)]


@contextmanager
def _copied(path: Path, target: Path) -> Iterator[Path]:
    """A whole copy of a database, beside where it is to be, for as long as the context lasts."""
    part = target.with_name(f".{target.name}.part")
    handle = _begun(part)
    try:
        copy_into(path, part)
        yield part
    finally:
        part.unlink()
        os.close(handle)


def copy_into(path: Path, part: Path, *, read_only: bool = False) -> None:
    """Write a whole copy of a database to a file that is empty or not there, and force it to the disk.

    Raises:
        Damaged: It cannot be read.
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
                remedy="make room on that file system, or name a file on another one",
            ) from error
        if isinstance(error, OSError):
            raise
        raise Damaged(
            f"{path} cannot be copied: {_why(error)}", remedy="is it the scheduler's --state file?"
        ) from error


def _why(error: sqlite3.DatabaseError) -> str:
    """SQLite names the copy where it is the original that cannot be read."""
    return "its pages are damaged" if code_of(error) == sqlite3.SQLITE_CORRUPT else str(error)


def _begun(part: Path) -> int:
    """Make a file and lock it. One that nobody locks was left by a backup that was killed: it is removed.

    Raises:
        FileExistsError: Another backup writes it, or it is another user's.
    """
    if _is_left(part):
        part.unlink()
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, OWN)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _is_left(part: Path) -> bool:
    try:
        handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # it is not there, or none of ours
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
