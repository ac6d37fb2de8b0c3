"""A TLS connection shared by two threads: one reads while the other writes.

OpenSSL allows one call of a connection at a time, whatever its direction. A reading call also processes messages of TLS
itself, such as the session tickets after a handshake; a concurrent write would end the connection, or never be sent.
"""

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from typing import Final

_READ: Final = select.POLLIN
_WRITE: Final = select.POLLOUT


class SharedTls:
    """A connection with at most one call of OpenSSL at a time. One thread may read, and one may write.

    A thread that has to wait lets the other thread call. The methods are those of a socket.

    Args:
        line: Connection after its handshake; its timeout is kept.
    """

    def __init__(self, line: ssl.SSLSocket) -> None:
        self._line, self._timeout_s = line, line.gettimeout()
        self._turn = threading.Lock()  # held during a call of OpenSSL
        line.settimeout(0)  # non-blocking, so that no call waits while it holds the lock

    def recv(self, size: int) -> bytes:
        """Wait for bytes, and return at most `size` of them; b"" after the peer has ended the connection.

        Raises:
            OSError: The connection is lost, or nothing comes in time.
        """
        deadline = self._deadline()
        while True:
            with self._turn:
                try:
                    return self._line.recv(size)
                except ssl.SSLWantReadError:
                    events = _READ
                except ssl.SSLWantWriteError:
                    events = _WRITE
            self._await(events, deadline)

    def sendall(self, data: bytes) -> None:
        """Send bytes; the timeout applies to each part that is sent at once.

        Raises:
            OSError: The connection is lost, or nothing can be sent in time.
        """
        view = memoryview(data)
        while view:
            view = view[self._send(view) :]

    def _send(self, piece: memoryview) -> int:
        deadline = self._deadline()
        while True:
            with self._turn:
                try:
                    return self._line.send(piece)
                except ssl.SSLWantReadError:
                    # A part of a TLS message has arrived, and its rest must be read next. This thread waits for it
                    # with the lock held, because otherwise the other thread could read it first.
                    self._await(_READ, deadline)
                    continue
                except ssl.SSLWantWriteError:
                    pass
            self._await(_WRITE, deadline)

    def pending(self) -> int:
        """Return the number of bytes that can be read without the socket."""
        with self._turn:
            return self._line.pending()

    def shutdown(self, how: int) -> None:
        """Shut down a direction of the socket. TLS still processes what arrives, unlike after `SSLSocket.shutdown`."""
        socket.socket.shutdown(self._line, how)

    def close(self) -> None:
        """End the connection, and wake a waiting thread."""
        with contextlib.suppress(OSError):  # it has ended already
            self.shutdown(socket.SHUT_RDWR)
        with self._turn:
            self._line.close()

    def settimeout(self, timeout_s: float | None) -> None:
        """Set how long later calls wait; without a timeout they wait until the connection ends."""
        self._timeout_s = timeout_s

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket."""
        self._line.setsockopt(level, option, value)

    def fileno(self) -> int:
        """Return the descriptor of the socket; -1 after `close`."""
        return self._line.fileno()

    @property
    def family(self) -> int:
        """Address family of the socket."""
        return self._line.family

    def _deadline(self) -> float | None:
        return None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def _await(self, events: int, deadline: float | None) -> None:
        """Wait until the socket is ready.

        Raises:
            OSError: It is not ready in time, or is closed.
        """
        poll = select.poll()
        try:
            poll.register(self._line, events)
        except ValueError as error:
            raise OSError(errno.EBADF, "the connection is closed") from error
        left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left_ms):
            raise TimeoutError("the peer did not answer in time")
