"""Bytes between a command and its channel, each way at the pace of who takes them."""

import contextlib
import os
import queue
import threading
from typing import Final

from isolator.session.command import Command
from isolator.session.websocket import Lost, WebSocket
from mesos_gpu.wire.channel.frames import FROM_CLIENT, MAX_DATA, WINDOW, Frame, Kind, decode, encode

LAST_S: Final = 2.0  # for what a command wrote before its end


class Carrier:
    """Threads: one for each of its outputs, one that writes to it, one that waits for its end; this one hears."""

    def __init__(self, line: WebSocket, command: Command) -> None:
        """Nothing is carried yet."""
        self._line, self._command = line, command
        self._given: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # for stdin; None: its end
        self._may_come = WINDOW  # bytes of stdin
        self._may_go = WINDOW  # bytes of its outputs
        self._news = threading.Condition()
        self._code: int | None = None

    def carry(self) -> int:
        """Carry until the command has ended and all that it wrote is sent; its exit code.

        Raises:
            Lost: The client has gone, or the scheduler.
            ValueError: What comes is no frame of a client.
        """
        readers = [
            threading.Thread(target=self._read, args=(fd, kind), daemon=True)
            for fd, kind in ((self._command.stdout, Kind.STDOUT), (self._command.stderr, Kind.STDERR))
            if fd is not None
        ]
        for each in readers:
            each.start()
        threading.Thread(target=self._write, daemon=True).start()
        threading.Thread(target=self._finish, args=(readers,), daemon=True).start()
        try:
            while True:
                self._take(decode(self._line.receive()))
        except Lost:
            if self._code is None:
                self._given.put(None)  # the end of its stdin is what a work of ours leaves no half by
                raise
        return self._code

    def _take(self, frame: Frame) -> None:
        if frame.kind not in FROM_CLIENT:
            raise ValueError(f"a client sends no {frame.kind.name}")
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
                raise ValueError(f"a client sends more than {WINDOW} bytes ahead")
        if data:  # frames without any would be without number
            self._given.put(data)

    def _write(self) -> None:
        """Write to its stdin. Of a command that reads no more the rest is thrown away, as by a pipe that is closed."""
        fd = self._command.stdin
        reads = fd is not None
        while (data := self._given.get()) is not None:
            reads = reads and fd is not None and _written(fd, data)
            with self._news:
                self._may_come += len(data)
            with contextlib.suppress(Lost):
                self._line.send(encode(Frame(Kind.CREDIT, numbers=(len(data),))))
        if fd is not None and self._command.terminal:
            _written(fd, b"\x04")  # VEOF: the end of a line is told by that
        elif fd is not None:
            os.close(fd)

    def _read(self, fd: int, kind: Kind) -> None:
        with contextlib.suppress(Lost):
            while data := _some(fd, self._most()):
                with self._news:
                    self._may_go -= len(data)
                self._line.send(encode(Frame(kind, data)))

    def _most(self) -> int:
        """Wait until something may be sent; how much of it. Two outputs may go beyond the window by one frame."""
        with self._news:
            self._news.wait_for(lambda: self._may_go >= MAX_DATA)  # of less, ever smaller frames would come
            return MAX_DATA

    def _finish(self, readers: list[threading.Thread]) -> None:
        code = self._command.wait()
        for each in readers:
            each.join(LAST_S)
        if any(each.is_alive() for each in readers):
            self._command.end()  # what it left keeps its outputs open
        for each in readers:
            each.join()
        self._code = code
        with contextlib.suppress(Lost):
            self._line.send(encode(Frame(Kind.EXIT, numbers=(code & 0xFF,))))


def _written(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:  # EPIPE, or EIO of a terminal: nobody reads there any more
        return False
    return True


def _some(fd: int, most: int) -> bytes:
    try:
        return os.read(fd, most)
    except OSError:  # EIO: no process has the terminal any more
        return b""
