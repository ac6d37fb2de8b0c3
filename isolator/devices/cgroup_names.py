"""Which cgroups a process is in, by names that nobody but root can give.

A user of the host may have been given a part of a hierarchy (`Delegate=`, systemd.resource-control(5); cgroups(7)), and
makes cgroups there with any name, that of a task's container, too.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from isolator.devices import cgroups
from isolator.host import processes


class CgroupNames:
    """Names of the cgroups of processes: of those that are root's, or of who runs this, with all above them."""

    def __init__(self) -> None:
        """Whose a directory is, is looked at once, and only where a name fits."""
        self._ours: dict[Path, bool] = {}

    def of(self, pid: int, names: Collection[str]) -> set[str]:
        """Which of `names` cgroups of the process and those above them have; empty: it has none, or has ended."""
        fit: set[str] = set()
        for version, path in paths_of(pid).items():
            _root, *parts = path.split("/")
            above = enumerate(parts, 1)
            fit |= {name for depth, name in above if name in names and self._is_ours(version, parts[:depth])}
        return fit

    def _is_ours(self, version: cgroups.Version, parts: Sequence[str]) -> bool:
        """Whether nobody else has that cgroup, nor one above it. False, too, if it is gone, or not seen from here."""
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
    """The path of a process in each hierarchy; empty: it has ended."""
    try:
        paths = cgroups.membership(pid)
        if {*paths.values()} <= {"/"} and (thread := processes.living_thread(pid)) != pid:
            paths = cgroups.membership(thread)
    except OSError:
        return {}
    return paths
