"""Processes of tasks that hold remains of an ended task: a socket, or a directory of its sandbox.

A task may pass descriptors on to another task (SCM_RIGHTS), which outlives it. The processes of that other
task are found by their descriptors, killed by pidfd, and reported in the output of their task. Executors, and
processes outside of this agent's tasks, are never killed. A descriptor that waits in the queue of a Unix
socket is in no process.
"""

import contextlib
import ctypes
import errno
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isolator.devices.members import members_of
from isolator.gpus.ledger import Holding, Ledger
from isolator.host.sandbox import Sandbox
from mesos_gpu.wire.plain import clean

_PATH: Final = os.O_PATH | os.O_DIRECTORY
_MAX_HANDLE_SZ: Final = 128  # linux/fs.h
_AT_EMPTY_PATH: Final = 0x1000  # linux/fcntl.h
_DEATH_S: Final = 5.0  # longest wait for a process that hangs in a system call of another file system
_GONE: Final = (FileNotFoundError, ProcessLookupError)
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Holder:
    """Process with a descriptor that belonged to an ended task.

    Attributes:
        pid: Id of the process.
        name: Name of its program.
        holding: Holding of its task; None for a process outside of this agent's tasks.
    """

    pid: int
    name: str
    holding: Holding | None

    def __str__(self) -> str:
        """Return the process and its task in words."""
        task = f" of task {self.holding.task}" if self.holding is not None else ""
        return f"process {self.pid} ({self.name}){task}"


