"""Whether the kernel ended processes of a task because its memory was used up, and how much memory it used.

Sources: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst (9, 10) and cgroup-v2.rst.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from isolator.confinement.memory_events import event_of, has_lacked
from isolator.devices.cgroups import Cgroup, cgroups_of, mount_points
from isolator.runs.run import Ended
from mesos_gpu.policy.tasks.limits import out_of_memory

GONE_S: Final = 1.0
_LOOK_S: Final = 0.005
#: By cgroup version: file that counts killed processes; file with the most bytes used at a time; file and
#: name of the counter of allocations that met this cgroup's own limit. In version 1 the counter includes
#: allocations that succeeded then.
_FILES: Final = {
    "cgroup1": ("memory.oom_control", "memory.max_usage_in_bytes", ("memory.failcnt", "")),
    "cgroup2": ("memory.events", "memory.peak", ("memory.events", "oom ")),
}
_BATCH: Final = 1 << 20  # bytes: the kernel counts in batches of pages


def explained(ended: Ended, memory: Cgroup | None, asked_mib: float) -> Ended:
    """Return the end of a task with what a lack of memory had to do with it.

    A process that the kernel ends while this cgroup has not met its limit is ended for others: the host has no memory
    left. That is not the job's fault.

    Args:
        ended: End of the task.
        memory: Cgroup that limits the memory of the task; None if its memory is not limited.
        asked_mib: Memory that the job asks for, in MiB.
    """
    if memory is None or not _kills(memory):
        return ended
    if _is_own_lack(memory):
        return replace(ended, limit=out_of_memory(asked_mib, most_used(memory)))
    used = most_used(memory)
    used_text = "" if used is None else f", with {-(-used >> 20)} of {asked_mib:g} MiB"
    why = f"the host ran out of memory, and the kernel ended processes of the task{used_text}"
    return replace(ended, why=why, infrastructure=True)


def most_used(memory: Cgroup | None) -> int | None:
    """Return the most bytes that a cgroup used at a time; None if that is not known."""
    return None if memory is None else _number(memory.path / _FILES[memory.version][1], "")


def limit_container(pid: int, mib: int) -> str:
    """Have the kernel end all of an engine's container when its memory is used up, which version 1 cannot.

    Args:
        pid: Id of the first process of the container.
        mib: Memory in MiB that the engine must limit the container to.

    Returns:
        The reason why the memory of the container is not limited; "" if it is.

    Raises:
        OSError: The container has ended.
    """
    points = mount_points()
    paths = {name: path for names, path in cgroups_of(pid).items() for name in names.split(",")}
    name = "memory" if "memory" in points else ""
    directory = Path(f"{points.get(name, '/nowhere')}{paths.get(name, '/none')}")
    most = _number(directory / ("memory.limit_in_bytes" if name else "memory.max"), "")
    if most is None or most > mib << 20:
        return f"its cgroup {directory} has {'no limit' if most is None else f'a limit of {most >> 20} MiB'}"
    if not name:
        (directory / "memory.oom.group").write_text("1")
    return ""


class Witness:
    """Count of how often a cgroup of version 1 runs out of memory, also if it is removed before its files are
    read.

    Args:
        pid: Pid of a process in the cgroup.

    Raises:
        OSError: The process has ended, or no cgroup of version 1 limits its memory.
    """

    def __init__(self, pid: int) -> None:
        path_by_controller = {
            name: path for names, path in cgroups_of(pid).items() for name in names.split(",")
        }
        mount = mount_points().get("memory")
        self._directory = f"{mount or '/nowhere'}{path_by_controller.get('memory', '/none')}"
        self._event = event_of(self._directory, os.EFD_NONBLOCK)

    def end(self) -> bool:
        """Return whether the cgroup ran out of memory; to be called once, when its processes have ended.

        The kernel counts one event for each, and one more when the cgroup is removed, which may be a moment
        later.
        """
        count, deadline = 0, time.monotonic() + GONE_S
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    count += os.eventfd_read(self._event)
                # Checked after the count, so that no event of a removal is counted while the cgroup exists.
                exists = os.path.exists(self._directory)
                if count > (not exists) or time.monotonic() > deadline:
                    return count > (not exists)
                time.sleep(0.02)
        finally:
            os.close(self._event)


class Watch:
    """Ends a task whose cgroup of version 1 runs out of memory, where the kernel ends one process only; in
    version 2 it ends all.

    Args:
        memory: Cgroup of version 1 that the executor made for the task.
        end: Function that ends the task.

    Raises:
        OSError: The kernel does not report a lack of memory.
    """

    def __init__(self, memory: Cgroup, end: Callable[[], None]) -> None:
        self._memory, self._end, self._is_closed = memory, end, False
        self._event = event_of(str(memory.path), 0)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """End the task once a process was ended, which the kernel does a moment after it reports the lack of memory."""
        deadline = 0.0
        while not self._is_closed:
            if _kills(self._memory):
                self._end()
                return
            if time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            else:
                os.eventfd_read(self._event)
                deadline = time.monotonic() + GONE_S

    def close(self) -> None:
        """End the watch."""
        self._is_closed = True
        os.eventfd_write(self._event, 1)
        self._thread.join()
        os.close(self._event)


def _kills(memory: Cgroup) -> int:
    """Return the number of processes that the kernel ended in a cgroup for lack of memory, its own or the
    host's.
    """
    return _number(memory.path / _FILES[memory.version][0], "oom_kill ") or 0


def _is_own_lack(memory: Cgroup) -> bool:
    """Return whether a cgroup met its own limit.

    The kernel counts no failures of a limit that includes swap. It reports a lack of memory of a cgroup above
    to this one, too, but not a lack of memory of the host.
    """
    if has_lacked(memory) is False:
        return False
    file, name = _FILES[memory.version][2]
    if _number(memory.path / file, name):
        return True
    limit, most = _number(memory.path / "memory.limit_in_bytes", ""), most_used(memory)
    return limit is not None and most is not None and most > limit - _BATCH


def _number(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return int(line[len(name) :])
    return None
