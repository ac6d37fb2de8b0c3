"""Connections that begin with a TLS handshake: each has a time for it, and holds no place of those that are served.

asyncio's own server gives a handshake 60 s and bounds neither their number nor what waits in them. It can answer who
speaks plain HTTP with nothing but the end of the connection, and so it does who is refused by TLS: the alert that says
why is made, and dropped.
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
from mesos_gpu.api.http.bounds import Crowd, say

HANDSHAKE_S: Final = 10.0
MAX_HANDSHAKES: Final = 256  # at once; one more ends the oldest of the address that has most
CLOSE_S: Final = 5.0  # for the client's close_notify
PAUSE_S: Final = 1.0  # without descriptors
_HANDSHAKE: Final = b"\x16"  # the type of a TLS record with a ClientHello (RFC 8446, section 5.1)
_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = frozenset({errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH})
_PLAIN: Final = b"This port speaks HTTPS: say https:// instead of http://.\n"
_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_PLAIN), _PLAIN)
)
logger = logging.getLogger("mesos_gpu.tls")


class TlsListener:
    """Accepts on a socket that listens. All methods are called on the event loop."""

    def __init__(
        self,
        listener: socket.socket,
        context: Callable[[], ssl.SSLContext],
        protocol: Callable[[], asyncio.Protocol],
        crowd: Crowd,
    ) -> None:
        """Accept from now on.

        Args:
            listener: It is made non-blocking, and not closed.
            context: For the next handshake.
            protocol: What serves a connection after it.
            crowd: Limits of connections, which also give the limit of handshakes of one address.
        """
        listener.setblocking(False)
        self._listener, self._context, self._protocol = listener, context, protocol
        self._loop = asyncio.get_running_loop()
        self._crowd = crowd
        self._greeted: dict[asyncio.Task[None], str] = {}  # handshakes under way, with the key of each
        self._waiting: Waiters[asyncio.Task[None]] = Waiters()  # those that were not ended
        self._held: dict[asyncio.Task[None], socket.socket] = {}  # to be closed: no transport has them
        self._task = self._loop.create_task(self._accept())

    async def close(self) -> None:
        """Accept no more, and end what has not shaken hands."""
        tasks = [self._task, *self._greeted]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            await asyncio.sleep(0)  # an accept that finds a connection waits for nothing: others' turn
            try:
                connection, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in _LACKS:
                    say(f"connections cannot be taken: {error.strerror}; those that are open are served")
                    await asyncio.sleep(PAUSE_S)
                elif error.errno not in _GONE:
                    raise
                continue
            key = self._crowd.key_of(str(address[0]))
            self._make_room(key)
            task = self._loop.create_task(self._greet(connection, str(address[0])))
            self._greeted[task], self._held[task] = key, connection
            self._waiting.add(key, task)
            task.add_done_callback(self._end)

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

    def _end(self, task: asyncio.Task[None]) -> None:
        """Also of one that was cancelled before it began."""
        self._waiting.remove(self._greeted.pop(task), task)
        if task in self._held:
            self._held.pop(task).close()

    async def _greet(self, connection: socket.socket, address: str) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = await self._first_byte(connection)
                if first == _HANDSHAKE:
                    await self._shake_hands(connection, address)
                elif first:
                    await self._part(connection, _ANSWER)
        except (OSError, TimeoutError) as error:
            logger.debug("no TLS handshake with %s: %r", address, error)

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        keeps, own = _Keeps(self._context()), self._hand_on(connection)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=cast(ssl.SSLContext, keeps),
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or "no TLS that is taken here"
            say(f"a TLS handshake from {address} failed: {why}")
            await self._part(own, keeps.words())

    def _hand_on(self, connection: socket.socket) -> socket.socket:
        """Asyncio closes it from here on; another descriptor of it is ours, to say why it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._held[task] = connection.dup()
        return self._held[task]

    async def _first_byte(self, connection: socket.socket) -> bytes:
        """What the client begins with; it stays in the socket. b"": it has gone."""
        while True:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return connection.recv(1, socket.MSG_PEEK)
            readable = self._loop.create_future()
            self._loop.add_reader(connection, _set, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(connection)

    async def _part(self, connection: socket.socket, words: bytes) -> None:
        """Say why, and end. What the client still sends is read, or the reset would overtake the words."""
        await self._loop.sock_sendall(connection, words)
        connection.shutdown(socket.SHUT_WR)
        for _ in range(64):
            if not await self._loop.sock_recv(connection, 65536):
                break


class _Shaken(ssl.SSLObject):
    """A handshake that keeps its last words: asyncio throws away what is not sent when one fails."""

    outgoing: ssl.MemoryBIO
    words = b""

    def do_handshake(self) -> None:
        """Do as `ssl.SSLObject`."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.words = self.outgoing.read()
            raise


class _Keeps:
    """A context, as far as asyncio asks for one, that knows the handshake that was made of it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._made: _Shaken | None = None
        context.sslobject_class = _Shaken

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **more: Any) -> ssl.SSLObject:
        """Do as `ssl.SSLContext.wrap_bio`."""
        made = self._context.wrap_bio(incoming, outgoing, **more)
        assert isinstance(made, _Shaken)
        self._made, made.outgoing = made, outgoing
        return made

    def words(self) -> bytes:
        """The alert, if the handshake has failed."""
        return self._made.words if self._made else b""


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