def holder_of(pid: int, tasks: Mapping[int, Holding]) -> Holder:
    """Return a process with its name and its task.

    Args:
        tasks: Holdings of tasks by pids of their processes.
    """
    try:
        name = clean(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
    except OSError:
        name = "ended"
    return Holder(pid, name, tasks.get(pid))


def processes_of_others(ledger: Ledger, container: str) -> dict[int, Holding]:
    """Return the processes of the tasks of this agent, without their executors, by process id.

    Args:
        ledger: Ledger of this host.
        container: Container of the task whose processes are left out.
    """
    holdings = [each for each in ledger.holdings() if each.container != container]
    tasks: dict[int, Holding] = {}
    for holding, members in zip(holdings, members_of(holdings), strict=True):
        tasks |= dict.fromkeys(members - {holding.owner.pid}, holding)
    return tasks


def sockets_of(pid: int, deadline: float) -> set[int]:
    """Return the inode numbers of a process' sockets that are found before the deadline, of `time.monotonic`."""
    inodes: set[int] = set()
    for path in _descriptors_of(pid, deadline):
        with contextlib.suppress(*_GONE, PermissionError):
            kind, _, rest = os.readlink(path).partition(":[")
            if kind == "socket":
                inodes.add(int(rest[:-1]))
    return inodes


def end(
    holders: Collection[Holder],
    holds: Callable[[int], bool],
    reason: str,
    deadline: float,
    log: Callable[[str], None],
) -> bool:
    """Kill processes of tasks, and report each in the output of its task.

    Args:
        holders: Processes to kill.
        holds: Function that returns whether a pid still holds the descriptor, as the pid may have been
            reused.
        reason: Reason for the log: what the processes held.
        deadline: Time limit for their ends, on the clock `time.monotonic`.
        log: Log of this program.

    Returns:
        Whether one of them has ended.
    """
    has_ended = False
    killed: list[int] = []
    with contextlib.ExitStack() as opened:
        for holder in holders:
            try:
                process = os.pidfd_open(holder.pid)
            except ProcessLookupError:
                has_ended = True
                continue
            opened.callback(os.close, process)
            if not holds(holder.pid):
                has_ended = True
                continue
            text = f"{holder} was killed: {reason}"
            log(text)
            _report(holder, text, log)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            killed.append(process)
        for process in killed:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            has_ended |= bool(poll.poll(max(deadline - time.monotonic(), 0) * 1000))
    return has_ended


def end_below(place: str, ledger: Ledger, deadline: float, log: Callable[[str], None]) -> None:
    """Kill the processes of other tasks that hold a directory below the place of an ended task's directories.

    The paths of their descriptors show nothing: the directories were moved out of the mounts by which they
    were opened (d_path in fs/d_path.c). A file handle leads from each to its path in this mount namespace.

    Args:
        place: Path of the directory, whose name is the container of the ended task.
        ledger: Ledger of this host, which names its tasks.
        deadline: Time limit, on the clock `time.monotonic`.
        log: Log of this program.

    Raises:
        OSError: The file system of the place has no file handles, or this process may not use them.
    """
    top = os.open(place, os.O_DIRECTORY)
    try:
        _is_below(top, top)  # raises where no handle can be used

        def holds(pid: int) -> bool:
            return any(_refers_below(path, top) for path in _directories_of(pid, deadline))

        while time.monotonic() < deadline:
            tasks = processes_of_others(ledger, os.path.basename(place))
            holders = [holder_of(pid, tasks) for pid in sorted(tasks) if holds(pid)]
            if not holders:
                return
            reason = "it held a directory of the sandbox of a task that had ended, which could not be sealed"
            if not end(holders, holds, reason, min(deadline, time.monotonic() + _DEATH_S), log):
                return
    finally:
        os.close(top)


def _descriptors_of(pid: int, deadline: float) -> Iterator[str]:
    """Yield the paths of a process' descriptors. Each thread is searched: it may have descriptors of its own."""
    with contextlib.suppress(*_GONE, PermissionError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            directory = f"/proc/{pid}/task/{thread}/fd"
            with contextlib.suppress(*_GONE), os.scandir(directory) as entries:
                for entry in entries:
                    if time.monotonic() > deadline:
                        return
                    yield entry.path


def _directories_of(pid: int, deadline: float) -> Iterator[str]:
    """Yield the paths of a process' descriptors, working directories and root directories, which may be
    directories.
    """
    with contextlib.suppress(*_GONE, PermissionError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield f"/proc/{pid}/task/{thread}/cwd"
            yield f"/proc/{pid}/task/{thread}/root"
    yield from _descriptors_of(pid, deadline)


def _refers_below(path: str, top: int) -> bool:
    """Return whether a link of a process in /proc refers to a directory below an open one."""
    try:
        if not os.readlink(path).startswith("/"):
            return False  # a pipe, a socket or the like
        fd = os.open(path, _PATH)
    except OSError:  # gone, no directory, or on a file system that fails
        return False
    try:
        return _device_of(fd) == _device_of(top) and _is_below(fd, top)
    finally:
        os.close(fd)


def _device_of(fd: int) -> int | None:
    """Return the device of an open directory; None if its file system fails."""
    try:
        return os.fstat(fd).st_dev
    except OSError:
        return None


def _is_below(fd: int, top: int) -> bool:
    """Return whether a directory is another one or below it; both are open, and on one file system."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", _MAX_HANDLE_SZ, 0) + bytes(_MAX_HANDLE_SZ))
    mount = ctypes.c_int()
    if _libc.name_to_handle_at(fd, b"", handle, ctypes.byref(mount), _AT_EMPTY_PATH) < 0:
        raise _error("name_to_handle_at")
    again = _libc.open_by_handle_at(top, handle, _PATH)
    if again < 0:
        if ctypes.get_errno() == errno.ESTALE:
            return False  # it was removed
        raise _error("open_by_handle_at")
    try:
        at, path = os.readlink(f"/proc/self/fd/{top}"), os.readlink(f"/proc/self/fd/{again}")
        return path == at or path.startswith(f"{at}/")
    finally:
        os.close(again)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


def _report(holder: Holder, text: str, log: Callable[[str], None]) -> None:
    """Append a line to the errors of the task that a process belongs to."""
    assert holder.holding is not None
    traces = holder.holding.traces
    shown = any(trace.kind == "rootfs" for trace in traces)  # its output is shown from a sandbox below
    for sandbox in (trace.what for trace in traces if trace.kind == "sandbox"):
        try:
            with Sandbox(sandbox) as place, os.fdopen(place.append("stderr", linked=shown), "wb") as stream:
                stream.write(f"[mesos-gpu] {text}\n".encode())
        except OSError as error:
            log(f"the line above cannot be written to the output of {holder.holding.task}: {error}")
