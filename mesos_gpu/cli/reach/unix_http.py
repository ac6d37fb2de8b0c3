"""HTTP over a Unix socket, for the requests library."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from mesos_gpu.adapters.proofs.socket_paths import opened

BASE = "http://localhost"  # base URL of requests; the name is not resolved


def connect(path: Path, timeout_s: float | None = None) -> socket.socket:
    """Return a connection to a socket, regardless of the length of its path.

    Raises:
        OSError: Nothing listens there, or this user cannot access its directories.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with opened(path.parent) as directory:
            connection.connect(os.fspath(directory / path.name))
    except OSError:
        connection.close()
        raise
    return connection


class _Connection(HTTPConnection):
    path: Path

    def connect(self) -> None:
        timeout = self.timeout if isinstance(self.timeout, int | float) else None
        self.sock = connect(self.path, timeout)


class UnixAdapter(HTTPAdapter):
    """Adapter that sends requests for `BASE` to a socket; `path` is the path of the socket."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        connection_class = type("_Made", (_Connection,), {"path": path})
        self._pool = HTTPConnectionPool("localhost", maxsize=8)
        self._pool.ConnectionCls = connection_class

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: Any = None,
    ) -> HTTPConnectionPool:
        """Return the only connection pool."""
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None) -> str:
        """Return the path only, since no proxy is involved."""
        return request.path_url

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._pool.close()
