"""HTTP over a Unix socket, for requests."""

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

BASE = "http://localhost"  # that requests are for; the name is not looked up


def connect(path: Path, timeout_s: float | None = None) -> socket.socket:
    """A connection to a socket, however long its path is.

    Raises:
        OSError: Nothing listens there, or this user may not pass its directories.
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
    """Sends what a session is asked for `BASE` to a socket."""

    def __init__(self, path: Path) -> None:
        """Connect to nothing yet."""
        super().__init__()
        made = type("_Made", (_Connection,), {"path": path})
        self._pool = HTTPConnectionPool("localhost", maxsize=8)
        self._pool.ConnectionCls = made

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: Any = None,
    ) -> HTTPConnectionPool:
        """Give the one pool that there is."""
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None) -> str:
        """Give the path alone: no proxy stands in between."""
        return request.path_url

    def close(self) -> None:
        """Close its connections."""
        super().close()
        self._pool.close()
