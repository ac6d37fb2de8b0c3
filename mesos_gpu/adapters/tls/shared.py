"""A TLS connection for two threads: one reads while the other writes.

OpenSSL takes one call of a connection at a time, whatever its direction. A call that reads also takes messages of TLS
itself, such as the session tickets after a handshake; a write meanwhile ends the connection, or is never sent.
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
    """A connection of which at most one call of OpenSSL is under way. One thread may read, and one may write.

    A thread that has to wait lets the other one have its turn. The methods are those of a socket.
    """

    def __init__(self, line: ssl.SSLSocket) -> None:
        """Take over a connection after its handshake, with its timeout."""
        self._line, self._timeout_s = line, line.gettimeout()
        self._turn = threading.Lock()  # to call OpenSSL
        line.settimeout(0)  # else a call would wait in its turn

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
        """Send bytes; the timeout is that of each part which is taken at once.

        Raises:
            OSError: The connection is lost, or nothing is taken in time.
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
                    # A part of a message of TLS has come, and nothing is read before its rest. That is waited for in
                    # this turn: the other thread could take it before this one waits.
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
        """End a direction of the socket. What still comes is read by TLS, unlike after `SSLSocket.shutdown`."""
        socket.socket.shutdown(self._line, how)

    def close(self) -> None:
        """End the connection; a thread that waits is woken first."""
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
            OSError: It is not in time, or is closed.
        """
        poll = select.poll()
        try:
            poll.register(self._line, events)
        except ValueError as error:
            raise OSError(errno.EBADF, "the connection is closed") from error
        left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left_ms):
            raise TimeoutError("the peer did not answer in time")
