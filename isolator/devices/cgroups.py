"""Cgroups that control devices, of version 1 and 2, also both at once (hybrid): mount points, membership,
rules.

Sources: the kernel's Documentation/admin-guide/cgroup-v1/devices.rst and cgroup-v2.rst; proc(5) for
mountinfo.
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from isolator.devices import bpf, bpf_sys
from isolator.devices.rules import Rule
from mesos_gpu.errors import MesosGpuError, Unavailable

Version = Literal["cgroup1", "cgroup2"]
OWN_ROOT: Final = "mesos_gpu"  # directory below the mount point for cgroups of tasks that Mesos gave none
REMOVE_S: Final = 5.0
# the task's cgroup below the one that Mesos gave to the container, which contains the executor, too
BELOW: Final = "task"
_ESCAPES: Final = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Directory of a cgroup hierarchy.

    Attributes:
        own: Whether we made it, and remove it.
    """

    version: Version
    path: Path
    own: bool

    def create(self) -> None:
        """Make it if it is ours; harmless if it exists.

        Raises:
            OSError: As mkdir(2).
        """
        if self.own:
            make_directory(self.path)

    def allow(self, rules: Sequence[Rule]) -> None:
        """Let its processes use exactly what the rules allow.

        Raises:
            MesosGpuError: The kernel refuses, or has other rules afterwards.
        """
        if self.version == "cgroup2":
            fd = os.open(self.path, os.O_DIRECTORY)
            try:
                bpf_sys.install(fd, bpf.encode(bpf.compile_rules(rules)))
            finally:
                os.close(fd)
        else:
            _write_list(self.path, rules)

    def allows_exactly(self, rules: Sequence[Rule]) -> bool:
        """Return whether its processes may use exactly what the rules allow, as far as this cgroup decides.

        Raises:
            MesosGpuError, OSError: Its rules cannot be read.
        """
        if self.version == "cgroup1":
            return _accesses(_read_list(self.path)) == _accesses(map(str, rules))
        fd = os.open(self.path, os.O_DIRECTORY)
        try:
            return bpf_sys.installed(fd, bpf.encode(bpf.compile_rules(rules)))
        finally:
            os.close(fd)

    def remove(self) -> list[int]:
        """Kill all processes in it with SIGKILL and remove it, if it is ours; harmless if it is gone.

        Returns:
            Pids of processes that survive for too long; it still exists then.

        Raises:
            Unavailable: Its processes are not visible from this pid namespace.
        """
        deadline = time.monotonic() + REMOVE_S
        while self.own and not _rmdir_tree(self.path):
            left = pids_below(self.path)
            if time.monotonic() > deadline:
                if left:
                    return left
                raise Unavailable(
                    f"{self.path} is in use by processes of another pid namespace",
                    remedy="end these processes",
                )
            # version 2 since Linux 5.14: kills also what is forked meanwhile
            with contextlib.suppress(OSError):
                (self.path / "cgroup.kill").write_text("1")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        if self.own:
            remove_if_empty(self.path.parent)
        return []


def make_directory(path: Path) -> None:
    """Make a directory and its parent, which another process' `remove_if_empty` may remove meanwhile."""
    while True:
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            return
        except FileNotFoundError:
            continue


def remove_if_empty(path: Path) -> None:
    """Remove the directory above the tasks' cgroups with the last of them, so that an idle host keeps none of
    ours.
    """
    with contextlib.suppress(OSError):
        path.rmdir()


def pids_below(path: Path) -> list[int]:
    """Return the processes in a cgroup and below it that are visible in this pid namespace."""
    pids: list[int] = []
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            pids += map(int, Path(directory, "cgroup.procs").read_text().split())
    return [pid for pid in pids if pid]


def _rmdir_tree(path: Path) -> bool:
    """Remove a cgroup and those below it; return whether it is gone. One with processes cannot be removed
    (EBUSY).
    """
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _write_list(path: Path, rules: Sequence[Rule]) -> None:
    """Change the list of a cgroup of version 1 to the rules, without ever denying what stays, or allowing
    more.
    """
    allowed = _accesses(map(str, rules))
    try:
        current = _accesses(_read_list(path))
        if "a *:*" in current:
            (path / "devices.deny").write_text("a")
            current = {}
        for device, access in allowed.items():
            _tell(path / "devices.allow", device, access - current.get(device, frozenset()))
        for device, access in current.items():
            # The kernel removes only entries with the same text: 195:0 cannot be removed from 195:*.
            _tell(path / "devices.deny", device, access - allowed.get(device, frozenset()))
        current = _accesses(_read_list(path))
    except OSError as error:
        raise MesosGpuError(
            f"the devices cgroup {path} cannot be set: {error}",
            remedy="run as root; a cgroup above it must allow what the task is granted",
        ) from error
    if current != allowed:
        raise MesosGpuError(
            f"the devices cgroup {path} allows {current}, not {allowed}",
            remedy="find out which other program changes this host's device cgroups",
        )


