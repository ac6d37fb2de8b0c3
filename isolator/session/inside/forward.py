"""Connections to ports of a task, made in the task: as its user, in its namespaces and behind its fence.

A port is looked for at the loopback addresses that the task sees, then at the other addresses of its interfaces.
"""

import errno
import fcntl
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from mesos_gpu.adapters.tunnel.tunnel import Tunnel

CONNECT_S: Final = (
    2.0  # of all addresses together, which are of this host; all connections of the tunnel wait for it
)
_AHEAD_S: Final = 0.1  # that an address has before the next one is tried beside it
_SIOCGIFADDR: Final = 0x8915  # linux/sockios.h
_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
Address = tuple[socket.AddressFamily, str]


def main(words: tuple[str, ...]) -> int:
    """Carry until the stream at standard input ends. `words`: the ports that may be connected to."""
    ports = frozenset(map(int, words))

    def dial(port: int) -> socket.socket:
        if port not in ports:
            raise OSError(0, "it was not asked for")
        return connected([*_LOOPBACK, *_own()], port)

    Tunnel(0, 1, dial=dial).run()
    return 0


def connected(addresses: Sequence[Address], port: int, within_s: float = CONNECT_S) -> socket.socket:
    """Connect to the first address that answers; one that is silent holds up the others for a moment only.

    Raises:
        OSError: None does: why the first that failed did.
    """
    deadline, left = time.monotonic() + within_s, list(addresses)
    failures: list[OSError] = []
    with selectors.DefaultSelector() as tried:
        try:
            while left or tried.get_map():
                if left and (error := _begin(tried, *left.pop(0), port)):
                    failures.append(error)
                    continue
                wait_s = deadline - time.monotonic()
                if wait_s <= 0:
                    failures.append(_error(errno.ETIMEDOUT))
                    break
                for key, _ in tried.select(min(wait_s, _AHEAD_S) if left else wait_s):
                    line = key.fileobj
                    assert isinstance(line, socket.socket)
                    tried.unregister(line)
                    if code := line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        line.close()
                        failures.append(_error(code))
                        continue
                    line.setblocking(True)
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return line
        finally:
            for key in list(tried.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
    raise failures[0] if failures else OSError(0, "there is no address")


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _begin(tried: selectors.BaseSelector, family: int, address: str, port: int) -> OSError | None:
    """Begin to connect; why that failed at once."""
    try:
        line = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:  # of a family that this kernel does not have
        return error
    if (code := line.connect_ex((address, port))) not in (0, errno.EINPROGRESS):
        line.close()
        return _error(code)
    tried.register(line, selectors.EVENT_WRITE)
    return None


def _own() -> list[Address]:
    """IPv4 addresses of the interfaces that the task sees."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                said = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            addresses.append((socket.AF_INET, socket.inet_ntoa(said[20:24])))
    return [each for each in addresses if not each[1].startswith("127.")]
