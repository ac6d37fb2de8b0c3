"""A command in a task from here: what it writes is written here, and what is typed or piped in here goes to it."""

import contextlib
import os
import queue
import select
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from mesos_gpu.cli.channel.terminal import size_of
from mesos_gpu.cli.reach.failures import BadAnswer, Unreachable
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.wire.channel.frames import LAST, MAX_AHEAD, MAX_DATA, WINDOW, Frame, Kind, decode, encode

_PASSED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: For a thread to end once the line is closed: one may wait for a terminal that others read, too.
_END_S: Final = 1.0


class Session:
    """A channel, and this process' files. One thread hears, one tells, and the thread of `run` writes."""

    def __init__(
        self,
        line: ClientConnection,
        *,
        stdin: int | None,
        tty: bool = False,
        stdout: int = 1,
        passes_signals: bool = True,
    ) -> None:
        """Nothing is carried yet.

        Args:
            line: The channel.
            stdin: What to send; None: nothing.
            tty: Whether the command has a terminal, whose size is this one's.
            stdout: Where its output goes.
            passes_signals: Whether signals of this process go to the command.
        """
        self._line, self._stdin, self._tty = line, stdin, tty
        self._outputs: Mapping[Kind, int] = {Kind.STDOUT: stdout, Kind.STDERR: 2}
        self._passed = _PASSED if passes_signals else ()
        self._credit, self._lock = WINDOW, threading.Lock()
        self._unwritten = 0  # bytes that came
        self._heard: queue.SimpleQueue[Frame | MesosGpuError] = (
            queue.SimpleQueue()
        )  # a window of them at most
        self._woken, self._wake = os.pipe()  # of what tells: a signal, or credit
        os.set_blocking(self._wake, False)
        self._ended = threading.Event()
        self._signals: list[int] = []

    def run(self) -> int:
        """Carry to the end; the command's exit code.

        Raises:
            Conflict: It could not be started.
            Unreachable: The connection was lost, to the scheduler or to the task.
            BadAnswer: What comes is no frame.
            BrokenPipeError: Nobody reads our output any more.
        """
        with self._threads() as threads, self._heard_signals(), self._line:
            for thread in threads:  # the line is not used before it is entered
                thread.start()
            while True:
                frame = self._heard.get()
                if isinstance(frame, MesosGpuError):
                    raise frame
                if frame.kind is Kind.EXIT:
                    return frame.numbers[0]
                if frame.kind is Kind.FAILED:
                    what = frame.data.decode(errors="replace")
                    raise Conflict(what, remedy="see what runs there: mesos-gpu show JOB")
                self._write(frame)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[list[threading.Thread]]:
        """Make a thread that hears and one that tells, and wait for those that were started. Neither uses a file after
        its end, which may be another one's by then."""
        threads = [
            threading.Thread(target=work, name="channel", daemon=True) for work in (self._hear, self._tell)
        ]
        try:
            yield threads
        finally:
            self._ended.set()
            self._rouse()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(_END_S)
            if not any(thread.is_alive() for thread in threads):
                os.close(self._woken)
                os.close(self._wake)

    def _write(self, frame: Frame) -> None:
        view = memoryview(frame.data)
        while view:
            view = view[os.write(self._outputs[frame.kind], view) :]
        with self._lock:
            self._unwritten -= len(frame.data)
        with contextlib.suppress(ConnectionClosed):  # the one who hears says so
            self._line.send(encode(Frame(Kind.CREDIT, numbers=(len(frame.data),))))

    def _keep(self, frame: Frame) -> None:
        """Have it written, if there is anything to it: frames without data would be without number.

        Raises:
            ValueError: There is more than may come.
        """
        with self._lock:
            self._unwritten += len(frame.data)
            if self._unwritten > MAX_AHEAD:
                raise ValueError(f"more than {MAX_AHEAD} bytes came ahead")
        if frame.data:
            self._heard.put(frame)

    def _hear(self) -> None:
        try:
            while True:
                message = self._line.recv()
                frame = decode(message if isinstance(message, bytes) else b"")
                if frame.kind is Kind.CREDIT:
                    with self._lock:
                        self._credit += frame.numbers[0]
                    self._rouse()
                elif frame.kind in LAST:
                    self._heard.put(frame)
                    return
                elif frame.kind in self._outputs:
                    self._keep(frame)
        except ConnectionClosed:
            what = "the connection to the command was lost, and it is ended"
            self._heard.put(Unreachable(what, remedy="see whether its job runs: mesos-gpu show JOB"))
        except ValueError as error:
            what = f"what comes from the task cannot be read: {error}"
            self._heard.put(BadAnswer(what, remedy="use the client of the scheduler's release"))

    def _tell(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while not self._ended.is_set():
                with self._lock:
                    most = MAX_DATA if self._credit >= MAX_DATA else 0  # else ever smaller frames would go
                given = [self._stdin] if self._stdin is not None and most else []
                ready = select.select([self._woken, *given], [], [])[0]
                if self._ended.is_set():
                    return
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._send_signals()
                if self._stdin is not None and self._stdin in ready:
                    self._send_stdin(self._stdin, most)

    def _send_stdin(self, stdin: int, most: int) -> None:
        try:
            data = os.read(stdin, most)
        except OSError:  # of a terminal that is gone
            data = b""
        if not data:
            self._stdin = None
            self._line.send(encode(Frame(Kind.EOF)))
            return
        with self._lock:
            self._credit -= len(data)
        self._line.send(encode(Frame(Kind.STDIN, data)))

    def _send_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGWINCH:
                self._line.send(encode(Frame(Kind.SIZE, numbers=size_of(0))))
            else:
                self._line.send(encode(Frame(Kind.SIGNAL, numbers=(number,))))

    @contextlib.contextmanager
    def _heard_signals(self) -> Iterator[None]:
        """Signals of this process go to the command."""

        def take(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            self._rouse()

        wanted = (*self._passed, signal.SIGWINCH) if self._tty else self._passed
        before = {number: signal.signal(number, take) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake then
            os.write(self._wake, b".")
