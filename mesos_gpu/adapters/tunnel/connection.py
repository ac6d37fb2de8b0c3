"""Connection at one end of a tunnel."""

import socket
from typing import Final

from mesos_gpu.wire.channel.mux import MAX_DATA, WINDOW, Mark, Record

_TOLD: Final = WINDOW // 4  # written bytes after which the other end is credited


class Connection:
    """A socket with its write buffer and flow control.

    Args:
        id: Number of the connection in the tunnel.
        line: Socket that is connected.
    """

    def __init__(self, id: int, line: socket.socket) -> None:
        line.setblocking(False)
        self.id, self.socket = id, line
        self.may_send = WINDOW  # bytes that the other end accepts now
        self.is_broken = False
        self._held = bytearray()
        self._may_come, self._written = WINDOW, 0
        self._end_comes = self._end_came = self._has_ended = False

    @property
    def may_read(self) -> bool:
        """Whether data can be read from the socket and sent to the other end."""
        return not self._has_ended and not self.is_broken and self.may_send > 0

    @property
    def waits_to_write(self) -> bool:
        """Whether there is data to write to the socket."""
        return bool(self._held) and not self.is_broken

    @property
    def is_over(self) -> bool:
        """Whether both directions have ended."""
        return self._has_ended and self._end_came

    def read(self) -> Record | None:
        """Read from the socket. Return a record for the other end, or None if there is no data now."""
        try:
            data = self.socket.recv(min(self.may_send, MAX_DATA))
        except BlockingIOError:
            return None
        except OSError:
            self.is_broken = True
            return None
        if not data:
            self._has_ended = True
            return Record(Mark.END, self.id)
        self.may_send -= len(data)
        return Record(Mark.DATA, self.id, data)

    def hold(self, data: bytes) -> None:
        """Buffer bytes to be written to the socket.

        Raises:
            ValueError: The other end sends more than its window, or after its end.
        """
        self._may_come -= len(data)
        if self._may_come < 0 or self._end_comes:
            raise ValueError(
                f"connection {self.id} receives more than {WINDOW} bytes in advance, or data after its end"
            )
        self._held += data

    def end(self) -> None:
        """Shut the socket down for writing once the buffer is written."""
        self._end_comes = True

    def flush(self) -> None:
        """Write as much of the buffer as the socket accepts."""
        try:
            while self._held:
                count = self.socket.send(self._held)
                del self._held[:count]
                self._written += count
            if self._end_comes and not self._end_came:
                self._end_came = True
                self.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.is_broken = True

    def taken(self) -> int:
        """Return the number of bytes to credit to the other end; 0 if no credit is needed now."""
        if self._written < _TOLD:
            return 0
        count, self._written = self._written, 0
        self._may_come += count
        return count

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