def _accesses(lines: Iterable[str]) -> dict[str, frozenset[str]]:
    """Parse rules: "c 1:3 rwm" becomes {"c 1:3": {r, w, m}}."""
    access_by_device: dict[str, frozenset[str]] = {}
    for line in lines:
        device, _, access = line.rpartition(" ")
        access_by_device[device] = access_by_device.get(device, frozenset()) | frozenset(access)
    return access_by_device


def _tell(file: Path, device: str, access: frozenset[str]) -> None:
    if access:
        file.write_text(f"{device} {''.join(sorted(access))}")


def _read_list(path: Path) -> list[str]:
    return (path / "devices.list").read_text().splitlines()


def mount_points(root: Path = Path("/")) -> dict[str, Path]:
    """Return the first mount point of each hierarchy, by its controllers and names ("name=…"); "" is version 2.

    Args:
        root: Directory whose /proc is read.
    """
    points: dict[str, Path] = {}
    for line in (root / "proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind in (
            "cgroup",
            "cgroup2",
        ):  # the rest of the line is parsed for these few only: there are many mounts
            point = Path(unescaped(before.split()[4]))
            for name in options.split()[-1].split(",") if kind == "cgroup" else ("",):
                points.setdefault(name, point)
    return points


def mounted(root: Path = Path("/")) -> dict[Version, Path]:
    """Return the mount points of hierarchies that can control devices; for version 1 the one with `devices`."""
    points = mount_points(root)
    versions: dict[Version, str] = {"cgroup1": "devices", "cgroup2": ""}
    return {version: points[name] for version, name in versions.items() if name in points}


def mounted_with(hierarchy: str, root: Path = Path("/")) -> Path:
    """Return the mount point of a cgroup hierarchy.

    Args:
        hierarchy: Controllers of a hierarchy of version 1, separated by commas, or "name=…"; "" for version 2.
        root: Directory whose /proc is read.

    Raises:
        FileNotFoundError: The hierarchy is not mounted.
    """
    points = mount_points(root)
    places = {points.get(name) for name in hierarchy.split(",")}
    if len(places) == 1 and (point := places.pop()) is not None:
        return point
    raise FileNotFoundError(errno.ENOENT, f"cgroups of {hierarchy or 'version 2'} are not mounted")


def cgroups_of(pid: int | Literal["self"], root: Path = Path("/")) -> dict[str, str]:
    """Return the cgroup paths of a process by hierarchy, named as in /proc/PID/cgroup; "" is version 2.

    Raises:
        OSError: There is no such process.
    """
    lines = (root / f"proc/{pid}/cgroup").read_text(errors="surrogateescape").splitlines()
    return {names: path for _, names, path in (line.split(":", 2) for line in lines)}


def unescaped(text: str) -> str:
    """Return a path of /proc/self/mountinfo without its escapes (proc_pid_mountinfo(5))."""
    for code, character in _ESCAPES.items():
        text = text.replace(code, character)
    return text


def membership(pid: int | Literal["self"] = "self", root: Path = Path("/")) -> dict[Version, str]:
    """Return the path of a process in each hierarchy that can control devices (cgroups(7), /proc/PID/cgroup).

    Raises:
        OSError: There is no such process.
    """
    paths: dict[Version, str] = {}
    for names, path in cgroups_of(pid, root).items():
        if not names:
            paths["cgroup2"] = path
        elif "devices" in names.split(","):
            paths["cgroup1"] = path
    return paths


def cgroup_of(
    container: str, version: Version, root: Path = Path("/"), *, pid: int | Literal["self"] = "self"
) -> Cgroup:
    """Return the cgroup of a container's task: the one that Mesos gave to the container, with its executor;
    else one of our own.

    Args:
        container: Mesos' id of the container.
        version: Version of the hierarchy.
        root: Directory whose /proc is read.
        pid: Pid of the executor.

    Raises:
        Unavailable: That hierarchy is not mounted.
        OSError: There is no such process.
    """
    mount = mounted(root).get(version)
    if mount is None:
        raise Unavailable(
            f"no {version} that controls devices is mounted", remedy="mount it, or change MESOS_GPU_ISOLATION"
        )
    path = membership(pid, root).get(version, "/")
    if path.rstrip("/").rpartition("/")[2] == container:
        return Cgroup(version, mount / path.lstrip("/"), own=False)
    return Cgroup(version, mount / OWN_ROOT / container, own=True)


def own_cgroup2(container: str, root: Path = Path("/")) -> Cgroup:
    """Return the cgroup of version 2 that a container's task has alone, without the executor.

    Args:
        container: Mesos' id of the executor's container.
        root: Directory whose /proc is read.

    Raises:
        Unavailable: Version 2 is not mounted.
    """
    cgroup = cgroup_of(container, "cgroup2", root)
    return cgroup if cgroup.own else Cgroup("cgroup2", cgroup.path / BELOW, own=True)
