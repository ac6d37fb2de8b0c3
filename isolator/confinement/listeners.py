"""Proof that a listening socket belongs to a task; the port number alone does not show which process listens.

For each TCP socket the kernel reports the cgroup v2 in which the socket was created (INET_DIAG_CGROUP_ID, Linux 5.9),
and the processes of a task have a cgroup of their own (see `fence`). For an established connection the kernel is asked
for the exact socket at the other end. Another process therefore cannot take the port between a check and the
connection, nor share the port by SO_REUSEPORT. Sources: sock_diag(7), linux/inet_diag.h, net/ipv4/inet_diag.c.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from isolator.devices import cgroups
from mesos_gpu.errors import BadConfiguration

if TYPE_CHECKING:
    from mesos_gpu.model.jobs.port import PortBinding

PROOF: Final = "MESOS_GPU_PORT_PROOF"  # environment variable of the agent: "on" (default) or "off"
_NETLINK_SOCK_DIAG: Final = 4  # linux/netlink.h
_SOCK_DIAG_BY_FAMILY: Final = 20  # linux/sock_diag.h
_REQUEST, _DUMP = 0x1, 0x300  # NLM_F_REQUEST; NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_LISTEN: Final = 10  # TCP_LISTEN, linux/tcp_states.h
_ALL: Final = 0xFFFFFFFF  # mask of all TCP states; also INET_DIAG_NOCOOKIE
_CGROUP_ID: Final = 21  # INET_DIAG_CGROUP_ID
_HEAD: Final = struct.Struct("=IHHII")  # struct nlmsghdr
_ANSWER: Final = struct.Struct("=BBBB48s5I")  # struct inet_diag_msg
_ATTRIBUTE: Final = struct.Struct("=HH")  # struct nlattr
_CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
_SIOCGIFADDR: Final = 0x8915  # linux/sockios.h
_MAX_ANSWER: Final = 1 << 16


class NotOfTask(OSError):
    """A server at a port that was not proved to be the task's, so nothing may be sent to it."""


