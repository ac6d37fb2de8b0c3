"""A backup takes the place of a state, which is kept beside.

All is prepared beside it first. While names change, `PATH.restoring` is there, and no scheduler starts on the state:
a restore that was killed is to be done again.
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
_GONE: Final = ("-wal", "-shm")  # beside a database whose place is taken: they are not of the new one


@dataclass(frozen=True, slots=True)
class Placed:
    """What a restore has done.

    Attributes:
        kept: The state that was there, with its webhooks beside as of a backup; None: there was none.
        has_hooks: Whether the backup has webhooks.
    """

    kept: Path | None
    has_hooks: bool


def put_in_place(source: Path, path: Path, prepare: Callable[[Path], None]) -> Placed:
    """Let a backup be the state in `path`.

    Args:
        source: What `backup` wrote; its webhooks are beside.
        path: The scheduler's --state file.
        prepare: Is given a copy of the state, with the mark of the one in place beside it, and makes of it what a
            scheduler may start on. What it raises ends the restore, and nothing has changed.

    Raises:
        NotFound: There is no backup.
        Conflict: A scheduler uses the state, or the backup is that file.
        BadConfiguration: The state's directory is another user's.
        Damaged: The backup cannot be read.
        NoRoom: The disk is full.
    """
    if not source.is_file():
        raise NotFound(f"there is no backup {source}", remedy="name a file that mesos-gpu backup wrote")
    if path.exists() and source.samefile(path):
        raise Conflict(f"{source} is the state itself", remedy="name a file that mesos-gpu backup wrote")
    if not path.parent.is_dir():
        raise NotFound(f"there is no {path.parent}", remedy="name the file of the scheduler's --state")
    _see_own(path)
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
            return _exchanged(path, copy)
    finally:
        os.close(lock)


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """A directory beside the state, of the restore that has the lock; one that was killed may have left it."""
    room = Path(f"{path}.restore")
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir(mode=0o700)
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _exchanged(path: Path, copy: Path) -> Placed:
    """Keep what is there, and rename what was prepared."""
    new = [each for each in (hooks_of(copy), copy, _mark_of(copy)) if each.exists()]
    for each in new:
        sync(each)
    has_hooks = hooks_of(copy).exists()
    kept = _kept(path)
    restoring(path).touch(OWN)  # from here on no scheduler starts
    sync(path.parent)
    for each in (path, hooks_of(path)):
        for end in _GONE:
            Path(f"{each}{end}").unlink(missing_ok=True)
    if not has_hooks:
        hooks_of(path).unlink(missing_ok=True)
    for each in new:
        each.rename(path.with_name(each.name))
    make_private(path)
    sync(path.parent)
    restoring(path).unlink()
    sync(path.parent)
    keep_few(path, "replaced-")
    return Placed(kept, has_hooks)


def _kept(path: Path) -> Path | None:
    """Give what is there other names too: a database and its -wal are read as well by those."""
    if not path.exists() and not hooks_of(path).exists():
        return None
    kept = _free(path)
    for old, new in ((hooks_of(path), hooks_of(kept)), (path, kept)):
        for end in (_WAL, ""):
            if (part := Path(f"{old}{end}")).is_file():
                os.link(part, f"{new}{end}")
    return kept


def _free(path: Path) -> Path:
    """A new name, later than all that there are: one of this second that is free may have been that of an older one."""
    kept = Path(f"{path}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    there = [each.name.removeprefix(kept.name) for each in path.parent.glob(f"{glob.escape(kept.name)}*")]
    numbers = [int(number[1] or 0) for end in there if (number := re.match(r"(?:-(\d+))?(?![\d])", end))]
    return kept if not there else kept.with_name(f"{kept.name}-{max(numbers, default=0) + 1}")


def _mark_of(path: Path) -> Path:
    return Path(f"{path}.mark")


def _see_own(path: Path) -> None:
    """See that nobody else can change names meanwhile: what root writes could become another file."""
    owner = path.parent.stat().st_uid
    if owner != os.geteuid():
        raise BadConfiguration(
            f"{path.parent} is of another user (uid {owner})",
            remedy=f"restore as that user, who must be able to read the backup: sudo -u '#{owner}' mesos-gpu restore",
        )
