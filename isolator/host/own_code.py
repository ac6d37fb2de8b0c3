"""Check of whether tasks can change what executors run: the interpreter, modules on its path, the entry
scripts.

Executors are root. Users who can write a file that executors import, or a directory that they search for it,
become root at the start of the next task.
"""

import grp
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mesos_gpu.model.jobs.users import MIGHTY_GROUPS

ENTRIES: Final = ("mesos-gpu-executor", "mesos-gpu-monitor", "mesos-gpu-keeper", "mesos-gpu")


def places() -> tuple[Path, ...]:
    """Return all places from which this process imports or runs code; executors use the same with the same
    interpreter and user.
    """
    entries = (shutil.which(name) for name in ENTRIES)
    own = (path for path in (*sys.path, sys.executable, *entries) if path)
    return tuple(dict.fromkeys(Path(os.path.abspath(path)) for path in own))


def weak(paths: Iterable[Path], *, users: Iterable[int] = (0,), groups: Iterable[int] = (0,)) -> list[str]:
    """Return what other users can change among these paths, each in words.

    Args:
        paths: Files and directories, with the content of directories and all directories that lead to each
            path.
        users: Users who may own them: not those of tasks.
        groups: Groups that may write them, besides those whose members are root in effect.
    """
    allowed = frozenset(users), frozenset((*groups, *_mighty()))
    faults: dict[str, None] = {}
    for path in paths:
        leading = (str(each) for each in _leading_to(path))
        for place in (*leading, *(_inside(str(path)) if path.is_dir() else ())):
            if why := _fault(place, *allowed):
                faults[f"{place} {why}"] = None
    return list(faults)


def _leading_to(path: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the path and its parents, and for links on the way their targets with parents."""
    if depth > 40:  # limit of the kernel, MAXSYMLINKS
        return
    for each in (path, *path.parents):
        yield each
        if each.is_symlink():
            yield from _leading_to(Path(os.path.abspath(each.parent / os.readlink(each))), depth + 1)


def _inside(top: str) -> Iterator[str]:
    """Yield the paths below a directory, some ten thousand files, as strings, because `Path` objects would
    take most of the time.
    """
    for directory, names, files in os.walk(top):
        # no code is imported from hidden directories
        names[:] = [name for name in names if not name.startswith(".")]
        yield from (f"{directory}/{name}" for name in (*names, *files))


def _fault(path: str, users: frozenset[int], groups: frozenset[int]) -> str:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # it does not exist: the users who could create it are found by checking its parent directories
    mode = status.st_mode
    if status.st_uid not in users:
        return f"belongs to uid {status.st_uid}"
    if stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return ""  # in a sticky directory, users cannot replace files of others
    if mode & stat.S_IWOTH:
        return "can be written by every user"
    return (
        f"can be written by the group {status.st_gid}"
        if mode & stat.S_IWGRP and status.st_gid not in groups
        else ""
    )


def _mighty() -> list[int]:
    return [group.gr_gid for group in grp.getgrall() if group.gr_name in MIGHTY_GROUPS]
