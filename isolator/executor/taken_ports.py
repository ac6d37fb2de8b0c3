"""Sockets at a task's ports that would keep it from binding them: found before its start, and ended or
reported.

A task may pass a socket on to another task (SCM_RIGHTS), and the socket then holds its port after the end of
the first task. Destroying such a socket (SOCK_DESTROY) does not release a port that was bound by its number,
and its holder can listen again (net/ipv4/tcp.c, `tcp_abort`). Therefore the processes of tasks that hold it
are killed; no other process is.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from isolator.confinement.listeners import PROOF, Found, is_wanted, sockets_at
from isolator.devices import cgroups
from isolator.devices.holders import Holder, end, holder_of, processes_of_others, sockets_of
from isolator.executor.verdicts import log
from isolator.gpus.ledger import Holding, Ledger
from isolator.host.not_started import NotStarted
from isolator.host.port_ranges import unbindable
from mesos_gpu.model.tasks.assignment import Outcome

END_S: Final = 30.0  # time limit for finding and ending the holders of sockets, in seconds


class Taken(NamedTuple):
    """A socket that keeps a port from being bound.

    Attributes:
        port: Port of the host.
        socket: The socket; None if the kernel does not list it.
        outlived: Whether the cgroup of the task that made it is gone.
    """

    port: int
    socket: Found | None
    outlived: bool = False


def vacate(ports: Collection[int], own: Mapping[str, str], ledger: Ledger, container: str) -> None:
    """Verify that no socket keeps a task from its ports, after killing holders of sockets that outlived other tasks.

    Args:
        ports: Ports of the host that Mesos gave to the task.
        own: The executor's environment.
        ledger: Ledger of this host, which names its tasks.
        container: Container of the task itself, which has started nothing yet.

    Raises:
        NotStarted: A port is taken. The host is at fault.
        BadConfiguration: `MESOS_GPU_PORT_PROOF` is neither "on" nor "off".
    """
    if not is_wanted(own):
        return
    deadline, before, address = time.monotonic() + END_S, frozenset[Taken](), _address_of(own)
    while taken := _taken(ports, address):
        tasks = processes_of_others(ledger, container)
        holders = _holders({_inode_of(item) for item in taken}, tasks, deadline)
        ended = [_end(item, _of_tasks(item, holders), deadline) for item in taken]
        # Two looks in a row must find the same: a probe of another executor holds a port for some microseconds.
        if time.monotonic() > deadline or (not any(ended) and not before.isdisjoint(taken)):
            first = min(taken, key=lambda item: item.port)
            holder_text = _words(holders.get(_inode_of(first), ())) or _unseen(_queuing(tasks, deadline))
            raise NotStarted(_problem(first, holder_text), Outcome(infrastructure=True))
        before = frozenset(taken)


def _address_of(own: Mapping[str, str]) -> str:
    """Return the address of loopback that this agent alone has on its machine; "" for an agent of any other address.

    Tasks of such an agent listen at its address, and programs of the machine at 127.0.0.1.
    """
    address = own.get("MESOS_AGENT_ENDPOINT", "").rpartition(":")[0]
    return address if address.startswith("127.") and address != "127.0.0.1" else ""


def _taken(ports: Iterable[int], address: str) -> list[Taken]:
    """Return the sockets that keep ports from being bound, except those of living tasks.

    Another agent of this machine may give the same port to its tasks, which listen at different addresses.

    Args:
        ports: Ports of the host.
        address: IP address at which the task listens; "" for all addresses.
    """
    taken: list[Taken] = []
    paths: Mapping[int, Path] | None = None
    for port in unbindable(ports):
        try:
            sockets = sockets_at(port)
        except OSError as error:
            log(f"sockets at port {port} cannot be listed (the task starts all the same): {error}")
            continue
        if not sockets:
            taken.append(Taken(port, None))
        for socket in sockets:
            if not socket.inode:
                continue  # no process has it: the kernel removes it soon
            if address and socket.address not in ("", address):
                continue  # the task can listen beside it
            if paths is None:
                paths = _cgroups()
            path = paths.get(socket.cgroup or 0)
            if path is None or cgroups.OWN_ROOT not in path.parts:
                taken.append(Taken(port, socket, bool(paths) and socket.cgroup is not None and path is None))
    return taken


def _cgroups() -> dict[int, Path]:
    """Return the cgroups v2 of this host by their ids, which are their inode numbers; empty if none is mounted."""
    mount = cgroups.mounted().get("cgroup2")
    paths: dict[int, Path] = {}
    for directory, _, _ in os.walk(mount) if mount is not None else ():
        with contextlib.suppress(FileNotFoundError):
            paths[os.stat(directory).st_ino] = Path(directory)
    return paths


def _inode_of(taken: Taken) -> int:
    return taken.socket.inode if taken.socket is not None else 0


def _of_tasks(taken: Taken, holders: Mapping[int, Collection[Holder]]) -> list[Holder]:
    """Return the processes to kill for a socket: those of other tasks, if the socket outlived its own task."""
    if not taken.outlived:
        return []
    return [holder for holder in holders.get(_inode_of(taken), ()) if holder.holding is not None]


def _holders(
    inodes: Collection[int], tasks: Mapping[int, Holding], deadline: float
) -> dict[int, list[Holder]]:
    """Return the processes that hold sockets, by the inode numbers of the sockets.

    The search ends at the deadline, in seconds of `time.monotonic`: tasks can have very many descriptors.
    """
    holders: dict[int, list[Holder]] = {}
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))), key=lambda pid: pid not in tasks):
        for inode in sockets_of(pid, deadline) & set(inodes):
            holders.setdefault(inode, []).append(holder_of(pid, tasks))
    return holders


def _queuing(tasks: Mapping[int, Holding], deadline: float) -> list[Holder]:
    """Return the processes of tasks with a Unix socket in whose queue a descriptor waits (`scm_fds`, Linux 5.6)."""
    return [
        holder_of(pid, tasks)
        for pid in sorted(tasks)
        if any(b"scm_fds:" in line and int(line.split()[1]) for line in _lines_of(pid, deadline))
    ]


def _lines_of(pid: int, deadline: float) -> Iterator[bytes]:
    """Yield the lines that the kernel has on a process' descriptors (proc_pid_fdinfo(5)), until the deadline."""
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError),
        os.scandir(f"/proc/{pid}/fdinfo") as files,
    ):
        for file in files:
            if time.monotonic() > deadline:
                return
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield from Path(file.path).read_bytes().splitlines()


