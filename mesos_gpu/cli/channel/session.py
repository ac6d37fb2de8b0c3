"""A command in a task, connected to this process's stdin, stdout and stderr."""

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
#: Time for a thread to end once the connection is closed; one may be waiting for input from a shared terminal.
_END_S: Final = 1.0


class Session:
    """A channel with this process's files: one thread receives, one sends, and the thread of `run` writes output.

    Args:
        line: Connection of the channel.
        stdin: File descriptor to send; None to send nothing.
        tty: Whether the command has a terminal, whose size follows this one's.
        stdout: File descriptor for the command's output.
        passes_signals: Whether signals of this process are passed to the command.
    """

    def __init__(
        self,
        line: ClientConnection,
        *,
        stdin: int | None,
        tty: bool = False,
        stdout: int = 1,
        passes_signals: bool = True,
    ) -> None:
        self._line, self._stdin, self._tty = line, stdin, tty
        self._outputs: Mapping[Kind, int] = {Kind.STDOUT: stdout, Kind.STDERR: 2}
        self._passed = _PASSED if passes_signals else ()
        self._credit, self._lock = WINDOW, threading.Lock()
        self._unwritten = 0  # bytes received and not written yet
        # At most a window of data.
        self._heard: queue.SimpleQueue[Frame | MesosGpuError] = queue.SimpleQueue()
        self._woken, self._wake = os.pipe()  # pipe that wakes the sender for a signal or credit
        os.set_blocking(self._wake, False)
        self._ended = threading.Event()
        self._signals: list[int] = []

    def run(self) -> int:
        """Transfer data until the command ends; return its exit code.

        Raises:
            Conflict: The command could not be started.
            Unreachable: The connection to the scheduler or the task was lost.
            BadAnswer: Invalid data was received.
            BrokenPipeError: The reader of the output has gone.
        """
        with self._threads() as threads, self._heard_signals(), self._line:
            for thread in threads:  # started only after entering the connection's context
                thread.start()
            while True:
                frame = self._heard.get()
                if isinstance(frame, MesosGpuError):
                    raise frame
                if frame.kind is Kind.EXIT:
                    return frame.numbers[0]
                if frame.kind is Kind.FAILED:
                    what = frame.data.decode(errors="replace")
                    raise Conflict(what, remedy="check the job with: mesos-gpu show JOB")
                self._write(frame)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[list[threading.Thread]]:
        """Create the receiving and the sending thread, and wait for those that were started.

        The pipe is closed only after they ended: its descriptors may then be reused.
        """
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
        with contextlib.suppress(ConnectionClosed):  # the receiving thread reports it
            self._line.send(encode(Frame(Kind.CREDIT, numbers=(len(frame.data),))))

    def _keep(self, frame: Frame) -> None:
        """Queue a frame for writing; empty frames are dropped, since their number is not limited by credit.

        Raises:
            ValueError: More data arrived than was permitted.
        """
        with self._lock:
            self._unwritten += len(frame.data)
            if self._unwritten > MAX_AHEAD:
                raise ValueError(f"more than {MAX_AHEAD} bytes were sent without permission")
        if frame.data:
            self._heard.put(frame)

    def _hear(self) -> None:
        """Receive frames until the last one, on a thread; errors are queued for `run`."""
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
            what = "the connection to the command was lost, so the command is ended"
            self._heard.put(Unreachable(what, remedy="check whether its job runs: mesos-gpu show JOB"))
        except ValueError as error:
            what = f"data from the task is invalid: {error}"
            self._heard.put(BadAnswer(what, remedy="use a client of the scheduler's release"))

    def _tell(self) -> None:
        """Send signals and stdin as far as credit allows, on a thread."""
        with contextlib.suppress(ConnectionClosed):
            while not self._ended.is_set():
                with self._lock:
                    # Waits for a full frame, otherwise frames would get ever smaller.
                    most = MAX_DATA if self._credit >= MAX_DATA else 0
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
        except OSError:  # the terminal has gone
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
        """Pass signals of this process to the command, while the body runs."""

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
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes it too
            os.write(self._wake, b".")
