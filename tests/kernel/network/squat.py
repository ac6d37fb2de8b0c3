"""Runs as a task: try to be bound to each port of some ranges, by every way that a program has, and let the kernel
choose ports. Prints JSON: of each way the ports that were bound, as ranges, and under "chosen" those that the kernel
chose.

Arguments: ranges, as 31000-32000. Ports of other tasks among them may be in use: that is not counted as bound.
"""

import ctypes
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable

IPPROTO_MPTCP = 262
IP_BIND_ADDRESS_NO_PORT, IP_LOCAL_PORT_RANGE = 24, 51
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM
V4, V6 = socket.AF_INET, socket.AF_INET6

Option = tuple[int, int, int]


def bound(
    family: int, kind: int, address: str, port: int, options: Iterable[Option] = (), protocol: int = 0
) -> int:
    """Return the port that a socket is bound to, and listens at if it can."""
    with socket.socket(family, kind, protocol) as made:
        for level, name, value in options:
            made.setsockopt(level, name, value)
        made.bind((address, port))
        if kind == TCP:
            made.listen()
        return int(made.getsockname()[1])


def connected_from(port: int) -> int:
    """Return the source port of a datagram socket that connects: it is bound by that."""
    with socket.socket(V4, UDP) as made:
        made.setsockopt(socket.SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        made.bind(("127.0.0.1", port))
        made.connect(("127.0.0.1", 9))
        return int(made.getsockname()[1])


def chosen_between(first: int, last: int) -> int:
    """Return the port that the kernel chooses within the socket's own range of ports (Linux 6.3)."""
    with socket.socket(V4, TCP) as made:
        made.setsockopt(socket.SOL_IP, IP_LOCAL_PORT_RANGE, last << 16 | first)
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def listening_unbound(family: int) -> int:
    with socket.socket(family, TCP) as made:
        made.listen()
        return int(made.getsockname()[1])


REUSE = ((socket.SOL_SOCKET, socket.SO_REUSEADDR, 1), (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1))
ONLY_V6 = ((socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1),)
#: Each gets a port, and returns the one that was bound.
WAYS: dict[str, Callable[[int], int]] = {
    "tcp 0.0.0.0": lambda port: bound(V4, TCP, "0.0.0.0", port),
    "tcp 127.0.0.1": lambda port: bound(V4, TCP, "127.0.0.1", port),
    "tcp 127.9.9.9": lambda port: bound(V4, TCP, "127.9.9.9", port),
    "tcp ::": lambda port: bound(V6, TCP, "::", port),
    "tcp ::1": lambda port: bound(V6, TCP, "::1", port),
    "tcp :: only": lambda port: bound(V6, TCP, "::", port, ONLY_V6),
    "tcp mapped": lambda port: bound(V6, TCP, "::ffff:127.0.0.1", port),
    "tcp shared": lambda port: bound(V4, TCP, "0.0.0.0", port, REUSE),
    "tcp shared ::": lambda port: bound(V6, TCP, "::", port, REUSE),
    "mptcp": lambda port: bound(V4, TCP, "0.0.0.0", port, protocol=IPPROTO_MPTCP),
    "mptcp ::": lambda port: bound(V6, TCP, "::", port, protocol=IPPROTO_MPTCP),
    "udp 0.0.0.0": lambda port: bound(V4, UDP, "0.0.0.0", port),
    "udp ::": lambda port: bound(V6, UDP, "::", port),
    "udp mapped": lambda port: bound(V6, UDP, "::ffff:127.0.0.1", port),
    "udp shared": lambda port: bound(V4, UDP, "0.0.0.0", port, REUSE),
    "connect from it": connected_from,
}


def _choices(ranges: list[tuple[int, int]]) -> list[int]:
    """Return ports that the kernel chose."""
    ports = [bound(V4, kind, "0.0.0.0", 0) for kind in (TCP, UDP) for _ in range(200)]
    ports += [listening_unbound(family) for family in (V4, V6) for _ in range(200)]
    ports += [connected_from(0) for _ in range(50)]
    for first, last in ranges:
        ports.append(chosen_between(first, last))
    return ports


def _in_user_namespace(port: int) -> int:
    """Bind as root of a new user namespace; the kernel may refuse to create one."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        got = 0
        try:
            if not ctypes.CDLL(None).unshare(CLONE_NEWUSER):
                got = bound(V4, TCP, "0.0.0.0", port)
        except OSError:
            pass
        os.write(writer, struct.pack("i", got))
        os._exit(0)
    got = struct.unpack("i", os.read(reader, 4))[0]
    os.wait()
    if not got:
        raise PermissionError(1, "refused")
    return int(got)


def main() -> None:
    ranges = [(int(first), int(last)) for first, _, last in (each.partition("-") for each in sys.argv[1:])]
    ports = [port for first, last in ranges for port in range(first, last + 1)]
    result = {name: _spans(port for port in ports if _is_bound(way, port)) for name, way in WAYS.items()}
    result["user namespace"] = _spans(port for port in ports[::100] if _is_bound(_in_user_namespace, port))
    result["chosen"] = _spans(sorted(set(_choices(ranges))))
    print(json.dumps(result))


def _spans(ports: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last port of each contiguous row."""
    spans: list[tuple[int, int]] = []
    for port in ports:
        if spans and port == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], port
        else:
            spans.append((port, port))
    return spans


def _is_bound(way: Callable[[int], int], port: int) -> bool:
    try:
        return way(port) == port
    except OSError:
        return False


if __name__ == "__main__":
    main()
