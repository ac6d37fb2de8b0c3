"""A socket connected to the scheduler, by its transport (Unix socket, TCP or TLS)."""

import socket
from typing import Final
from urllib.parse import urlsplit

from mesos_gpu.cli.reach.reach import Reach

CONNECT_S: Final = 10.0


def netloc(reach: Reach) -> str:
    """Return the value of the `Host` header, without credentials of the URL."""
    return "localhost" if reach.socket else urlsplit(reach.url).netloc.rpartition("@")[2]


def path_at(reach: Reach, path: str) -> str:
    """Return the request path of a route, below the path of the scheduler's URL if a proxy adds one."""
    return path if reach.socket else urlsplit(reach.url).path + path


def connected(reach: Reach) -> socket.socket:
    """Connect to the scheduler, and verify its identity where the transport allows it.

    Raises:
        OSError: The scheduler does not answer, or its identity is wrong.
        BadConfiguration: A certificate file cannot be used.
    """
    if reach.socket:
        from mesos_gpu.cli.reach import unix_http  # imports requests

        return unix_http.connect(reach.socket, CONNECT_S)
    port = urlsplit(reach.url).port or (443 if reach.is_tls else 80)
    plain = socket.create_connection((reach.host, port), CONNECT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not reach.is_tls:
        return plain
    from mesos_gpu.adapters.tls.trust import Trust, client_context

    try:
        context = client_context(Trust(reach.cacert, reach.cert, reach.key))
        return context.wrap_socket(plain, server_hostname=reach.host)
    except BaseException:
        plain.close()
        raise
