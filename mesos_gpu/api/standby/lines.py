"""WebSocket connections to a standby scheduler: frames of channels are forwarded to the leader and back."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from mesos_gpu.api.http.door import CHANNELS
from mesos_gpu.api.http.guard import ascii_names, csrf_problem, host_problem
from mesos_gpu.api.standby.passing import Leader
from mesos_gpu.wire.channel.frames import MAX_FRAME

_CONNECT_S: Final = 5.0
_NOT_ALLOWED, _AWAY, _GONE = 1008, 1013, 1001  # RFC 6455, section 7.4.1, and the registry of its close codes


class Lines:
    """ASGI application that forwards WebSocket connections. The leader checks a channel's secret.

    Args:
        leader: Function that returns the leader; None if no scheduler leads.
        names: Names by which clients may call this host.
        tls: TLS context by which the leader is verified; None for plain HTTP.
    """

    def __init__(
        self, leader: Callable[[], Leader | None], names: Collection[str], tls: ssl.SSLContext | None = None
    ) -> None:
        self._leader, self._names, self._tls = leader, ascii_names(names), tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the connection, or refuse it."""
        line = WebSocket(scope, receive, send)
        leader = self._leader()
        if leader is None or not self._is_allowed(scope):
            await line.close(_NOT_ALLOWED)  # before it is accepted: 403
            return
        try:
            async with self._opened(leader, scope) as other:
                await line.accept(other.subprotocol)
                await _forward(line, other)
        except (OSError, TimeoutError, WebSocketException):
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await line.close(_AWAY)

    def _is_allowed(self, scope: Scope) -> bool:
        """Return whether a connection is to a channel, under a name of this host, and not from another web page."""
        scheme = "https" if scope["scheme"] == "wss" else "http"
        as_request = {**scope, "method": "POST", "scheme": scheme}
        is_channel = scope["path"].startswith(CHANNELS)
        return is_channel and host_problem(scope, self._names) is None and csrf_problem(as_request) is None

    def _opened(self, leader: Leader, scope: Scope) -> connect:
        """Return the connection to the leader for a client's connection, with the client's proof."""
        shown = Headers(scope=scope).getlist("authorization")
        url = leader.url.replace("http", "ws", 1) + quote(scope["path"])
        return connect(
            url,
            ssl=self._tls if url.startswith("wss:") else None,
            additional_headers=[("Authorization", proof) for proof in shown],
            subprotocols=[Subprotocol(protocol) for protocol in scope.get("subprotocols") or []] or None,
            compression=None,
            max_size=MAX_FRAME,
            max_queue=4,
            open_timeout=_CONNECT_S,
            close_timeout=1,
            proxy=None,
        )


async def _forward(line: WebSocket, other: ClientConnection) -> None:
    """Forward frames both ways until one side disconnects; then close the other one."""
    ways = [asyncio.ensure_future(_to_leader(line, other)), asyncio.ensure_future(_to_client(line, other))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await line.close(_GONE)


async def _to_leader(line: WebSocket, other: ClientConnection) -> None:
    with contextlib.suppress(WebSocketDisconnect, WebSocketException, RuntimeError, KeyError):
        while True:
            await other.send(await line.receive_bytes())


async def _to_client(line: WebSocket, other: ClientConnection) -> None:
    with contextlib.suppress(WebSocketDisconnect, WebSocketException, RuntimeError):
        async for message in other:
            if isinstance(message, bytes):
                await line.send_bytes(message)
