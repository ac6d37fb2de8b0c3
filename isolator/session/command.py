"""Command in a task, with pipes or a terminal, and all processes that it starts."""

import contextlib
import fcntl
import os
import signal
import struct
import termios
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from isolator.confinement.inner_calls import NOT_THERE, NotExecuted
from isolator.host import processes
from isolator.runs.joining import MARK, Joining, Place, Running
from isolator.session.terminal import open_terminal
from mesos_gpu.wire.channel.order import Order


@dataclass(frozen=True, slots=True)
class Work:
    """Work in a task by a module of ours, whose `main(words)` is called, with pipes like a command's."""

    module: str
    words: tuple[str, ...] = ()


DEATH_S: Final = 5.0
LAST_S: Final = 1.0  # wait for a work of ours to remove what is incomplete
_LOOK_S: Final = 0.02
_NOT_FOUND: Final = 127
_NOT_EXECUTED: Final = (126, _NOT_FOUND)


class CommandFailed(Exception):
    """Error: the command cannot be executed; the message says why.

    Attributes:
        code: Exit status of a shell in this case: 127 if the program does not exist, 126 if it cannot be
            executed; None if the task cannot be joined.
    """

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code


class Command:
    """A running command.

    Attributes:
        stdin, stdout, stderr: Descriptors of this process; None for a stream that the command does not have.
    """

    def __init__(self, place: Place, order: Order | Work, channel: str) -> None:
        """Start the command.

        Raises:
            CommandFailed: The task cannot be joined, or does not have the program.
            OSError: The command cannot be started.
        """
        self._mark = f"{MARK}={channel}".encode()
        self._is_ours = isinstance(order, Work)
        self.terminal = isinstance(order, Order) and order.tty
        self.stdin: int | None = None
        self.stdout = -1
        self.stderr: int | None = None
        if isinstance(order, Order) and order.tty:
            streams = self._terminal(place, order)
        else:
            streams = self._pipes(stdin=isinstance(order, Work) or order.stdin)
        try:
            self._process = _started(place, order, streams, channel)
        finally:
            for stream in set(streams):
                os.close(stream)
            place.close()

    def _terminal(self, place: Place, order: Order) -> tuple[int, int, int]:
        ours, theirs = open_terminal(place.root)
        os.fchown(theirs, *place.owner)  # so that the task can open it by its name
        os.fchmod(theirs, 0o600)
        self.stdin = self.stdout = ours
        self.resize(order.rows, order.columns)
        return theirs, theirs, theirs

    def _pipes(self, *, stdin: bool) -> tuple[int, int, int]:
        if stdin:
            theirs, self.stdin = os.pipe()
        else:
            theirs = os.open("/dev/null", os.O_RDONLY)
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        return theirs, stdout, stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal to that of the client's; the kernel sends SIGWINCH."""
        if self.terminal:
            fcntl.ioctl(self.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        """Send a signal to the command and all processes that it started."""
        processes.send(self._pids(), number)

    def wait(self) -> int:
        """Wait for the end of the command; return its exit code, 128+N after signal N."""
        code = self._process.wait()
        assert code is not None
        return code if code >= 0 else 128 - code

    def end(self) -> None:
        """End the command and all processes that it started, by SIGHUP, as after a lost line, then by
        SIGKILL.
        """
        if self._is_ours:
            self._process.wait(LAST_S)
        self.signal(signal.SIGHUP)
        deadline = time.monotonic() + DEATH_S
        while (pids := self._pids()) and time.monotonic() < deadline:
            processes.send(pids, signal.SIGKILL)
            processes.reap(keep=self._process.pid)
            self._process.wait(0.01)

    def _pids(self) -> list[int]:
        """Return the processes below this one or its session in the task, and those with the mark in their environment.

        The mark is needed in a task with a pid namespace, where orphans become children of its first process.
        """
        below = [*processes.descendants(os.getpid()), *self._process.processes()]
        return [*below, *(pid for pid in _marked(self._mark) if pid not in below)]


def remedy_of(program: str, code: int) -> str:
    """Return advice on how to find a missing program, or why one cannot be executed.

    Args:
        program: First word of the command.
        code: Exit code of `CommandFailed`.
    """
    import shlex  # deferred: few sessions need it

    if code != _NOT_FOUND:
        what = shlex.quote(program) if "/" in program else f'"$(command -v {shlex.quote(program)})"'
        return f"see its mode and owner: mesos-gpu exec JOB -- sh -c {shlex.quote(f'id; ls -lL {what}')}"
    if "/" in program:
        directory = os.path.dirname(program) or "/"
        see = shlex.join(["ls", "-l", directory])
        return f"list the directory: mesos-gpu exec JOB -- {see}; the program in a script's first line must exist, too"
    find = shlex.join(["find", "/", "-name", program])
    return f"find it: mesos-gpu exec JOB -- {find}; a program outside of the job's PATH needs its full path"


def _started(place: Place, order: Order | Work, streams: tuple[int, int, int], channel: str) -> Running:
    """Start the order in the task; return the running command."""
    started: Running
    if isinstance(order, Work):
        started = place.work(order.module, order.words, streams)
    else:
        env = {MARK: channel, **({"TERM": order.term} if order.tty else {})}
        try:
            started = place.run(order.argv, env, streams, terminal=order.tty)
        except NotExecuted as error:
            code = _NOT_FOUND if error.errno in NOT_THERE else _NOT_EXECUTED[0]
            raise CommandFailed(str(error.strerror), code) from error
    if isinstance(started, Joining):
        why, ended = started.why()
        if why:
            raise CommandFailed(why, ended if ended in _NOT_EXECUTED else None)
    return started


def end_left(channel: str) -> None:
    """Kill processes that a session's command has left, after its helper was killed and could not do that."""
    deadline, ended = time.monotonic() + DEATH_S, set[int]()
    while (pids := _marked(f"{MARK}={channel}".encode())) and time.monotonic() < deadline:
        processes.send(pids, signal.SIGKILL)
        ended.update(pids)
        time.sleep(_LOOK_S)
    for pid in ended:  # they became children of this process, unless the task has a pid namespace
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _marked(mark: bytes) -> list[int]:
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    pids.append(int(name))
    return pids
