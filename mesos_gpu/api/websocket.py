"""WebSocket connection whose peer may neither occupy the event loop, nor fill memory, nor keep the connection open
without reading.

Parsing a frame in Python costs some 50 µs whatever its size. 256 KiB that asyncio reads at once may be 40,000 frames.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

MAX_FRAMES: Final = 8  # parsed in one turn of the event loop
MAX_FRAGMENTS: Final = 64  # of one message
UNREAD_S: Final = 20.0  # for a peer to read the rest when its connection ends
_SIZES: Final = {
    126: 2,
    127: 8,
}  # bytes of an extended size, by the value of the 7-bit size (RFC 6455, section 5.2)
_MASK: Final = 4  # bytes


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that parses a few frames in each turn of its peer, and nothing while a message waits to be taken."""

    def __init__(
        self,
        *arguments: Any,
        take_turn: Callable[[str, Callable[[], None]], None],
        key_of: Callable[[asyncio.Transport], str],
        **more: Any,
    ) -> None:
        """Initialize the protocol as uvicorn does.

        Args:
            arguments: Positional arguments of uvicorn.
            take_turn: Function that calls another one in a turn of a key.
            key_of: Function that returns the key of a connection.
            more: Keyword arguments of uvicorn.
        """
        super().__init__(*arguments, **more)
        self._take_turn, self._key_of, self._key = take_turn, key_of, ""
        self._held = bytearray()  # received and not parsed yet
        self._left = 0  # bytes of the frame at the beginning of `_held` that are to be parsed
        self._has_asked = False  # whether a turn has been requested

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Determine the key of the connection; the HTTP request has been read already."""
        super().connection_made(transport)
        self._key = self._key_of(self.transport)

    def data_received(self, data: bytes) -> None:
        """Store received data and stop reading until it is parsed."""
        if not self.handshake_initiated:
            super().data_received(data)  # the request, which was bounded as HTTP
            return
        self._held += data
        self.transport.pause_reading()
        self._go_on()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message, and go on parsing when the queue is empty."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._go_on()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; after a close go on parsing, as the answer to it is awaited."""
        await super().send(message)
        if self.close_sent:
            self._go_on()

    def handle_ping(self) -> None:
        """Answer a ping, unless the peer reads nothing: of several, one answer is enough (RFC 6455, section 5.5.3)."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Frame) -> None:
        """Add a fragment to a message; end the connection if there are too many, as empty ones have no size."""
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.conn.send_close(CloseCode.MESSAGE_TOO_BIG)
            self.handle_parser_exception()

    def keepalive_timeout(self) -> None:
        """End the connection at once: closing it would wait for a peer that does not read."""
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Give the peer time to read the rest."""
        super().on_task_complete(task)
        self.loop.call_later(UNREAD_S, self.transport.abort)

    def _go_on(self) -> None:
        """Parse held data in the next turn of the key, or resume reading if there is no data."""
        if self._has_asked or self.read_paused:
            return
        if self._held:
            self._has_asked = True
            self._take_turn(self._key, self._parse)
        else:
            self.transport.resume_reading()

    def _parse(self) -> None:
        """Parse a few frames; then continue in a later turn."""
        self._has_asked = False
        piece = b"" if self.transport.is_closing() else self._next_frames()
        if piece:
            super().data_received(piece)
            self._go_on()
        else:
            self.transport.resume_reading()  # no more than a part of a header is held

    def _next_frames(self) -> bytes:
        """Remove and return the bytes of a few frames; the last one may be incomplete behind its header."""
        end = 0
        for _ in range(MAX_FRAMES):
            self._left = self._left or _frame_bytes(self._held, end)
            step = min(self._left, len(self._held) - end)
            self._left -= step
            end += step
            if self._left or not step:
                break
        piece = bytes(self._held[:end])
        del self._held[:end]
        return piece


def _frame_bytes(data: bytearray, begin: int) -> int:
    """Return the number of bytes of the frame that begins there; 0 if its header is incomplete."""
    if len(data) < begin + 2:
        return 0
    short = data[begin + 1] & 0x7F
    longer = _SIZES.get(short, 0)
    header = 2 + longer + (_MASK if data[begin + 1] & 0x80 else 0)
    if len(data) < begin + header:
        return 0
    return header + (int.from_bytes(data[begin + 2 : begin + 2 + longer]) if longer else short)
