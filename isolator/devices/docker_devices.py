"""Verification, from outside, of the NVIDIA devices in a container of the Docker Engine."""

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from isolator.devices import cgroups
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.errors import MesosGpuError

# pauses between tries; a process that is just ending is in no cgroup of its own any more
PAUSES_S: Final = (0.01, 0.05, 0.2, 0.0)
MAX_NODES: Final = 4096  # most entries of /dev; the engine makes some twenty, and one for each device


def verify(pid: int, expected: Collection[tuple[int, int]], majors: Collection[int]) -> None:
    """Verify that a started container has exactly the granted devices of a driver.

    Another tool of this host (a hook of the runtime, a plugin of containerd) may have added some.

    Args:
        pid: Pid of the container's first process on the host; one that has ended is accepted.
        expected: Major and minor number of each granted device.
        majors: Major numbers of the driver.

    Raises:
        MesosGpuError: /dev, or the device list of its cgroup (version 1; version 2 has no list to read), has
            more or less.
    """
    want = frozenset(expected)
    for pause_s in PAUSES_S:
        wrong = {place: devices for place, devices in _devices(pid, majors).items() if devices != want}
        if not wrong or start_ticks(pid) is None:
            return
        time.sleep(pause_s)
    place, devices = next(iter(wrong.items()))
    raise MesosGpuError(
        f"{place} of the container has the devices {sorted(devices)}, not {sorted(want)}",
        remedy="find out which other program adds devices to containers on this host (OCI hooks, NRI plugins, CDI)",
    )


def _devices(pid: int, majors: Collection[int]) -> dict[str, frozenset[tuple[int, int]]]:
    """Return the devices in /dev and in the device cgroup; empty if the process has ended."""
    try:
        have = {"/dev": _nodes(Path(f"/proc/{pid}/root/dev"), majors)}
        mount, path = cgroups.mounted().get("cgroup1"), cgroups.membership(pid).get("cgroup1")
        if mount is not None and path is not None:
            have["its device cgroup"] = _listed(mount / path.lstrip("/") / "devices.list", majors)
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return have


def _nodes(directory: Path, majors: Collection[int]) -> frozenset[tuple[int, int]]:
    """Return the nodes of these majors in a container's /dev, in which its root user may have made any
    entries.

    Raises:
        MesosGpuError: It has more entries than are looked at.
    """
    numbers_present = set(_of(directory, majors))
    with contextlib.suppress(
        FileNotFoundError, NotADirectoryError
    ):  # NotADirectoryError also for a link, which would lead to the host's
        numbers_present |= set(_of(directory / "nvidia-caps", majors))
    return frozenset(numbers_present)


def _of(directory: Path, majors: Collection[int]) -> Iterator[tuple[int, int]]:
    fd = os.open(directory, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.scandir(fd) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_NODES:
                    raise MesosGpuError(
                        f"{directory} has more than {MAX_NODES} entries", remedy="end the task"
                    )
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in majors:
                    yield os.major(status.st_rdev), os.minor(status.st_rdev)
    finally:
        os.close(fd)


def _listed(path: Path, majors: Collection[int]) -> frozenset[tuple[int, int]]:
    """Return the devices of these majors in a cgroup's list; -1 for any number."""
    allowed = set()
    for line in path.read_text().splitlines():
        kind, numbers, access = line.split()
        major, minor = (-1 if number == "*" else int(number) for number in numbers.split(":"))
        if kind in "ac" and (major == -1 or major in majors) and access != "m":
            allowed.add((major, minor))
    return frozenset(allowed)
