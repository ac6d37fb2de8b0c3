"""Trees of processes: find, signal and kill them. Uses only /proc and system calls."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from mesos_gpu.adapters.proc import start_ticks

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
_PF_FORKNOEXEC: Final = 0x40  # linux/sched.h: forked, and no program executed since
#: Part of argv of processes that Python's multiprocessing executes.
_OF_MULTIPROCESSING: Final = b"\0from multiprocessing."
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.2


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
    """Do not adopt orphans for a block: what a child leaves behind then is no descendant, and outlives this
    process.

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
    """Return all processes below `pid`, parents before children (proc_tid_children(5))."""
    below: list[int] = []
    queue = [pid]
    while queue:
        for child in children(queue.pop()):
            below.append(child)
            queue.append(child)
    return below


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it has ended."""
    pids: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children") as file,
            ):
                pids += map(int, file.read().split())
    return pids


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists and may be signalled; others are skipped."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class _Traits(NamedTuple):
    """Properties of a process that decide whether the process gets a signal.

    Attributes:
        parent: Process id of its parent.
        is_worker: Whether it is part of its parent's program.
        handles: Whether it handles the signal, or blocks the signal to wait for it.
        ignores: Whether it ignores the signal.
    """

    parent: int
    is_worker: bool
    handles: bool
    ignores: bool


def handling(pids: Iterable[int], number: int) -> list[int]:
    """Return the programs that a signal does not end: they handle it, or block it to wait for it.

    A worker of a program that handles the signal is not among them: a process that was forked and has
    executed no program, or one of Python's multiprocessing. It may have inherited the handler, and the
    program decides about it. Sources: proc_pid_status(5), proc_pid_stat(5); multiprocessing/spawn.py of
    CPython.
    """
    return _programs(_traits(pids, number))


def _programs(traits: Mapping[int, _Traits]) -> list[int]:
    return [pid for pid, each in traits.items() if each.handles and not _has_handling_program(each, traits)]


def _has_handling_program(worker: _Traits, traits: Mapping[int, _Traits]) -> bool:
    while worker.is_worker and worker.parent in traits:
        worker = traits[worker.parent]
        if worker.handles:
            return True
    return False


def _traits(pids: Iterable[int], number: int) -> dict[int, _Traits]:
    """Return the traits of the processes that have not ended."""
    read = ((pid, _traits_of(pid, number)) for pid in pids)
    return {pid: traits for pid, traits in read if traits is not None}


def _traits_of(pid: int, number: int) -> _Traits | None:
    thread = living_thread(pid)
    try:
        with open(f"/proc/{thread}/stat", errors="replace") as file:
            state, parent, *fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{thread}/status", "rb") as status:
            words = [line.split() for line in status if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:"))]
        with open(f"/proc/{thread}/cmdline", "rb") as arguments:
            is_worker = bool(int(fields[4]) & _PF_FORKNOEXEC) or _OF_MULTIPROCESSING in arguments.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in "ZX":
        return None
    blocks, ignores, catches = (bool(int(mask, 16) >> (number - 1) & 1) for _, mask in words)
    return _Traits(int(parent), is_worker, blocks or catches, ignores)


def eldest(pids: Iterable[int]) -> int:
    """Return the process that began first among those without a parent in `pids`; 0 if `pids` is empty."""
    traits = _traits(pids, signal.SIGTERM)
    tops = ((start_ticks(pid) or 0, pid) for pid, each in traits.items() if each.parent not in traits)
    return min(tops, default=(0, 0))[1]


def terminate(
    tree: Callable[[], Iterable[int]], first: int, grace_s: float, has_ended: Callable[[], bool]
) -> None:
    """End a task's processes by SIGTERM; return when the task has ended, or the grace period is over.

    SIGTERM goes to the programs that handle it (see `handling`). While one of these lives, the others live:
    they may serve it, as a pipe's reader or a worker does. Processes above all of these, and the first
    process, are stopped meanwhile if SIGTERM would end them: a shell begins no further line of its script.
    When no program that got SIGTERM is left, all others get it, and the first process last, because
    containers end with it.

    Args:
        tree: Function that returns the processes of the task, ended ones included.
        first: First process of the task; ignored if `tree` does not return it.
        grace_s: Seconds until SIGKILL, which the caller sends to what is left.
        has_ended: Function that returns whether the task has ended.
    """
    deadline, pause_s = time.monotonic() + grace_s, _MIN_PAUSE_S
    traits = _traits(tree(), signal.SIGTERM)
    signalled = set(_programs(traits))
    above = {*_above(signalled, traits), first} & traits.keys()
    stopped = {pid for pid in above if not traits[pid].handles and not traits[pid].ignores}
    send(stopped, signal.SIGSTOP)
    send(signalled, signal.SIGTERM)
    waited_for, last = signalled, stopped & {first}
    while (left_s := deadline - time.monotonic()) > 0:
        waited_for = {pid for pid in waited_for if is_alive(pid)}
        if not waited_for:
            if has_ended():
                return
            alive = {pid for pid in tree() if is_alive(pid)}
            others = alive - last
            send(others - signalled, signal.SIGTERM)
            send(others & stopped - signalled, signal.SIGCONT)
            if not others:
                _end_held(last & alive)
            signalled = signalled | others
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, _MAX_PAUSE_S)


def _above(pids: set[int], traits: Mapping[int, _Traits]) -> set[int]:
    """Return the processes that are above some of `pids` and below none of them."""
    above: set[int] = set()
    for pid in pids:
        chain: list[int] = []
        while (pid := traits[pid].parent) in traits and pid not in pids:
            chain.append(pid)
        if pid not in pids:
            above.update(chain)
    return above


def _end_held(first: Iterable[int]) -> None:
    """End a first process that is stopped and that SIGTERM would end.

    The init of a pid namespace gets SIGKILL, as the kernel gives signals no default action there
    (pid_namespaces(7)).
    """
    for pid in first:
        send([pid], signal.SIGKILL if _is_init(pid) else signal.SIGTERM)
        send([pid], signal.SIGCONT)


def _is_init(pid: int) -> bool:
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError),
        open(f"/proc/{pid}/status", "rb") as file,
    ):
        numbers = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), [])
        return len(numbers) > 1 and numbers[-1] == b"1"
    return False


def is_alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    return not _is_zombie(living_thread(pid))


def children_of_tasks() -> list[int]:
    """Return the children of this process that belong to tasks: those of other sessions.

    The launcher begins a session, and nothing that it starts can enter this process' own session. Children of
    this session are programs that this process runs for itself, for example to call the driver, and whose end
    it waits for.
    """
    own, pids = os.getsid(0), list[int]()
    for pid in children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) != own:
                pids.append(pid)
    return pids


def reap(keep: int | None = None, *, of_tasks: bool = False) -> None:
    """Reap children that have ended.

    Args:
        keep: Child that is left for the code that waits for it.
        of_tasks: Whether only children of tasks are reaped.
    """
    for pid in children_of_tasks() if of_tasks else children(os.getpid()):
        if pid != keep:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_descendants(timeout_s: float = 10.0) -> list[int]:
    """Send SIGKILL to everything below this process, and reap it.

    Returns:
        Processes that still exist after `timeout_s` (in uninterruptible sleep); empty if all are gone.
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
    """Return the processes whose environment has MESOS_TASK_ID or MESOS_EXECUTOR_ID of the task."""
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
    """Return a thread of a process whose files in /proc describe the process; the process itself if it has
    ended.

    The first thread, whose number is that of the process, may end before the others: then /proc/PID has
    neither mappings nor descriptors nor environment, and no cgroup of version 1; /proc/TID has them all
    (proc_pid_task(5)).
    """
    if not _is_zombie(pid):
        return pid
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        threads = map(int, os.listdir(f"/proc/{pid}/task"))
        return next((thread for thread in threads if not _is_zombie(thread)), pid)
    return pid


def kill_leftovers(task_id: str, timeout_s: float = 10.0) -> list[int]:
    """Kill processes that a dead executor left of its task; return those that survive."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = [pid for pid in of_task(task_id) if is_alive(pid)]
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
