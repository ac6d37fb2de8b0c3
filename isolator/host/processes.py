"""Trees of processes: find them, signal them, make sure that they are gone. Only /proc and system calls."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h


def become_subreaper() -> None:
    """Adopt every orphaned descendant: a process that forks twice or calls setsid stays in the tree.

    Raises:
        OSError: The kernel refused, or does not list children (CONFIG_PROC_CHILDREN): every tree would look empty.
    """
    with open(f"/proc/self/task/{os.getpid()}/children"):
        pass
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def not_adopting() -> Iterator[None]:
    """Adopt no orphans meanwhile: what a child leaves behind then is no descendant, and outlives this process.

    To be used before anything else is started that may leave orphans.
    """
    libc, adopts = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    try:
        yield
    finally:
        if adopts.value:
            become_subreaper()


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents before children (proc_tid_children(5))."""
    below: list[int] = []
    queue = [pid]
    while queue:
        for child in _children(queue.pop()):
            below.append(child)
            queue.append(child)
    return below


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children") as file,
            ):
                children += map(int, file.read().split())
    return children


def send(pids: Iterable[int], number: int) -> None:
    """Signal each that is still there and may be signalled; what may not must not save the others."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def handling(pids: Iterable[int], number: int) -> list[int]:
    """Find those that a signal does not end: they handle it, or block it to wait for it (proc_pid_status(5))."""
    bit, able = 1 << (number - 1), []
    for pid in pids:
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/status", "rb") as file,
        ):
            masks = (line.split()[1] for line in file if line.startswith((b"SigCgt:", b"SigBlk:")))
            if any(int(mask, 16) & bit for mask in masks):
                able.append(pid)
    return able


def reap(keep: int | None = None) -> None:
    """Collect adopted children that have ended; `keep` is left for whoever waits for it."""
    for pid in _children(os.getpid()):
        if pid != keep:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_descendants(timeout_s: float = 10.0) -> list[int]:
    """SIGKILL everything below this process and collect it.

    Returns:
        What is still there after `timeout_s` (in uninterruptible sleep); empty if all is gone.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    while True:
        left = descendants(os.getpid())
        if not left or time.monotonic() > deadline:
            return left
        send(left, signal.SIGKILL)
        reap()
        if descendants(os.getpid()):
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)


def of_task(task_id: str) -> list[int]:
    """Processes that carry MESOS_TASK_ID or MESOS_EXECUTOR_ID of the task in their environment."""
    marks = {f"{name}={task_id}".encode() for name in ("MESOS_TASK_ID", "MESOS_EXECUTOR_ID")}
    pids = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError),
            open(f"/proc/{living_thread(int(name))}/environ", "rb") as file,
        ):
            if marks & set(file.read().split(b"\0")):
                pids.append(int(name))
    return pids


def living_thread(pid: int) -> int:
    """A thread of a process by which /proc says what the process has; the process itself, if it has ended.

    Its first thread, of which the process has its number, may end before the others: then /proc/PID has neither
    mappings nor descriptors nor environment, and no cgroup of version 1; /proc/TID has them all (proc_pid_task(5)).
    """
    if not _is_zombie(pid):
        return pid
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        threads = map(int, os.listdir(f"/proc/{pid}/task"))
        return next((thread for thread in threads if not _is_zombie(thread)), pid)
    return pid


def kill_leftovers(task_id: str, timeout_s: float = 10.0) -> list[int]:
    """End what a dead executor left of its task; what would not die is returned."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = [pid for pid in of_task(task_id) if not _is_zombie(living_thread(pid))]
        if not left or time.monotonic() > deadline:
            return left
        send(left, signal.SIGKILL)
        time.sleep(0.02)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
