"""Transfer of bytes between a command and its channel, each way at the pace of the receiver."""

import contextlib
import os
import queue
import threading
from typing import Final

from isolator.session.command import Command
from isolator.session.websocket import Lost, WebSocket
from mesos_gpu.wire.channel.frames import FROM_CLIENT, MAX_DATA, WINDOW, Frame, Kind, decode, encode

LAST_S: Final = 2.0  # wait for output that a command wrote before its end


class Carrier:
    """Transfer between a command and its client, by threads: one for each output, one for the input, one that
    waits for the end of the command; the calling thread receives.
    """

    def __init__(self, line: WebSocket, command: Command) -> None:
        self._line, self._command = line, command
        self._given: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # data for stdin; None for its end
        self._may_come = WINDOW  # bytes of stdin that the client may still send
        self._may_go = WINDOW  # bytes of output that may still be sent
        self._news = threading.Condition()
        self._code: int | None = None

    def carry(self) -> int:
        """Transfer until the command has ended and all its output is sent; return its exit code.

        Raises:
            Lost: The client or the scheduler is gone.
            ValueError: The client sent an invalid frame.
        """
        readers = [
            threading.Thread(target=self._read, args=(fd, kind), daemon=True)
            for fd, kind in ((self._command.stdout, Kind.STDOUT), (self._command.stderr, Kind.STDERR))
            if fd is not None
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._write, daemon=True).start()
        threading.Thread(target=self._finish, args=(readers,), daemon=True).start()
        try:
            while True:
                self._take(decode(self._line.receive()))
        except Lost:
            if self._code is None:
                self._given.put(None)  # at the end of stdin, a work of ours removes what is incomplete
                raise
        return self._code

    def _take(self, frame: Frame) -> None:
        if frame.kind not in FROM_CLIENT:
            raise ValueError(f"unexpected frame {frame.kind.name} from a client")
        if frame.kind is Kind.SIZE:
            self._command.resize(*frame.numbers)
        elif frame.kind is Kind.SIGNAL:
            self._command.signal(frame.numbers[0])
        elif frame.kind is Kind.EOF:
            self._given.put(None)
        elif frame.kind is Kind.CREDIT:
            with self._news:
                self._may_go = min(self._may_go + frame.numbers[0], WINDOW)
                self._news.notify_all()
        else:
            self._hold(frame.data)

    def _hold(self, data: bytes) -> None:
        with self._news:
            self._may_come -= len(data)
            if self._may_come < 0:
                raise ValueError(f"a client sent more than the window of {WINDOW} bytes")
        if data:  # empty frames are dropped, as their number is not limited
            self._given.put(data)

    def _write(self) -> None:
        """Write the received data to the command's stdin; drop it if the command reads no more, like a closed
        pipe.
        """
        fd = self._command.stdin
        reads = fd is not None
        while (data := self._given.get()) is not None:
            reads = reads and fd is not None and _written(fd, data)
            with self._news:
                self._may_come += len(data)
            with contextlib.suppress(Lost):
                self._line.send(encode(Frame(Kind.CREDIT, numbers=(len(data),))))
        if fd is not None and self._command.terminal:
            _written(fd, b"\x04")  # VEOF: on a terminal this marks the end of input
        elif fd is not None:
            os.close(fd)

    def _read(self, fd: int, kind: Kind) -> None:
        with contextlib.suppress(Lost):
            while data := _some(fd, self._most()):
                with self._news:
                    self._may_go -= len(data)
                self._line.send(encode(Frame(kind, data)))

    def _most(self) -> int:
        """Wait until a full frame may be sent; return its size. Two outputs may exceed the window by one
        frame.
        """
        with self._news:
            # not less, or frames would become ever smaller
            self._news.wait_for(lambda: self._may_go >= MAX_DATA)
            return MAX_DATA

    def _finish(self, readers: list[threading.Thread]) -> None:
        code = self._command.wait()
        for reader in readers:
            reader.join(LAST_S)
        if any(each.is_alive() for each in readers):
            self._command.end()  # processes that it left keep its outputs open
        for reader in readers:
            reader.join()
        self._code = code
        with contextlib.suppress(Lost):
            self._line.send(encode(Frame(Kind.EXIT, numbers=(code & 0xFF,))))


def _written(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:  # EPIPE, or EIO of a terminal: no process reads there any more
        return False
    return True


def _some(fd: int, most: int) -> bytes:
    try:
        return os.read(fd, most)
    except OSError:  # EIO: no process has the terminal any more
        return b""
