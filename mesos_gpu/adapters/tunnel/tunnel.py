"""Many connections over one byte stream in each direction (`wire.channel.mux`), by one thread.

Only `dial` may block. Only Python's standard library is used, and nothing is imported later, because this also runs in
tasks.
"""

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Final

from mesos_gpu.adapters.tunnel.connection import Connection
from mesos_gpu.wire.channel.mux import MAX_CONNECTIONS, WINDOW, Decoder, Mark, Record, encode

_FULL: Final = 1 << 18  # bytes that wait to be written, above which no connection is read
_SOME: Final = 1 << 16
_NO_MORE_FILES: Final = (errno.EMFILE, errno.ENFILE)
_PAUSE_S: Final = 0.05


class Tunnel:
    """An end of a tunnel: the one that listens, or the one that dials.

    Args:
        reads: Descriptor, of a pipe or a socket, from which records are read.
        writes: Descriptor to which records are written.
        dial: Function that connects to a port, or raises OSError; None if only the other end dials.
        refused: Callback for the reason why a connection could not be made at the other end.
    """

    def __init__(
        self,
        reads: int,
        writes: int,
        *,
        dial: Callable[[int], socket.socket] | None = None,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._reads, self._writes, self._dial, self._refused = reads, writes, dial, refused
        self._decoder, self._out = Decoder(), bytearray()
        self._connections: dict[int, Connection] = {}
        self._next = 0
        self._listeners: dict[socket.socket, int] = {}
        self._selector = selectors.DefaultSelector()
        for file in (reads, writes):
            os.set_blocking(file, False)

    def listen(self, listener: socket.socket, port: int) -> None:
        """Forward connections that a listening socket accepts to a port at the other end."""
        listener.setblocking(False)
        self._listeners[listener] = port

    def run(self) -> None:
        """Forward data until the stream ends.

        Raises:
            ValueError: The other end sends an invalid record.
            OSError: The stream cannot be read or written.
        """
        try:
            while self._step():
                pass
        finally:
            self._selector.close()
            for connection in self._connections.values():
                connection.close()

    def _step(self) -> bool:
        """Process all files that are ready. Return False at the end of the stream."""
        for connection in self._connections.values():
            connection.flush()
        self._send_credits()
        self._register()
        for key, events in self._selector.select():
            if key.fileobj == self._reads:
                data = _read(self._reads)
                if data == b"":
                    return False
                for record in self._decoder.feed(data or b""):
                    self._take(record)
            elif key.fileobj == self._writes and events & selectors.EVENT_WRITE:
                self._write()
            elif key.fileobj in self._listeners:
                self._accept(key.data)
            elif isinstance(key.data, Connection) and events & selectors.EVENT_READ:
                self._read_of(key.data)
        return True

    def _register(self) -> None:
        """Register exactly the files that can make progress with the selector."""
        required: dict[int | socket.socket, tuple[int, object]] = {self._reads: (selectors.EVENT_READ, None)}
        if self._out:
            required[self._writes] = (required.get(self._writes, (0, None))[0] | selectors.EVENT_WRITE, None)
        is_full = len(self._out) >= _FULL
        if not is_full and len(self._connections) < MAX_CONNECTIONS:
            required |= {listener: (selectors.EVENT_READ, listener) for listener in self._listeners}
        for connection in self._connections.values():
            events = (selectors.EVENT_READ if connection.may_read and not is_full else 0) | (
                selectors.EVENT_WRITE if connection.waits_to_write else 0
            )
            if events:
                required[connection.socket] = (events, connection)
        registered = {key.fileobj: key.events for key in self._selector.get_map().values()}
        for file in registered.keys() - required.keys():
            self._selector.unregister(file)
        for file, (events, data) in required.items():
            if file not in registered:
                self._selector.register(file, events, data)
            elif registered[file] != events:
                self._selector.modify(file, events, data)

    def _put(self, record: Record) -> None:
        self._out += encode(record)
        self._write()

    def _write(self) -> None:
        try:
            while self._out:
                del self._out[: os.write(self._writes, self._out[:_SOME])]
        except BlockingIOError:
            return

    def _accept(self, listener: object) -> None:
        assert isinstance(listener, socket.socket)
        try:
            line, _ = listener.accept()
        except OSError as error:
            if error.errno in _NO_MORE_FILES:
                time.sleep(_PAUSE_S)  # the connection still waits, and would be reported again at once
            return  # after other errors the client is gone
        self._next += 1
        self._connections[self._next] = Connection(self._next, line)
        self._put(Record(Mark.OPEN, self._next, number=self._listeners[listener]))

    def _read_of(self, connection: Connection) -> None:
        record = connection.read()
        if record is not None:
            self._put(record)
        self._drop_if_over(connection)

    def _take(self, record: Record) -> None:
        """Process a record from the other end."""
        if record.mark is Mark.OPEN:
            self._connect(record.id, record.number)
            return
        connection = self._connections.get(record.id)
        if connection is None:
            return  # the connection has ended here, which the other end does not know yet
        if record.mark is Mark.DATA:
            connection.hold(record.data)
        elif record.mark is Mark.END:
            connection.end()
        elif record.mark is Mark.CREDIT:
            connection.may_send = min(connection.may_send + record.number, WINDOW)
        else:
            if record.data:
                self._refused(record.data.decode(errors="replace"))
            connection.close()
            del self._connections[record.id]
            return
        connection.flush()
        self._drop_if_over(connection)

    def _connect(self, id: int, port: int) -> None:
        if self._dial is None or id in self._connections:
            raise ValueError("the other end may not open this connection")
        try:
            if len(self._connections) >= MAX_CONNECTIONS:
                raise OSError(0, f"there are {MAX_CONNECTIONS} connections already")
            line = self._dial(port)
        except OSError as error:
            why = f"port {port}: {error.strerror or error}"
            self._put(Record(Mark.CLOSED, id, why.encode(errors="replace")))
            return
        self._connections[id] = Connection(id, line)

    def _send_credits(self) -> None:
        for connection in list(self._connections.values()):
            if taken := connection.taken():
                self._put(Record(Mark.CREDIT, connection.id, number=taken))
            self._drop_if_over(connection)

    def _drop_if_over(self, connection: Connection) -> None:
        if connection.is_broken:
            self._put(Record(Mark.CLOSED, connection.id))
        if connection.is_broken or connection.is_over:
            connection.close()
            self._connections.pop(connection.id, None)


def _read(file: int) -> bytes | None:
    """Return available bytes: b"" at the end, None if there are none yet."""
    try:
        return os.read(file, _SOME)
    except BlockingIOError:
        return None
