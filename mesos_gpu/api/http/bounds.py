"""What one client may take of the HTTP server: time for a request's head, bytes of it, connections of all.

uvicorn bounds the pause between requests only. Without these a client that sends a byte now and then, or nothing,
holds a connection for ever, and a few thousand of them all descriptors of the process.
"""

import asyncio
import logging
import resource
import time
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mesos_gpu.adapters.tls.peer import Peer, extension, peer_of

HEAD_S: Final = 10.0  # from the connection, or the first byte of a further request, to the end of its head
MOST_HEAD: Final = 1 << 16  # bytes
MOST_CONNECTIONS: Final = 1000
_KEPT: Final = 128  # descriptors for all else: the state, the master, agents, logs
_SAY_S: Final = 10.0  # between two lines that say the same
logger = logging.getLogger("mesos_gpu.api")


def connections() -> int:
    """How many are served at once: as many as there are descriptors for, of which all that may be had are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        soft = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(min(MOST_CONNECTIONS, soft - _KEPT), 8)


class Bounded(HttpToolsProtocol):
    """A connection of a client. `limit_concurrency` of the configuration is how many there may be."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Take what uvicorn makes a protocol with."""
        super().__init__(*arguments, **more)
        self._most, self.limit_concurrency = (
            self.limit_concurrency,
            None,
        )  # uvicorn's own keeps connections open
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0  # bytes, until its end
        self.peer: Peer | None = None  # who has proved to be at the other end, by a certificate

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or say that there are too many."""
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("ssl_object"))
        if self._most is not None and len(self.connections) > self._most:
            say(f"more than {self._most} connections: further ones are refused")
            self._refuse("503 Service Unavailable")
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that is over."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head are counted."""
        if self.transport.is_closing():
            return
        if self._timer is not None:
            self._head += len(data)
            if self._head > MOST_HEAD + (1 << 18):  # with the beginning of a body, which one read may bring
                self._refuse("431 Request Header Fields Too Large")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A further request; the application sees who has proved to send it."""
        super().on_message_begin()
        if self.peer is not None:
            self.scope["extensions"] = extension(self.peer)
        if self._timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """Stop the timer: the request's head came in time."""
        self._stop_timer()
        super().on_headers_complete()

    def retire(self, answer_s: float) -> None:
        """End when what is being answered is, or after that time."""
        self.shutdown()
        if not self.transport.is_closing():
            self.loop.call_later(answer_s, self.transport.close)

    def _expect_head(self) -> None:
        self._head = 0
        self._timer = self.loop.call_later(HEAD_S, self._refuse, "408 Request Timeout")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: str) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.write(
                f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode()
            )
            self.transport.close()


_said: Final[dict[str, float]] = {}


def say(text: str) -> None:
    """Warn, of the same not more than once in a while."""
    now = time.monotonic()
    if now - _said.get(text, -_SAY_S) >= _SAY_S:
        _said[text] = now
        logger.warning("%s", text)


def on_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio cannot tell anybody else; a lack of descriptors as one line, not as a traceback a second."""
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in str(context.get("message")):
        say(f"connections cannot be taken: {error.strerror}; those that are open are served")
    elif isinstance(error, ValueError) and "_start_serving" in str(context.get("handle")):
        logger.debug(
            "the server stopped before it tried again to take connections"
        )  # 1 s after the lack of them
    else:
        loop.default_exception_handler(context)
