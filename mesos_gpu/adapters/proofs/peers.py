"""Peers of Unix sockets as the kernel identifies them, and detection of peers that are tasks.

A task may run as a user of this host with more rights than the task, so tasks get no name here. They are recognized by
what they cannot change: their uid, if it is of the pool; their cgroup; their PID namespace; and their ancestors. Their
environment can only count against them.
"""

import os
import re
import select
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.proc import start_ticks

_EXTENSION: Final = "mesos_gpu.local_peer"  # key in scope["extensions"]
_SO_PEERPIDFD: Final = 77  # asm-generic/socket.h, Linux 6.5
_CREDENTIALS: Final = struct.Struct("=iII")  # struct ucred: pid, uid, gid
_MAX_ANCESTORS: Final = 256
_CGROUP: Final = re.compile(
    r"(?:^|/)mesos(?:/|$|[_.]|-(?:agent|slave|executor))|/(?:docker|libpod|kubepods|crio|lxc)(?:[-/.]|$)"
)
_MESOS: Final = re.compile(
    rb"(?:^|[/.])(?:lt-)?(?:mesos-(?:agent|slave|containerizer|executor|default-executor|docker-executor)"
    rb"|mesos-gpu-(?:executor|monitor|keeper)|isolator\.(?:executor|node|runs|shares)[\w.]*)$"
)
_MARKS: Final = (b"MESOS_TASK_ID=", b"MESOS_EXECUTOR_ID=", b"MESOS_CONTAINER_NAME=")
_WORDS: Final = 8  # words of a command line that are examined


@dataclass(frozen=True, slots=True)
class LocalPeer:
    """The process that has connected.

    Attributes:
        pid, uid, gid: Ids of the process at the time of the connection.
        refused: Reason why it gets no name here; "" if it gets one.
    """

    pid: int
    uid: int
    gid: int
    refused: str = ""


def extension(peer: LocalPeer) -> dict[str, dict[object, object]]:
    """Return a peer as `extensions` of an ASGI scope."""
    return {_EXTENSION: {"peer": peer}}


def local_peer_in(extensions: Mapping[str, object]) -> LocalPeer | None:
    """Return the peer in the extensions of a scope; None if the connection is not a Unix socket."""
    local = extensions.get(_EXTENSION)
    peer = local.get("peer") if isinstance(local, dict) else None
    return peer if isinstance(peer, LocalPeer) else None


def local_peer_of(connection: socket.socket) -> LocalPeer | None:
    """Return the peer of a connection; None if it is not a Unix socket.

    Reads a dozen files of /proc, once for each connection.
    """
    if connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(credentials)
    return LocalPeer(pid, uid, gid, _refused(connection, pid))


def _refused(connection: socket.socket, pid: int) -> str:
    """Return why a process gets no name; "" if it gets one."""
    if pid <= 0:
        return "its process is not visible here, like those of containers"
    pidfd = _pidfd(connection)
    try:
        before = start_ticks(pid)
        reason = _task_evidence(pid)
        # Process ids are reused: the data belongs to the peer only if its process is still alive.
        if before is None or start_ticks(pid) != before or (pidfd is not None and _has_ended(pidfd)):
            return "its process has ended"
        return reason
    except (OSError, ValueError) as error:
        return f"its process cannot be examined ({error})"
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _pidfd(connection: socket.socket) -> int | None:
    """Return a pidfd of the peer; None if this kernel does not support it."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return None


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _task_evidence(pid: int) -> str:
    """Return the evidence that a process is a task or in a container; "" without evidence."""
    if len(_status(pid, "NSpid").split()) != 1:
        return "its process is in a PID namespace of its own, like those of containers"
    own = _cgroups(os.getpid())
    for ancestor in _processes_above(pid):
        foreign = [path for path in _cgroups(ancestor) - own if _CGROUP.search(path)]
        if foreign:
            return f"its process is in the cgroup {min(foreign)}, like those of tasks"
        if any(_MESOS.search(word) for word in _words(ancestor, "cmdline")[:_WORDS]):
            return "its process is a descendant of a Mesos executor or agent"
        if any(word.startswith(_MARKS) for word in _environment(ancestor)):
            return "its environment is that of a task"
    return ""


def _processes_above(pid: int) -> Iterator[int]:
    """Yield a process and its ancestors, up to the first that is also an ancestor of this process."""
    above = set(_ancestors(os.getpid()))
    for ancestor in _ancestors(pid):
        if ancestor in above:
            return
        yield ancestor


def _ancestors(pid: int) -> Iterator[int]:
    for _ in range(_MAX_ANCESTORS):
        if pid <= 1:
            return
        yield pid
        pid = int(_status(pid, "PPid"))
    raise ValueError("it has too many ancestors")


def _status(pid: int, field: str) -> str:
    """Return a field of /proc/PID/status (proc_pid_status(5)).

    Raises:
        ValueError: There is no such field.
    """
    start = f"{field}:"
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith(start):
            return line[len(start) :].strip()
    raise ValueError(f"/proc/{pid}/status has no {field}")


def _cgroups(pid: int) -> set[str]:
    """Return the paths of a process' cgroups in all hierarchies."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    return {line.split(":", 2)[2] for line in lines}


def _words(pid: int, name: str) -> list[bytes]:
    return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")


def _environment(pid: int) -> list[bytes]:
    """Return the environment of a process; empty if it may not be read, as only root may for other users."""
    try:
        return _words(pid, "environ")
    except PermissionError:
        return []
