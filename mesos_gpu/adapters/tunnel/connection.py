"""A connection at one end of a tunnel."""

import socket
from typing import Final

from mesos_gpu.wire.channel.mux import MAX_DATA, WINDOW, Mark, Record

_TOLD: Final = WINDOW // 4  # bytes that were taken before the other end is told


class Connection:
    """A socket, what is to be written to it, and what may be read of it."""

    def __init__(self, id: int, line: socket.socket) -> None:
        """Begin with one that is connected."""
        line.setblocking(False)
        self.id, self.socket = id, line
        self.may_send = WINDOW  # bytes that the other end takes
        self.is_broken = False
        self._held = bytearray()
        self._may_come, self._written = WINDOW, 0
        self._end_comes = self._end_came = self._has_ended = False

    @property
    def may_read(self) -> bool:
        """Whether what it reads can be sent."""
        return not self._has_ended and not self.is_broken and self.may_send > 0

    @property
    def waits_to_write(self) -> bool:
        """Whether something is held for it."""
        return bool(self._held) and not self.is_broken

    @property
    def is_over(self) -> bool:
        """Whether both sides have said all."""
        return self._has_ended and self._end_came

    def read(self) -> Record | None:
        """What it says; None: nothing now."""
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
        """Keep bytes for it.

        Raises:
            ValueError: There are more than it has said that it takes.
        """
        self._may_come -= len(data)
        if self._may_come < 0 or self._end_comes:
            raise ValueError(
                f"connection {self.id} gets more than {WINDOW} bytes ahead, or any after its end"
            )
        self._held += data

    def end(self) -> None:
        """After what is held, there is no more."""
        self._end_comes = True

    def flush(self) -> None:
        """Write what it takes."""
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
        """How many bytes the other end is to be told of; 0: it need not be told now."""
        if self._written < _TOLD:
            return 0
        count, self._written = self._written, 0
        self._may_come += count
        return count

    def close(self) -> None:
        """End it."""
        self.socket.close()
