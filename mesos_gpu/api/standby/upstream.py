"""A connection to another scheduler for one request and its answer, which are forwarded in pieces as they come."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import httptools

CONNECT_S: Final = 3.0
#: For an answer, or its next piece: long polls end, and streams send something, earlier than this.
QUIET_S: Final = 90.0
_PIECE: Final = 1 << 16
#: TCP keepalive: a host that is cut off is given up after 10 s. One whose process is busy or paused still answers.
_PROBES: Final = {socket.TCP_KEEPIDLE: 4, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
_SENT_MS: Final = 10_000  # for the other host to acknowledge sent data
Headers = Sequence[tuple[bytes, bytes]]


class Upstream:
    """A connection for one request. Each method may raise `OSError` or `TimeoutError` when the connection has failed.

    Args:
        reader: Stream from the other scheduler.
        writer: Stream to the other scheduler.
        is_head: Whether the answer has no body, whatever its headers say.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_head: bool) -> None:
        self._reader, self._writer, self._is_head = reader, writer, is_head
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._has_head, self.is_whole = False, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Called by the parser."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note the end of the head. Called by the parser."""
        self._has_head = True
        self.is_whole = self._is_head

    def on_body(self, piece: bytes) -> None:
        """Store a piece of the body. Called by the parser."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Note the end of the answer. Called by the parser."""
        self.is_whole = True

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> tuple[int, Headers]:
        """Wait for the status and the headers."""
        while not self._has_head:
            await self._more()
        return self._parser.get_status_code(), self._headers

    async def body(self) -> AsyncIterator[bytes]:
        """Yield pieces of the body as they come; afterwards `is_whole` says whether the body was complete."""
        while True:
            while self._pieces:
                yield self._pieces.pop(0)
            if self.is_whole:
                return
            await self._more()

    async def _more(self) -> None:
        """Read and parse more of the answer."""
        async with asyncio.timeout(QUIET_S):
            data = await self._reader.read(_PIECE)
        if not data:
            raise ConnectionResetError("the leader closed the connection")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionAbortedError(f"the answer is not HTTP: {error}") from error

    async def close(self) -> None:
        """Close the connection, waiting at most 1 s."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()


async def opened(url: str, tls: ssl.SSLContext | None, *, is_head: bool) -> Upstream:
    """Connect to a scheduler. `is_head`: see `Upstream`.

    Raises:
        OSError, TimeoutError: It does not answer, or its certificate is not valid for its name.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(
            parts.hostname,
            parts.port or (443 if is_tls else 80),
            ssl=tls if is_tls else None,
            server_hostname=parts.hostname if is_tls else None,
        )
    _set_keepalive(writer.get_extra_info("socket"))
    return Upstream(reader, writer, is_head=is_head)


def _set_keepalive(connection: socket.socket) -> None:
    """Set TCP options by which the kernel ends a connection to an unreachable host."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SENT_MS)
