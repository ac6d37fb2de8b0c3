"""Requests over TLS by a context of ours: no other authorities, no variables, nothing that turns verification off."""

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

Watch = Callable[[socket.socket], None]


class _Verifying(HTTPAdapter):
    """Transport whose TLS is as a context says."""

    def __init__(self, context: ssl.SSLContext, watch: Watch | None) -> None:
        self._context, self._watch = context, watch
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more, ssl_context=self._context)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        return super().proxy_manager_for(proxy, **more, ssl_context=self._context)

    def get_connection_with_tls_context(self, *arguments: Any, **more: Any) -> Any:
        """Give a pool whose connections are shown to who watches them."""
        pool: Any = super().get_connection_with_tls_context(*arguments, **more)
        if self._watch is not None and pool.ConnectionCls is type(pool).ConnectionCls:
            pool.ConnectionCls = _watched(pool.ConnectionCls, self._watch)
        return pool

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Add nothing: requests would add the authorities of its own bundle."""

    def send(self, request: Any, *arguments: Any, **more: Any) -> requests.Response:
        """Send as the context says, whatever REQUESTS_CA_BUNDLE or a caller's `verify` does."""
        return super().send(request, *arguments, **{**more, "verify": True, "cert": None})


def _watched(kind: Any, watch: Watch) -> Any:
    """A kind of connection of urllib3, whose sockets `watch` is given before anything is sent."""

    class Watched(kind):  # type: ignore[misc]
        def _new_conn(self) -> socket.socket:
            connected: socket.socket = super()._new_conn()
            watch(connected)
            return connected

    return Watched


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, the outermost first."""
    while error is not None:
        yield error
        # urllib3 names an error of TLS that it wraps there alone.
        yield from (each for each in error.args if isinstance(each, ssl.SSLError))
        error = error.__cause__ or error.__context__


def verify_by(session: requests.Session, context: ssl.SSLContext, watch: Watch | None = None) -> None:
    """Let a session's https:// requests be made with a context. `watch`: is given the socket of each connection of the
    session, of http:// ones, too, before anything is sent."""
    session.mount("https://", _Verifying(context, watch))
    if watch is not None:
        session.mount("http://", _Verifying(context, watch))
