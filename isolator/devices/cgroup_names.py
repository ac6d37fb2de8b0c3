"""Cgroups of a process by names that only root can give.

A user of the host may have been given a part of a hierarchy (`Delegate=`, systemd.resource-control(5);
cgroups(7)), and can make cgroups there with any name, even that of a task's container.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from isolator.devices import cgroups
from isolator.host import processes


class CgroupNames:
    """Lookup of trusted cgroup names: those of cgroups that, with all above them, belong to root or this
    process' user.

    Owners of directories are looked up once, and only where a name fits.
    """

    def __init__(self) -> None:
        self._ours: dict[Path, bool] = {}

    def of(self, pid: int, names: Collection[str]) -> set[str]:
        """Return which of `names` the trusted cgroups of a process, or those above them, have; empty if the
        process has ended.
        """
        fit: set[str] = set()
        for version, path in paths_of(pid).items():
            _root, *parts = path.split("/")
            above = enumerate(parts, 1)
            fit |= {name for depth, name in above if name in names and self._is_ours(version, parts[:depth])}
        return fit

    def _is_ours(self, version: cgroups.Version, parts: Sequence[str]) -> bool:
        """Return whether a cgroup and all above it belong to root or this user; False if it is gone or not
        visible.
        """
        mount = self._mounts.get(version)
        if mount is None:
            return False
        return all(self._has_it(mount.joinpath(*parts[:depth])) for depth in range(1, len(parts) + 1))

    @cached_property
    def _mounts(self) -> Mapping[cgroups.Version, Path]:
        return cgroups.mounted()

    def _has_it(self, path: Path) -> bool:
        if path not in self._ours:
            try:
                self._ours[path] = path.stat().st_uid in {0, os.geteuid()}
            except OSError:
                self._ours[path] = False
        return self._ours[path]


def paths_of(pid: int) -> Mapping[cgroups.Version, str]:
    """Return the cgroup path of a process in each hierarchy; empty if it has ended."""
    try:
        paths = cgroups.membership(pid)
        if {*paths.values()} <= {"/"} and (thread := processes.living_thread(pid)) != pid:
            paths = cgroups.membership(thread)
    except OSError:
        return {}
    return paths
