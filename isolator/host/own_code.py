"""Whether tasks can change what executors run: the interpreter, the modules that it would find, the entry scripts.

Executors are root. Who can write a file that they import, or a directory in which it is looked for, is root at the
next task's start.
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
    """All places that this process imports or runs code from; executors do the same if interpreter and user are the
    same."""
    entries = (shutil.which(name) for name in ENTRIES)
    own = (path for path in (*sys.path, sys.executable, *entries) if path)
    return tuple(dict.fromkeys(Path(os.path.abspath(path)) for path in own))


def weak(paths: Iterable[Path], *, users: Iterable[int] = (0,), groups: Iterable[int] = (0,)) -> list[str]:
    """What of these paths somebody else can change, each in words.

    Args:
        paths: Files and directories; of a directory all that is in it counts, and of each path all that leads to it.
        users: Who may own them: not those of tasks.
        groups: Whose members may write them, besides those whose members are root in effect.
    """
    allowed = frozenset(users), frozenset((*groups, *_mighty()))
    faults: dict[str, None] = {}
    for path in paths:
        leading = (str(each) for each in _leading_to(path))
        for each in (*leading, *(_inside(str(path)) if path.is_dir() else ())):
            if why := _fault(each, *allowed):
                faults[f"{each} {why}"] = None
    return list(faults)


def _leading_to(path: Path, depth: int = 0) -> Iterator[Path]:
    """The path itself and its parents, and where links on the way lead to, with parents."""
    if depth > 40:  # as the kernel: MAXSYMLINKS
        return
    for each in (path, *path.parents):
        yield each
        if each.is_symlink():
            yield from _leading_to(Path(os.path.abspath(each.parent / os.readlink(each))), depth + 1)


def _inside(top: str) -> Iterator[str]:
    """What is below a directory, some ten thousand files: names, for a `Path` of each would take most of the time."""
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if not name.startswith(".")]  # nothing is imported from there
        yield from (f"{directory}/{name}" for name in (*names, *files))


def _fault(path: str, users: frozenset[int], groups: frozenset[int]) -> str:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # its parents count: who can make it?
    mode = status.st_mode
    if status.st_uid not in users:
        return f"belongs to uid {status.st_uid}"
    if stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return ""  # of a sticky directory nobody takes what is another's
    if mode & stat.S_IWOTH:
        return "can be written by everybody"
    return (
        f"can be written by the group {status.st_gid}"
        if mode & stat.S_IWGRP and status.st_gid not in groups
        else ""
    )


def _mighty() -> list[int]:
    return [group.gr_gid for group in grp.getgrall() if group.gr_name in MIGHTY_GROUPS]
