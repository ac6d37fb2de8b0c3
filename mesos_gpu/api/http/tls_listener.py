"""Acceptance of TLS connections; handshakes have a time limit, and do not use up places of served connections.

asyncio's own server gives a handshake 60 s and limits neither their number nor the data buffered in them. It only
closes the connection of a client that speaks plain HTTP or whose handshake fails: the TLS alert is made, and dropped.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from mesos_gpu.access.rate import Waiters
from mesos_gpu.api.http.bounds import ConnectionLimits, say

HANDSHAKE_S: Final = 10.0
MAX_HANDSHAKES: Final = 256  # at once; a further one ends the oldest of the address with most handshakes
CLOSE_S: Final = 5.0  # for the client's close_notify
PAUSE_S: Final = 1.0  # when descriptors have run out
_HANDSHAKE: Final = b"\x16"  # the type of a TLS record with a ClientHello (RFC 8446, section 5.1)
_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = frozenset({errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH})
_PLAIN: Final = b"This port speaks HTTPS: use https:// instead of http://.\n"
_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_PLAIN), _PLAIN)
)
logger = logging.getLogger("mesos_gpu.tls")


class TlsListener:
    """Accepts TLS connections on a listening socket. All methods are called on the event loop."""

    def __init__(
        self,
        listener: socket.socket,
        context: Callable[[], ssl.SSLContext],
        protocol: Callable[[], asyncio.Protocol],
        crowd: ConnectionLimits,
    ) -> None:
        """Begin to accept connections.

        Args:
            listener: Listening socket, which is made non-blocking, and not closed.
            context: Function that returns the TLS context for the next handshake.
            protocol: Function that makes the protocol of a connection after its handshake.
            crowd: Limits of connections, which also give the limit of handshakes of one address.
        """
        listener.setblocking(False)
        self._listener, self._context, self._protocol = listener, context, protocol
        self._loop = asyncio.get_running_loop()
        self._crowd = crowd
        self._greeted: dict[asyncio.Task[None], str] = {}  # handshakes under way, with the key of each
        self._waiting: Waiters[asyncio.Task[None]] = Waiters()  # handshakes that have not been cancelled
        # Sockets that no transport owns, to be closed here.
        self._held: dict[asyncio.Task[None], socket.socket] = {}
        self._task = self._loop.create_task(self._accept())

    async def close(self) -> None:
        """Stop accepting, and cancel handshakes under way."""
        tasks = [self._task, *self._greeted]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        """Accept connections, and start a handshake for each, until cancelled."""
        while True:
            await asyncio.sleep(0)  # sock_accept does not yield if a connection waits
            try:
                connection, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in _LACKS:
                    say(f"cannot accept connections: {error.strerror}; open ones are still served")
                    await asyncio.sleep(PAUSE_S)
                elif error.errno not in _GONE:
                    raise
                continue
            key = self._crowd.key_of(str(address[0]))
            self._make_room(key)
            task = self._loop.create_task(self._handle(connection, str(address[0])))
            self._greeted[task], self._held[task] = key, connection
            self._waiting.add(key, task)
            task.add_done_callback(self._on_done)

    def _make_room(self, key: str) -> None:
        """End the oldest handshake of an address at its limit; if all are in use, that of the address with most."""
        most = self._crowd.most_of_address
        oldest = self._waiting.oldest(key) if most and self._waiting.count(key) >= most else None
        if oldest is None and len(self._waiting) >= MAX_HANDSHAKES:
            say(f"more than {MAX_HANDSHAKES} TLS handshakes at once: the oldest ones are ended")
            oldest = self._waiting.oldest_of_largest()
        if oldest is not None:
            self._waiting.remove(self._greeted[oldest], oldest)
            oldest.cancel()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """Remove a handshake that has ended, or was cancelled before it began."""
        self._waiting.remove(self._greeted.pop(task), task)
        if task in self._held:
            self._held.pop(task).close()

    async def _handle(self, connection: socket.socket, address: str) -> None:
        """Handle a new connection: shake hands, or tell a client that speaks plain HTTP to use TLS."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = await self._first_byte(connection)
                if first == _HANDSHAKE:
                    await self._shake_hands(connection, address)
                elif first:
                    await self._send_and_end(connection, _ANSWER)
        except (OSError, TimeoutError) as error:
            logger.debug("no TLS handshake with %s: %r", address, error)

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        """Shake hands and hand the connection to the protocol; send the alert if the handshake fails."""
        context, duplicate = _RecordingContext(self._context()), self._duplicate(connection)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=cast(ssl.SSLContext, context),
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or "no supported TLS"
            say(f"a TLS handshake from {address} failed: {why}")
            await self._send_and_end(duplicate, context.words())

    def _duplicate(self, connection: socket.socket) -> socket.socket:
        """Return a duplicate of a connection's descriptor, for sending the alert: asyncio closes the original."""
        task = asyncio.current_task()
        assert task is not None
        self._held[task] = connection.dup()
        return self._held[task]

    async def _first_byte(self, connection: socket.socket) -> bytes:
        """Return the first byte of a client without consuming it; b"" if the client has disconnected."""
        while True:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return connection.recv(1, socket.MSG_PEEK)
            readable = self._loop.create_future()
            self._loop.add_reader(connection, _set, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(connection)

    async def _send_and_end(self, connection: socket.socket, words: bytes) -> None:
        """Send the last bytes, and end. Remaining input is read, since a reset could discard the bytes on their way."""
        await self._loop.sock_sendall(connection, words)
        connection.shutdown(socket.SHUT_WR)
        for _ in range(64):
            if not await self._loop.sock_recv(connection, 65536):
                break


class _Handshake(ssl.SSLObject):
    """TLS handshake that keeps its unsent alert: asyncio discards it when a handshake fails."""

    outgoing: ssl.MemoryBIO
    words = b""

    def do_handshake(self) -> None:
        """Do a step of the handshake as `ssl.SSLObject` does; keep the alert if it fails."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.words = self.outgoing.read()
            raise


class _RecordingContext:
    """TLS context, as far as asyncio uses one, that remembers the handshake which was made from it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._made: _Handshake | None = None
        context.sslobject_class = _Handshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **more: Any) -> ssl.SSLObject:
        """Make a TLS object as `ssl.SSLContext.wrap_bio` does, and remember it."""
        handshake = self._context.wrap_bio(incoming, outgoing, **more)
        assert isinstance(handshake, _Handshake)
        self._made, handshake.outgoing = handshake, outgoing
        return handshake

    def words(self) -> bytes:
        """Return the alert of a failed handshake; b"" without one."""
        return self._made.words if self._made else b""


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
