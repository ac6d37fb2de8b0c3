"""Proof that what listens at a port is a task's: a port number alone names nobody.

The kernel says of each TCP socket in which cgroup of version 2 the listening socket was made (INET_DIAG_CGROUP_ID,
Linux 5.9); a task's processes are in one of their own (see `fence`). Of a connection that stands the very socket at its
other end is asked for, so that nobody can take the port between a look and the connection, nor share it by
SO_REUSEPORT. Sources: sock_diag(7), linux/inet_diag.h, net/ipv4/inet_diag.c.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from isolator.devices import cgroups
from mesos_gpu.errors import BadConfiguration

if TYPE_CHECKING:
    from mesos_gpu.model.jobs.port import PortBinding

PROOF: Final = "MESOS_GPU_PORT_PROOF"  # of the agent: "on", also if it is not set, or "off"
_NETLINK_SOCK_DIAG: Final = 4  # linux/netlink.h
_SOCK_DIAG_BY_FAMILY: Final = 20  # linux/sock_diag.h
_REQUEST, _DUMP = 0x1, 0x300  # NLM_F_REQUEST; NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_LISTEN: Final = 10  # TCP_LISTEN, linux/tcp_states.h
_ALL: Final = 0xFFFFFFFF  # of states; also INET_DIAG_NOCOOKIE
_CGROUP_ID: Final = 21  # INET_DIAG_CGROUP_ID
_HEAD: Final = struct.Struct("=IHHII")  # struct nlmsghdr
_ANSWER: Final = struct.Struct("=BBBB48s5I")  # struct inet_diag_msg
_ATTRIBUTE: Final = struct.Struct("=HH")  # struct nlattr
_CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
_SIOCGIFADDR: Final = 0x8915  # linux/sockios.h
_MOST_ANSWER: Final = 1 << 16


class NotOfTask(OSError):
    """What answers at a port was not proved to be the task's; nothing may be sent to it."""


class Found(NamedTuple):
    """A TCP socket, as the kernel describes it. `cgroup`: the id of the one that it was made in; None: the kernel does
    not say, as of a connection that is not accepted yet."""

    state: int
    uid: int
    cgroup: int | None


