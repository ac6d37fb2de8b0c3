"""Whether the kernel ended processes of a container for want of memory, and how much it had.

Sources: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst (9, 10) and cgroup-v2.rst.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from isolator.devices.cgroups import cgroups_of, mounted_with
from mesos_gpu.policy.tasks.limits import out_of_memory

GONE_S: Final = 1.0
#: Of a cgroup: the file that counts processes which were ended, and the one with the most bytes that it held.
_FILES: Final = {
    "memory": ("memory.oom_control", "memory.max_usage_in_bytes"),
    "": ("memory.events", "memory.peak"),
}


def lack(container: str, asked_mib: float) -> str:
    """What to say of a task, if processes of its container were ended for want of memory; "": none were, or nobody
    counts, as where Mesos gave it no cgroup of its own for memory."""
    counts, _ = _files_of(container)
    return out_of_memory(asked_mib, most_used(container)) if _number(counts, "oom_kill ") else ""


def most_used(container: str) -> int | None:
    """Bytes that a container had at most; None: that is not known."""
    return _number(_files_of(container)[1], "")


class Witness:
    """Sees a cgroup of version 1 meet a want of memory, also if it is removed before anybody can ask it."""

    def __init__(self, pid: int) -> None:
        """Begin, with the cgroup that a process is in.

        Raises:
            OSError: It has ended, or no cgroup of version 1 limits its memory.
        """
        path_by_controller = {
            name: path for names, path in cgroups_of(pid).items() for name in names.split(",")
        }
        self._directory = f"{mounted_with('memory')}{path_by_controller.get('memory', '/none')}"
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._register()
        except OSError:
            os.close(self._event)
            raise

    def _register(self) -> None:
        control = os.open(f"{self._directory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with open(f"{self._directory}/cgroup.event_control", "w") as file:
                file.write(f"{self._event} {control}")
        finally:
            os.close(control)

    def end(self) -> bool:
        """Whether it has met one; to be asked once, when its processes have ended. The kernel counts one for each, and
        one more when the cgroup goes, which may be a moment later."""
        count, deadline = 0, time.monotonic() + GONE_S
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    count += os.eventfd_read(self._event)
                there = os.path.exists(
                    self._directory
                )  # asked later, so that no count is of its end if it is
                if count > (not there) or time.monotonic() > deadline:
                    return count > (not there)
                time.sleep(0.02)
        finally:
            os.close(self._event)


def _files_of(container: str) -> tuple[Path | None, Path | None]:
    with contextlib.suppress(OSError):
        for controllers, path in cgroups_of("self").items():
            kind = next((kind for kind in _FILES if kind in controllers.split(",")), None)
            if kind is not None and path.rpartition("/")[2] == container:
                counts, most = _FILES[kind]
                directory = Path(f"{mounted_with(kind)}{path}")
                if (directory / counts).exists():
                    return directory / counts, directory / most
    return None, None


def _number(path: Path | None, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines() if path is not None else ():
            if line.startswith(name):
                return int(line[len(name) :])
    return None
