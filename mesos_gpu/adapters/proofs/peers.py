"""Who is at the other end of a Unix socket, by the word of the kernel; and whether that is a task of ours.

A task may run as a user of this host who has more right than the task: it has no name here. What tells a task is what
it cannot change: its uid, if that is of the pool; its cgroup; its PID namespace; and whose child it is. What its
environment says counts against it only.
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

_EXTENSION: Final = "mesos_gpu.local_peer"  # of scope["extensions"]
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
_WORDS: Final = 8  # of a command line, that are looked at


@dataclass(frozen=True, slots=True)
class LocalPeer:
    """The process that has connected.

    Attributes:
        pid, uid, gid: When it did.
        refused: Why it has no name here; "": it has.
    """

    pid: int
    uid: int
    gid: int
    refused: str = ""


def extension(peer: LocalPeer) -> dict[str, dict[object, object]]:
    """What an ASGI scope says of it, as its `extensions`."""
    return {_EXTENSION: {"peer": peer}}


def local_peer_in(extensions: Mapping[str, object]) -> LocalPeer | None:
    """Who has connected; None: this is no Unix socket."""
    local = extensions.get(_EXTENSION)
    peer = local.get("peer") if isinstance(local, dict) else None
    return peer if isinstance(peer, LocalPeer) else None


def local_peer_of(connection: socket.socket) -> LocalPeer | None:
    """Who has connected; None: this is no Unix socket.

    It reads a dozen files of /proc, once for each connection.
    """
    if connection.family != socket.AF_UNIX:
        return None
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(told)
    return LocalPeer(pid, uid, gid, _refused(connection, pid))


def _refused(connection: socket.socket, pid: int) -> str:
    if pid <= 0:
        return "its process cannot be seen from here, as that of a container"
    pidfd = _pidfd(connection)
    try:
        before = start_ticks(pid)
        reason = _task_by(pid)
        # A process id is used again: what was read is of who connected only if that one is still there.
        if before is None or start_ticks(pid) != before or (pidfd is not None and _has_ended(pidfd)):
            return "its process has ended"
        return reason
    except (OSError, ValueError) as error:
        return f"its process cannot be looked at ({error})"
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _pidfd(connection: socket.socket) -> int | None:
    """A descriptor of the process that has connected; None: this kernel has none to give."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return None


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _task_by(pid: int) -> str:
    """What shows that a process is a task, or in a container; "": nothing does."""
    if len(_status(pid, "NSpid").split()) != 1:
        return "its process is in a PID namespace of its own, as those of containers are"
    own = _cgroups(os.getpid())
    for each in _line_of(pid):
        foreign = [path for path in _cgroups(each) - own if _CGROUP.search(path)]
        if foreign:
            return f"its process is in the cgroup {min(foreign)}, as tasks are"
        if any(_MESOS.search(word) for word in _words(each, "cmdline")[:_WORDS]):
            return "its process comes from an executor or an agent of Mesos"
        if any(word.startswith(_MARKS) for word in _environment(each)):
            return "its environment is that of a task"
    return ""


def _line_of(pid: int) -> Iterator[int]:
    """A process, and those that it comes from, without this one and those above it."""
    above = set(_ancestors(os.getpid()))
    for each in _ancestors(pid):
        if each in above:
            return
        yield each


def _ancestors(pid: int) -> Iterator[int]:
    for _ in range(_MAX_ANCESTORS):
        if pid <= 1:
            return
        yield pid
        pid = int(_status(pid, "PPid"))
    raise ValueError("it has too many ancestors")


def _status(pid: int, field: str) -> str:
    """A line of /proc/PID/status (proc_pid_status(5)).

    Raises:
        ValueError: There is no such line.
    """
    start = f"{field}:"
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith(start):
            return line[len(start) :].strip()
    raise ValueError(f"/proc/{pid}/status has no {field}")


def _cgroups(pid: int) -> set[str]:
    """Paths in all hierarchies."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    return {line.split(":", 2)[2] for line in lines}


def _words(pid: int, name: str) -> list[bytes]:
    return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")


def _environment(pid: int) -> list[bytes]:
    """What can be seen of it: nothing, of another user's process, unless we are root."""
    try:
        return _words(pid, "environ")
    except PermissionError:
        return []