@dataclass(frozen=True, slots=True)
class Listeners:
    """Which sockets are a task's. Close it when the task has ended: its file keeps the task's network.

    Attributes:
        cgroups: Ids of the cgroups that only processes of the task are in; None: the operator has set the proof off.
        problem: Why no socket can be proved to be the task's; "": they can.
        network: A file of the task's network namespace; -1: it is that of whoever asks.
        inside: Of a task on a bridge, the port that it listens at by the host's port that leads there; None: it is on
            the host's network.
    """

    cgroups: frozenset[int] | None
    problem: str = ""
    network: int = -1
    inside: Mapping[int, int] | None = None

    def to_words(self) -> tuple[str, str]:
        """Two words for `of_words`, for a process that is in the task's network."""
        return "off" if self.cgroups is None else ",".join(map(str, sorted(self.cgroups))), self.problem

    @classmethod
    def of_words(cls, ids: str, problem: str) -> Self:
        """The inverse of `to_words`."""
        return cls(None if ids == "off" else frozenset(map(int, ids.split(",") if ids else ())), problem)

    def close(self) -> None:
        """Let go of the task's network."""
        if self.network >= 0:
            os.close(self.network)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread in the task's network for a block: sockets that are made there belong to it.

        Raises:
            OSError: It cannot be entered; this thread is where it was.
        """
        if self.network < 0:
            yield
            return
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self.network)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)

    def place_of(self, port: int, *, ipv6: bool) -> tuple[str, int]:
        """Where in the task's network a port of the host leads: loopback, or the container's own address.

        Raises:
            NotOfTask: Nowhere.
        """
        if self.inside is None:
            return "::1" if ipv6 else "127.0.0.1", port
        if port not in self.inside:
            raise NotOfTask(errno.EACCES, f"port {port} of the host does not lead to the job")
        with self.entered():
            addresses = own_addresses()
        if not addresses:
            raise NotOfTask(errno.EACCES, "the job's network has no address yet")
        return addresses[0], self.inside[port]

    def prove(self, line: socket.socket, port: int) -> None:
        """See that the other end of a connection within the task's network is the task's.

        Args:
            line: A socket that is connected, on which nothing was sent.
            port: As its user knows it.

        Raises:
            NotOfTask: Another process listens there, or there is no proof.
            OSError: The connection has ended, or the kernel cannot be asked.
        """
        if self.cgroups is None:
            return
        if self.problem:
            raise NotOfTask(
                errno.EACCES, f"it cannot be proved whether the job listens at port {port}: {self.problem}"
            )
        with self.entered():
            end = _other_end(line)
            if end is None or end.state == _LISTEN:
                raise ConnectionResetError(errno.ECONNRESET, "the connection was ended at once")
            # One that is not accepted yet belongs to a socket that still listens: its end would end the connection.
            holders = [end] if end.cgroup is not None else listening(line.getpeername()[1])
        if why := self._stranger(port, holders) or (
            "" if holders else f"nothing listens at port {port} any more"
        ):
            raise NotOfTask(errno.EACCES, why)

    def proved(self, ports: Collection[int]) -> tuple[tuple[int, ...], str]:
        """Return the ports at which the task listens and no other process does, and the problem of the others in words.

        The problem is "" if nothing listens at the others.

        Raises:
            OSError: The kernel cannot be asked.
        """
        if self.cgroups is None:
            return tuple(ports), ""
        if self.problem:
            return (), f"it cannot be proved at which ports the job listens: {self.problem}"
        good, problems = [], []
        with self.entered():
            for port in ports:
                inner = port if self.inside is None else self.inside.get(port)
                if inner is None:
                    problems.append(f"port {port} of the host does not lead to the job")
                    continue
                holders = listening(inner)
                if why := self._stranger(port, holders):
                    problems.append(why)
                elif holders:
                    good.append(port)
        return tuple(good), "; ".join(problems)

    def _stranger(self, port: int, holders: Collection[Found]) -> str:
        """Return which listener of a port is not the task's, in words; "" if there is none."""
        assert self.cgroups is not None
        for each in holders:
            if each.cgroup is None:
                return f"whose the socket at port {port} is, this kernel does not say: it must be Linux 5.9 or newer"
            if each.cgroup not in self.cgroups:
                return (
                    f"another process of the host, of uid {each.uid}, listens at port {port}, and not the job: end "
                    "that process, or run the job again, which gives it another port"
                )
        return ""


NOBODY: Final = Listeners(frozenset(), "the job has ended")


def is_wanted(own: Mapping[str, str]) -> bool:
    """Whether a host proves who listens: its operator has set off neither that nor all isolation, without which
    nothing tells its tasks apart.

    Raises:
        BadConfiguration: `MESOS_GPU_PORT_PROOF` is none of its values.
    """
    said = own.get(PROOF) or "on"
    if said not in ("on", "off"):
        raise BadConfiguration(f"{PROOF} is {said!r}", remedy="set it to on or off")
    return said == "on" and own.get("MESOS_GPU_ISOLATION") != "off"


def listeners_of(
    pid: int | None, own: Mapping[str, str], bindings: "Sequence[PortBinding] | None" = None
) -> Listeners:
    """Which sockets are a task's.

    Args:
        pid: Of its first process, as this one sees it; None: it has ended, or cannot be seen.
        own: The executor's environment.
        bindings: Of a container on a bridge; None: the task is on the host's network.

    Raises:
        BadConfiguration: `MESOS_GPU_PORT_PROOF` is none of its values.
    """
    proves, inside = is_wanted(own), None
    if bindings is not None:
        inside = {each.host_port: each.container_port for each in bindings if each.protocol == "tcp"}
    if pid is None:
        return Listeners(frozenset(), "its process cannot be seen", inside=inside)
    try:
        ids = _ids_of(pid) if proves else None
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC) if inside is not None else -1
    except OSError as error:
        return Listeners(frozenset(), f"its process cannot be seen: {error.strerror}", inside=inside)
    why = f"it has no cgroup of version 2 of its own; see mesos-gpu doctor, or set {PROOF}=off on its agent"
    return Listeners(ids, why if ids is not None and not ids else "", network, inside)


