"""Cgroups that control devices, v1 and v2, also both at once (hybrid): where they are, and whose.

Sources: the kernel's Documentation/admin-guide/cgroup-v1/devices.rst and cgroup-v2.rst; proc(5) for mountinfo.
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
OWN_ROOT: Final = "mesos_gpu"  # under the mount: cgroups of tasks that Mesos gave none
REMOVE_S: Final = 5.0
BELOW: Final = "task"  # in a cgroup that Mesos gave to the container, which has the executor, too
_ESCAPES: Final = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A directory of a cgroup hierarchy. `own`: we made it, and remove it."""

    version: Version
    path: Path
    own: bool

    def create(self) -> None:
        """Make it, if it is ours; harmless if it is there.

        Raises:
            OSError: As mkdir(2).
        """
        if self.own:
            make_directory(self.path)

    def allow(self, rules: Sequence[Rule]) -> None:
        """Let its processes use exactly what the rules allow.

        Raises:
            MesosGpuError: The kernel refuses, or holds other rules afterwards.
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
        """Whether that is what its processes may use, as far as this cgroup decides.

        Raises:
            MesosGpuError, OSError: It cannot be read.
        """
        if self.version == "cgroup1":
            return _accesses(_read_list(self.path)) == _accesses(map(str, rules))
        fd = os.open(self.path, os.O_DIRECTORY)
        try:
            return bpf_sys.installed(fd, bpf.encode(bpf.compile_rules(rules)))
        finally:
            os.close(fd)

    def remove(self) -> list[int]:
        """Kill all in it with SIGKILL and remove it, if it is ours; harmless if it is gone.

        Returns:
            Processes that would not die in time: then it is still there.

        Raises:
            Unavailable: Those that are in it cannot be seen from this pid namespace.
        """
        deadline = time.monotonic() + REMOVE_S
        while self.own and not _rmdir_tree(self.path):
            left = pids_below(self.path)
            if time.monotonic() > deadline:
                if left:
                    return left
                raise Unavailable(
                    f"{self.path} is in use by another pid namespace", remedy="end what is in it"
                )
            with contextlib.suppress(OSError):  # v2 since Linux 5.14: whoever forks meanwhile, too
                (self.path / "cgroup.kill").write_text("1")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        if self.own:
            remove_if_empty(self.path.parent)
        return []


def make_directory(path: Path) -> None:
    """Make a directory with its parent, which another's `remove_if_empty` may take away in between."""
    while True:
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            return
        except FileNotFoundError:
            continue


def remove_if_empty(path: Path) -> None:
    """Remove the directory above the tasks' cgroups with the last of them, so that an idle host keeps nothing of
    ours."""
    with contextlib.suppress(OSError):
        path.rmdir()


def pids_below(path: Path) -> list[int]:
    """Processes in a cgroup and below it, as far as this pid namespace can see them."""
    pids: list[int] = []
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            pids += map(int, Path(directory, "cgroup.procs").read_text().split())
    return [pid for pid in pids if pid]


def _rmdir_tree(path: Path) -> bool:
    """Whether it is gone; one with processes in it cannot be removed (EBUSY)."""
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _write_list(path: Path, rules: Sequence[Rule]) -> None:
    """Bring cgroup v1's list to the rules. What is allowed and stays is never denied meanwhile; nothing that is not
    wanted is ever added."""
    wanted = _accesses(map(str, rules))
    try:
        have = _accesses(_read_list(path))
        if "a *:*" in have:
            (path / "devices.deny").write_text("a")
            have = {}
        for device, access in wanted.items():
            _tell(path / "devices.allow", device, access - have.get(device, frozenset()))
        for device, access in have.items():
            # The kernel takes away only what was given in the same words: 195:0 out of 195:* stays.
            _tell(path / "devices.deny", device, access - wanted.get(device, frozenset()))
        have = _accesses(_read_list(path))
    except OSError as error:
        raise MesosGpuError(
            f"the devices cgroup {path} cannot be set: {error}",
            remedy="run as root; a cgroup above it must allow what the task is granted",
        ) from error
    if have != wanted:
        raise MesosGpuError(
            f"the devices cgroup {path} holds {have}, not {wanted}",
            remedy="see what else changes this host's device cgroups",
        )


def _accesses(lines: Iterable[str]) -> dict[str, frozenset[str]]:
    """ "c 1:3 rwm" as {"c 1:3": {r, w, m}}."""
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
        if kind in ("cgroup", "cgroup2"):  # few lines, on a host with containers
            point = Path(unescaped(before.split()[4]))
            for name in options.split()[-1].split(",") if kind == "cgroup" else ("",):
                points.setdefault(name, point)
    return points


def mounted(root: Path = Path("/")) -> dict[Version, Path]:
    """Where hierarchies that can control devices are mounted: of v1 the one with `devices`."""
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
    """A path as /proc/self/mountinfo writes it, as it is (proc_pid_mountinfo(5))."""
    for code, character in _ESCAPES.items():
        text = text.replace(code, character)
    return text


def membership(pid: int | Literal["self"] = "self", root: Path = Path("/")) -> dict[Version, str]:
    """The path of a process in each hierarchy that can control devices (cgroups(7), /proc/PID/cgroup).

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
    """The cgroup for a container's task: the one that Mesos gave to the container, in which its executor then is;
    else one of our own.

    Args:
        container: Mesos' id of it.
        version: Which hierarchy.
        root: Whose /proc is read.
        pid: The executor.

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