def _end(taken: Taken, holders: Collection[Holder], deadline: float) -> bool:
    """Kill processes of other tasks that hold a socket; return whether one of them has ended."""
    return end(
        holders,
        lambda pid: _inode_of(taken) in sockets_of(pid, deadline),
        f"it held a socket at port {taken.port} after the task that bound the port had ended, and another task got "
        "the port",
        deadline,
        log,
    )


def _words(holders: Collection[Holder]) -> str:
    """Return the holders in words."""
    return ", ".join(map(str, holders))


def _unseen(queuing: Collection[Holder]) -> str:
    """Return in words that no process shows the socket, and which processes may have it in a queue."""
    return "no process that can be seen" + (
        f" (it may wait in the queue of a Unix socket of {_words(queuing)})" if queuing else ""
    )


def _problem(taken: Taken, who: str) -> str:
    """Return why a port is taken, and the remedy.

    Args:
        who: Holders of the socket in words.
    """
    if taken.socket is None:
        return (
            f"port {taken.port} of this host, which Mesos gave to the task, is bound by a socket that the kernel does "
            "not list: use Linux 6.8 or newer with CONFIG_INET_UDP_DIAG, or end the jobs that run on this host"
        )
    if taken.outlived:
        remedy = (
            f"end the jobs of uid {taken.socket.uid} and those that share directories with them on this host"
        )
        what = "a socket of a task that has ended"
    else:
        remedy = (
            f"end that process, leave the port out of the agent's resources, or set {PROOF}=off on the agent"
        )
        what = "a socket of another process"
    return (
        f"port {taken.port} of this host, which Mesos gave to the task, is bound by {what}, of uid "
        f"{taken.socket.uid}, held by {who}: {remedy}"
    )