def _ids_of(pid: int) -> frozenset[int]:
    """Ids of the cgroup of a process and of those below it; empty if others are in it: it is this process' own, or
    above that. The id of a cgroup is the number of its inode (Linux 5.5)."""
    path, mine = cgroups.membership(pid).get("cgroup2", "/"), cgroups.membership().get("cgroup2", "/")
    mount = cgroups.mounted().get("cgroup2")
    if mount is None or f"{mine.rstrip('/')}/".startswith(f"{path.rstrip('/')}/"):
        return frozenset()
    return frozenset(os.stat(directory).st_ino for directory, _, _ in os.walk(mount / path.lstrip("/")))


def own_addresses() -> list[str]:
    """IPv4 addresses of the interfaces of this thread's network, without loopback ones."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                said = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            addresses.append(socket.inet_ntoa(said[20:24]))
    return [each for each in addresses if not each.startswith("127.")]


def _enter(network: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"the task's network cannot be entered: {os.strerror(number)}")


def listening(port: int) -> list[Found]:
    """All sockets that listen at a TCP port in the network of this thread, at whichever address.

    Raises:
        OSError: The kernel cannot be asked.
    """
    nobody = bytes(16)
    sockets: list[Found] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        sockets += _asked(family, 1 << _LISTEN, (port, nobody), (0, nobody), _DUMP)
    return sockets


def _other_end(line: socket.socket) -> Found | None:
    """The socket that a connection leads to, in the network of this thread; None: it is gone. It is one that listens
    if the connection is gone, and somebody listens there."""
    ends = [
        (end[1], socket.inet_pton(line.family, end[0].partition("%")[0]).ljust(16, b"\0"))
        for end in _ends(line)
    ]
    try:
        return next(iter(_asked(line.family, _ALL, ends[0], ends[1], 0)), None)
    except FileNotFoundError:
        return None


def _ends(line: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    """The other end of a connection, and this one."""
    return line.getpeername()[:2], line.getsockname()[:2]


def _asked(
    family: int, states: int, source: tuple[int, bytes], target: tuple[int, bytes], flags: int
) -> list[Found]:
    """Ask the kernel for TCP sockets by their ports and addresses (struct inet_diag_req_v2)."""
    order = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, states)
    ports = struct.pack("!HH", source[0], target[0])
    order += ports + source[1] + target[1] + struct.pack("=III", 0, _ALL, _ALL)
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as kernel:
        head = _HEAD.pack(_HEAD.size + len(order), _SOCK_DIAG_BY_FAMILY, _REQUEST | flags, 1, 0)
        kernel.sendto(head + order, (0, 0))
        sockets: list[Found] = []
        while True:
            for kind, body in _messages(kernel.recv(_MOST_ANSWER)):
                if kind == _DONE:
                    return sockets
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, f"sockets cannot be listed (sock_diag): {os.strerror(number)}")
                sockets.append(_found(body))
            if not flags & _DUMP:
                return sockets


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEAD.size:
        length, kind, *_ = _HEAD.unpack_from(data)
        yield kind, data[_HEAD.size : length]
        data = data[(length + 3) & ~3 :]


def _found(body: bytes) -> Found:
    _, state, _, _, _, _, _, _, uid, _ = _ANSWER.unpack_from(body)
    rest, cgroup = body[_ANSWER.size :], None
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        if kind == _CGROUP_ID:
            cgroup = struct.unpack_from("=Q", rest, _ATTRIBUTE.size)[0]
        rest = rest[max((length + 3) & ~3, _ATTRIBUTE.size) :]
    return Found(state, uid, cgroup)
