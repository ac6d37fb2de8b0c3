"""HTTP sessions that use a given TLS context only, whatever environment variables or callers set."""

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

Watch = Callable[[socket.socket], None]


class _Verifying(HTTPAdapter):
    """Transport adapter that uses a given TLS context."""

    def __init__(self, context: ssl.SSLContext, watch: Watch | None) -> None:
        self._context, self._watch = context, watch
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more, ssl_context=self._context)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        return super().proxy_manager_for(proxy, **more, ssl_context=self._context)

    def get_connection_with_tls_context(self, *arguments: Any, **more: Any) -> Any:
        """Return a pool whose connections are passed to `watch`."""
        pool: Any = super().get_connection_with_tls_context(*arguments, **more)
        if self._watch is not None and pool.ConnectionCls is type(pool).ConnectionCls:
            pool.ConnectionCls = _watched(pool.ConnectionCls, self._watch)
        return pool

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: requests would add the authorities of its own bundle."""

    def send(self, request: Any, *arguments: Any, **more: Any) -> requests.Response:
        """Send with the given context, ignoring REQUESTS_CA_BUNDLE and a caller's `verify`."""
        return super().send(request, *arguments, **{**more, "verify": True, "cert": None})


def _watched(kind: Any, watch: Watch) -> Any:
    """Return a connection class of urllib3 that passes its sockets to `watch` before anything is sent."""

    class Watched(kind):  # type: ignore[misc]
        def _new_conn(self) -> socket.socket:
            connected: socket.socket = super()._new_conn()
            watch(connected)
            return connected

    return Watched


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the outermost first."""
    while error is not None:
        yield error
        # urllib3 has a wrapped error of TLS only in its arguments.
        yield from (argument for argument in error.args if isinstance(argument, ssl.SSLError))
        error = error.__cause__ or error.__context__


def verify_by(session: requests.Session, context: ssl.SSLContext, watch: Watch | None = None) -> None:
    """Make a session use a context for https:// requests.

    `watch`: called with the socket of each new connection, also of http:// ones, before anything is sent.
    """
    session.mount("https://", _Verifying(context, watch))
    if watch is not None:
        session.mount("http://", _Verifying(context, watch))
