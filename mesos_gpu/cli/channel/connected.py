"""A connection to the scheduler, by the way in which it is reached, before anything is said."""

import socket
from typing import Final
from urllib.parse import urlsplit

from mesos_gpu.cli.reach.reach import Reach

CONNECT_S: Final = 10.0


def netloc(reach: Reach) -> str:
    """What a `Host` says: no name and no password that stand in the address."""
    return "localhost" if reach.socket else urlsplit(reach.url).netloc.rpartition("@")[2]


def path_at(reach: Reach, path: str) -> str:
    """Where a route is, at a scheduler whose address may have a path, as behind a proxy."""
    return path if reach.socket else urlsplit(reach.url).path + path


def connected(reach: Reach) -> socket.socket:
    """Connect, and see who is there where that can be seen.

    Raises:
        OSError: Nobody is, or somebody else.
        BadConfiguration: A file of certificates cannot be used.
    """
    if reach.socket:
        from mesos_gpu.cli.reach import unix_http  # brings requests

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