class Found(NamedTuple):
    """A TCP or UDP socket as reported by the kernel.

    Attributes:
        state: TCP state (linux/tcp_states.h).
        uid: User id of the socket's owner.
        cgroup: Id of the cgroup v2 in which the socket was created; None if the kernel does not report one, as for a
            connection that has not been accepted yet.
        inode: Inode number of the socket, as in /proc/PID/fd; 0 if no descriptor refers to it.
        address: IP address to which the socket is bound; "" for all addresses.
    """

    state: int
    uid: int
    cgroup: int | None
    inode: int = 0
    address: str = ""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Proof of which sockets belong to a task. The caller must close it when the task has ended, because its
    descriptor keeps the task's network namespace alive.

    Attributes:
        cgroups: Ids of the cgroups that contain only processes of the task; None if the operator has set the
            proof off.
        problem: Reason why no socket can be proved to be the task's; "" if sockets can be proved.
        network: Descriptor of the task's network namespace; -1 if the task is in the caller's namespace.
        inside: Container port by host port, for a task on a bridge; None if the task is on the host's
            network.
    """

    cgroups: frozenset[int] | None
    problem: str = ""
    network: int = -1
    inside: Mapping[int, int] | None = None

    def to_words(self) -> tuple[str, str]:
        """Encode as two strings, which `of_words` decodes in a process that is in the task's network."""
        return "off" if self.cgroups is None else ",".join(map(str, sorted(self.cgroups))), self.problem

    @classmethod
    def of_words(cls, ids: str, problem: str) -> Self:
        """Decode the result of `to_words`."""
        return cls(None if ids == "off" else frozenset(map(int, ids.split(",") if ids else ())), problem)

    def close(self) -> None:
        """Close the descriptor of the task's network namespace."""
        if self.network >= 0:
            os.close(self.network)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread into the task's network namespace for a block; sockets made there belong to that namespace.

        Raises:
            OSError: The namespace cannot be entered; this thread has not moved.
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
        """Return the address and port in the task's network that a port of the host leads to.

        Args:
            port: TCP port of the host.
            ipv6: Whether the loopback address is ::1; a container's own address is IPv4 in any case.

        Raises:
            NotOfTask: The port does not lead to the task, or the task's network has no address yet.
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
        """Verify that the other end of a connection within the task's network belongs to the task.

        Args:
            line: Connected socket on which nothing has been sent.
            port: Port number for error messages, as the user knows it.

        Raises:
            NotOfTask: Another process listens at the port, or the proof is not possible.
            OSError: The connection has ended, or the kernel does not list sockets.
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
            # A connection that is not accepted yet belongs to its listening socket, which resets the
            # connection if it is closed.
            holders = [end] if end.cgroup is not None else listening(line.getpeername()[1])
        if why := self._stranger(port, holders) or (
            "" if holders else f"nothing listens at port {port} any more"
        ):
            raise NotOfTask(errno.EACCES, why)

    def proved(self, ports: Collection[int]) -> tuple[tuple[int, ...], str]:
        """Return the ports at which only the task listens, and why the other ports are not among them.

        The second value is a sentence for people, "" if nothing listens at the other ports.

        Raises:
            OSError: The kernel does not list sockets.
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
        """Return an error message on the first listener that is not the task's; "" if all are the task's."""
        assert self.cgroups is not None
        for listener in holders:
            if listener.cgroup is None:
                return f"the kernel does not report which task listens at port {port}: use Linux 5.9 or newer there"
            if listener.cgroup not in self.cgroups:
                return (
                    f"another process of the host, of uid {listener.uid}, listens at port {port} instead of the job: "
                    "end that process, or run the job again to get another port"
                )
        return ""


NOBODY: Final = Listeners(frozenset(), "the job has ended")


def is_wanted(own: Mapping[str, str]) -> bool:
    """Return whether this host must prove which task listens at a port.

    False if the operator has set off the proof, or all isolation: without isolation tasks have no cgroups of their own.

    Args:
        own: The executor's environment.

    Raises:
        BadConfiguration: `MESOS_GPU_PORT_PROOF` is neither "on" nor "off".
    """
    setting = own.get(PROOF) or "on"
    if setting not in ("on", "off"):
        raise BadConfiguration(f"{PROOF} is {setting!r}", remedy="set it to on or off")
    return setting == "on" and own.get("MESOS_GPU_ISOLATION") != "off"


def listeners_of(
    pid: int | None, own: Mapping[str, str], bindings: "Sequence[PortBinding] | None" = None
) -> Listeners:
    """Return the proof of which sockets belong to a task.

    Args:
        pid: Process id of the task's first process in this pid namespace; None if it has ended or is not visible.
        own: The executor's environment.
        bindings: Port bindings of a container on a bridge; None if the task is on the host's network.

    Raises:
        BadConfiguration: `MESOS_GPU_PORT_PROOF` is neither "on" nor "off".
    """
    proves, inside = is_wanted(own), None
    if bindings is not None:
        inside = {each.host_port: each.container_port for each in bindings if each.protocol == "tcp"}
    if pid is None:
        return Listeners(frozenset(), "the process of the job is not visible", inside=inside)
    try:
        ids = _ids_of(pid) if proves else None
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC) if inside is not None else -1
    except OSError as error:
        return Listeners(
            frozenset(), f"the process of the job is not visible: {error.strerror}", inside=inside
        )
    why = f"the job has no cgroup of version 2 of its own; see mesos-gpu doctor, or set {PROOF}=off on its agent"
    return Listeners(ids, why if ids is not None and not ids else "", network, inside)


def _ids_of(pid: int) -> frozenset[int]:
    """Return the ids of the cgroup v2 of a process and of all cgroups below it.

    Empty if the cgroup also contains the calling process, because it then does not belong to the task alone. The id of
    a cgroup is its inode number (Linux 5.5).
    """
    path, mine = cgroups.membership(pid).get("cgroup2", "/"), cgroups.membership().get("cgroup2", "/")
    mount = cgroups.mounted().get("cgroup2")
    if mount is None or f"{mine.rstrip('/')}/".startswith(f"{path.rstrip('/')}/"):
        return frozenset()
    return frozenset(os.stat(directory).st_ino for directory, _, _ in os.walk(mount / path.lstrip("/")))


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of the interfaces in this thread's network namespace, without loopback addresses."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(control, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # the interface has no IPv4 address
                continue
            addresses.append(socket.inet_ntoa(reply[20:24]))
    return [address for address in addresses if not address.startswith("127.")]


def _enter(network: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"the task's network cannot be entered: {os.strerror(number)}")


def listening(port: int) -> list[Found]:
    """Return all sockets that listen at a TCP port in this thread's network namespace, at any address.

    Raises:
        OSError: The kernel does not list sockets.
    """
    nobody = bytes(16)
    sockets: list[Found] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        sockets += _asked(family, 1 << _LISTEN, (port, nobody), (0, nobody), _DUMP)
    return sockets


def sockets_at(port: int) -> list[Found]:
    """Return the TCP and UDP sockets at a port in this thread's network namespace, in any state.

    Before Linux 6.8 the kernel does not list TCP sockets that are bound and neither listen nor are connected.

    Raises:
        OSError: The kernel does not list sockets.
    """
    nobody = bytes(16)
    sockets: list[Found] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        sockets += _asked(family, _ALL, (port, nobody), (0, nobody), _DUMP)
        with suppress(FileNotFoundError):  # a kernel without CONFIG_INET_UDP_DIAG
            sockets += _asked(family, _ALL, (port, nobody), (0, nobody), _DUMP, socket.IPPROTO_UDP)
    return sockets


def _other_end(line: socket.socket) -> Found | None:
    """Return the socket at the other end of a connection within this thread's network namespace.

    The kernel returns the listening socket of the port if the connection has been closed. None if neither exists.
    """
    ends = [
        (end[1], socket.inet_pton(line.family, end[0].partition("%")[0]).ljust(16, b"\0"))
        for end in _ends(line)
    ]
    try:
        return next(iter(_asked(line.family, _ALL, ends[0], ends[1], 0)), None)
    except FileNotFoundError:
        return None


def _ends(line: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the addresses of the peer and of this end of a connection."""
    return line.getpeername()[:2], line.getsockname()[:2]


