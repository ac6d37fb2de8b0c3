"""Replacement of a state by a backup; the replaced state is kept beside it.

The new files are prepared beside the state first. While names change, `PATH.restoring` exists, and no scheduler starts
on the state: a restore that was killed then must be repeated.
"""

import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.hooks.store import hooks_of
from mesos_gpu.adapters.sqlite.copies import copy_into
from mesos_gpu.adapters.sqlite.files import OWN, keep_few, lock_of, make_private, restoring, sync
from mesos_gpu.errors import BadConfiguration, Conflict, NotFound

_WAL: Final = "-wal"
_GONE: Final = ("-wal", "-shm")  # of the replaced database: they do not belong to the new one


@dataclass(frozen=True, slots=True)
class Placed:
    """Result of a restore.

    Attributes:
        kept: Path of the replaced state, with its webhooks beside it as in a backup; None if there was no state.
        has_hooks: Whether the backup has webhooks.
    """

    kept: Path | None
    has_hooks: bool


def put_in_place(source: Path, path: Path, prepare: Callable[[Path], None]) -> Placed:
    """Replace the state in `path` by a backup.

    Args:
        source: File that `backup` wrote, with webhooks beside it.
        path: The scheduler's --state file.
        prepare: Called with a copy of the backup, beside which is the mark of the current state; it must make a state
            of it that a scheduler can start on. If it raises, nothing has changed.

    Raises:
        NotFound: The backup does not exist.
        Conflict: A scheduler uses the state, or the backup is the state itself.
        BadConfiguration: The state's directory belongs to another user.
        Damaged: The backup cannot be read.
        NoRoom: The disk is full.
    """
    if not source.is_file():
        raise NotFound(f"there is no backup {source}", remedy="give a file that mesos-gpu backup wrote")
    if path.exists() and source.samefile(path):
        raise Conflict(f"{source} is the state itself", remedy="give a file that mesos-gpu backup wrote")
    if not path.parent.is_dir():
        raise NotFound(f"there is no {path.parent}", remedy="give the file of the scheduler's --state")
    _check_owner(path)
    lock = lock_of(path)
    try:
        with _workshop(path) as room:
            copy = room / path.name
            copy_into(source, copy, read_only=True)
            copy.chmod(OWN)
            if (mark := _mark_of(path)).exists():
                shutil.copyfile(mark, _mark_of(copy))
            prepare(copy)
            if hooks_of(source).is_file():
                copy_into(hooks_of(source), hooks_of(copy), read_only=True)
                hooks_of(copy).chmod(OWN)
            return _exchange_files(path, copy)
    finally:
        os.close(lock)


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """Yield an empty directory beside the state; leftovers of a restore that was killed are removed."""
    room = Path(f"{path}.restore")
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir(mode=0o700)
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _exchange_files(path: Path, copy: Path) -> Placed:
    """Keep the current state under another name, and rename the prepared files to it."""
    new = [file for file in (hooks_of(copy), copy, _mark_of(copy)) if file.exists()]
    for file in new:
        sync(file)
    has_hooks = hooks_of(copy).exists()
    kept = _keep_current(path)
    restoring(path).touch(OWN)  # from here on no scheduler starts
    sync(path.parent)
    for file in (path, hooks_of(path)):
        for end in _GONE:
            Path(f"{file}{end}").unlink(missing_ok=True)
    if not has_hooks:
        hooks_of(path).unlink(missing_ok=True)
    for file in new:
        file.rename(path.with_name(file.name))
    make_private(path)
    sync(path.parent)
    restoring(path).unlink()
    sync(path.parent)
    keep_few(path, "replaced-")
    return Placed(kept, has_hooks)


def _keep_current(path: Path) -> Path | None:
    """Give the current files additional names; a database and its -wal can be read by those as well."""
    if not path.exists() and not hooks_of(path).exists():
        return None
    kept = _unused_name(path)
    for old, new in ((hooks_of(path), hooks_of(kept)), (path, kept)):
        for end in (_WAL, ""):
            if (part := Path(f"{old}{end}")).is_file():
                os.link(part, f"{new}{end}")
    return kept


def _unused_name(path: Path) -> Path:
    """Return an unused name for a kept state, later in order than all existing ones, also of this second."""
    kept = Path(f"{path}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    there = [file.name.removeprefix(kept.name) for file in path.parent.glob(f"{glob.escape(kept.name)}*")]
    numbers = [int(number[1] or 0) for end in there if (number := re.match(r"(?:-(\d+))?(?![\d])", end))]
    return kept if not there else kept.with_name(f"{kept.name}-{max(numbers, default=0) + 1}")


def _mark_of(path: Path) -> Path:
    return Path(f"{path}.mark")


def _check_owner(path: Path) -> None:
    """Check that the directory's owner runs this: others could change names meanwhile, and misdirect root's writes."""
    owner = path.parent.stat().st_uid
    if owner != os.geteuid():
        raise BadConfiguration(
            f"{path.parent} belongs to another user (uid {owner})",
            remedy=f"restore as that user, who must be able to read the backup: sudo -u '#{owner}' mesos-gpu restore",
        )
