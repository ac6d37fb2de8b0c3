"""Connections to ports of a task, made in the task: as its user, in its namespaces and behind its fence.

A port is looked for at the loopback addresses that the task sees, then at the other addresses of its interfaces.
"""

import fcntl
import socket
import struct
from typing import Final

from mesos_gpu.adapters.tunnel.tunnel import Tunnel

CONNECT_S: Final = 5.0
_SIOCGIFADDR: Final = 0x8915  # linux/sockios.h
_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def main(words: tuple[str, ...]) -> int:
    """Carry until the stream at standard input ends. `words`: the ports that may be connected to."""
    ports = frozenset(map(int, words))

    def dial(port: int) -> socket.socket:
        if port not in ports:
            raise OSError(0, "it was not asked for")
        return _dial(port)

    Tunnel(0, 1, dial=dial).run()
    return 0


def _dial(port: int) -> socket.socket:
    first: OSError | None = None
    for family, address in (*_LOOPBACK, *_own()):
        line = socket.socket(family, socket.SOCK_STREAM)
        try:
            line.settimeout(CONNECT_S)
            line.connect((address, port))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            line.close()
            first = first or error
            continue
        return line
    raise first or OSError(0, "there is no address")


def _own() -> list[tuple[socket.AddressFamily, str]]:
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