def _asked(
    family: int,
    states: int,
    source: tuple[int, bytes],
    target: tuple[int, bytes],
    flags: int,
    protocol: int = socket.IPPROTO_TCP,
) -> list[Found]:
    """Return the sockets with these ports and addresses, by a request with struct inet_diag_req_v2."""
    order = struct.pack("=BBBBI", family, protocol, 0, 0, states)
    ports = struct.pack("!HH", source[0], target[0])
    order += ports + source[1] + target[1] + struct.pack("=III", 0, _ALL, _ALL)
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as kernel:
        head = _HEAD.pack(_HEAD.size + len(order), _SOCK_DIAG_BY_FAMILY, _REQUEST | flags, 1, 0)
        kernel.sendto(head + order, (0, 0))
        sockets: list[Found] = []
        while True:
            for kind, body in _messages(kernel.recv(_MAX_ANSWER)):
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
    family, state, _, _, ends, _, _, _, uid, inode = _ANSWER.unpack_from(body)
    rest, cgroup = body[_ANSWER.size :], None
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        if kind == _CGROUP_ID:
            cgroup = struct.unpack_from("=Q", rest, _ATTRIBUTE.size)[0]
        rest = rest[max((length + 3) & ~3, _ATTRIBUTE.size) :]
    return Found(state, uid, cgroup, inode, _source(family, ends))


def _source(family: int, ends: bytes) -> str:
    """Return the address to which a socket is bound, of its ends (struct inet_diag_sockid); "" for all addresses."""
    address = ends[4:8] if family == socket.AF_INET else ends[4:20]
    return socket.inet_ntop(family, address).removeprefix("::ffff:") if any(address) else ""
