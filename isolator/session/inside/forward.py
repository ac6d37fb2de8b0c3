"""Connections to ports of a task, made in the task: as its user, in its namespaces and behind its fence.

A connection is tried to the loopback addresses in the task's network, then to the other addresses of its interfaces. No
data is sent to a server that is not proved to be the task's.
"""

import socket
from typing import Final

from isolator.confinement.listeners import Listeners, NotOfTask, own_addresses
from mesos_gpu.adapters.tunnel.tunnel import Tunnel

CONNECT_S: Final = 5.0
_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def main(words: tuple[str, ...]) -> int:
    """Carry connections until the end of standard input.

    Args:
        words: Result of `Listeners.to_words` of the task, followed by the ports that may be connected to.
    """
    listeners, ports = Listeners.of_words(*words[:2]), frozenset(map(int, words[2:]))

    def dial(port: int) -> socket.socket:
        if port not in ports:
            raise OSError(0, f"port {port} is not among the ports requested at the start")
        return _dial(port, listeners)

    Tunnel(0, 1, dial=dial).run()
    return 0


def _dial(port: int, listeners: Listeners) -> socket.socket:
    first: OSError | None = None
    for family, address in (*_LOOPBACK, *((socket.AF_INET, own_address) for own_address in own_addresses())):
        line = socket.socket(family, socket.SOCK_STREAM)
        try:
            line.settimeout(CONNECT_S)
            line.connect((address, port))
            listeners.prove(line, port)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            line.close()
            first = error if isinstance(error, NotOfTask) else first or error
            continue
        return line
    raise first or OSError(0, "the task's network has no address")
