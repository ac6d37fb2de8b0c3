"""Commands beside a running task: the system calls by which the task's inner process starts and observes them.

Sources: see `inner`.
"""

import _socket
import _thread
import contextlib
import errno
import os
import select
import signal
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Final

from isolator.confinement.inner import ANSWER_BYTES, CLONE, CLONE_PARENT
from isolator.host import processes

ANSWER_S: Final = 5.0  # timeout of one system call that does not block
EXECUTE_S: Final = 30.0  # timeout of execve, which reads the program from a file system that may be slow
_LOOK_S: Final = 0.5
_REQUEST, _ANSWER = struct.Struct("=Q6q"), struct.Struct("=qi4x")
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred
#: Address at which sessions map the memory shared with the executor: above their program, far below their stack.
_MEMORY: Final = 0x10000000
_STRINGS: Final = 4096  # offset of a command's strings in the shared memory; results of calls are before it
_PROT_READ_WRITE, _MAP_SHARED_FIXED = 3, 0x11
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TIOCSCTTY: Final = 0x540E
_WNOHANG: Final = 1
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR)
_STREAMS: Final = 3
_CALLS: Final[Mapping[str, Mapping[str, int]]] = {
    "x86_64": {
        "close": 3, "mmap": 9, "ioctl": 16, "getpid": 39, "execve": 59, "wait4": 61, "fchdir": 81, "umask": 95,
        "setsid": 112, "prctl": 157, "dup3": 292, "clone": CLONE["x86_64"],
    },
    "aarch64": {
        "dup3": 24, "ioctl": 29, "fchdir": 50, "close": 57, "setsid": 157, "umask": 166, "prctl": 167, "getpid": 172,
        "execve": 221, "mmap": 222, "wait4": 260, "clone": CLONE["aarch64"],
    },
}  # fmt: skip


class NotExecuted(OSError):
    """A command whose program does not exist in its task, or may not be executed there."""


class Inner:
    """Executor's end of an inner process.

    Attributes:
        line: Socket to the inner process, not used before.
        pid: Process id in the executor's pid namespace; 0 if unknown.
        number: Descriptor number of the socket in the inner process.
        name: Process id in the pid namespace of the process that forked the inner process.
    """

    __slots__ = ("_children", "_lock", "_owed", "line", "name", "number", "pid")

    def __init__(self, line: _socket.socket, pid: int = 0, number: int = 0, name: int = 0) -> None:
        self.line, self.pid, self.number, self.name = line, pid, number, name
        self._lock, self._children = _thread.allocate_lock(), list[int]()
        self._owed = 0  # number of answers that are still to come; more than one after a timeout

    @classmethod
    def of(cls, line: int, pid: int, number: int) -> "Inner":
        """Return the end of an inner process that another process of the executor has started.

        Args:
            line: Descriptor number of the socket in this process; owned by the result.
            pid: Process id of the inner process.
            number: Descriptor number of the socket in the inner process.
        """
        return cls(_socket.socket(fileno=line), pid, number)

    def greet(self) -> None:
        """Receive the first answer of the inner process, and store the process id that the kernel sends along.

        Raises:
            OSError: The inner process has ended, or does not answer.
        """
        space = _socket.CMSG_SPACE(_CREDENTIALS.size)
        self._await(ANSWER_S)
        word, ancillary, *_ = self.line.recvmsg(ANSWER_BYTES, space)
        if len(word) != ANSWER_BYTES:
            raise _ended()
        for level, kind, data in ancillary:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_CREDENTIALS):
                self.pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]

    def call(self, name: str, *arguments: int, file: int | None = None) -> int:
        """Make the inner process execute a system call; return the result.

        Args:
            name: Name of the call, a key of `_CALLS`.
            arguments: Numbers, or addresses in the memory of the inner process; at most six.
            file: Descriptor of this process that is sent along; None for no descriptor.

        Raises:
            OSError: The call failed in the inner process, or the inner process has ended or does not answer.
        """
        return self._call(name, arguments, file)[0]

    def give(self, file: int) -> int:
        """Send a file descriptor to the inner process; return the number of the descriptor there.

        Raises:
            OSError: See `call`.
        """
        return self._call("getpid", (), file)[1]

    def fork(self, flags: int = 0) -> "Inner":
        """Make the inner process fork; return the child.

        Args:
            flags: CLONE_* flags in addition to SIGCHLD.

        Raises:
            OSError: See `call`.
        """
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
        child = Inner(ours)
        try:
            with contextlib.closing(theirs):
                asked = self._call("clone", (flags | signal.SIGCHLD,), theirs.fileno())
            child.name, child.number = asked
            self.call("close", child.number)
            child.greet()
            if self.number < _STREAMS:  # keep 0 to 2 in use, so that later descriptors get other numbers
                child.call("dup3", self.number + 1, self.number, 0)
            else:
                child.call("close", self.number)
        except OSError:
            child.close()
            raise
        return child

    def session(self) -> "Inner":
        """Make the first inner process fork a session for one command. For any thread.

        The session becomes a child of the first inner process's parent, and ends when its socket is closed or that
        parent ends.

        Raises:
            OSError: See `call`.
        """
        with self._lock:
            self._reap_ended()
            child = self.fork(CLONE_PARENT)
            self._children.append(child.pid)
        try:
            child.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
            child.call("prctl", _PR_SET_CHILD_SUBREAPER, 1)
        except OSError:
            child.close()
            raise
        return child

    def reap(self, pid: int, within_s: float) -> None:
        """Wait until a session whose socket is closed has ended, and reap it. For any thread.

        Args:
            pid: Process id of the session.
            within_s: Seconds to wait; afterwards the next session reaps it.
        """
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(pid)
            try:
                select.select([ended], [], [], within_s)
            finally:
                os.close(ended)
        with self._lock:
            self._reap_ended()

    def _reap_ended(self) -> None:
        for pid in tuple(self._children):
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0]
            except ChildProcessError:
                ended = pid
            if ended:
                self._children.remove(pid)

    def close(self) -> None:
        """Close the socket, which ends the inner process. May be called more than once."""
        self.line.close()

    def ask(self, name: str, *arguments: int, file: int | None = None) -> None:
        """Send a system call without waiting; `answer` returns its result. For arguments and errors see `call`."""
        number = _CALLS[os.uname().machine][name]
        request = _REQUEST.pack(number, *arguments, *[0] * (6 - len(arguments)))
        ancillary = [] if file is None else [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", file))]
        try:
            self.line.sendmsg([request], ancillary)
        except OSError as error:
            if error.errno in (
                errno.EPIPE,
                errno.EBADF,
            ):  # EBADF: this process has closed the socket, because the task has ended
                raise _ended() from None
            raise
        self._owed += 1

    def answer(self, within_s: float | None) -> tuple[int, int]:
        """Return the result of the last call sent, and the number of the descriptor sent along (-1 for none).

        Args:
            within_s: Seconds to wait; None to wait without a limit.

        Raises:
            TimeoutError: No answer came within `within_s` seconds.
            OSError: See `call`.
        """
        while True:
            self._await(within_s)
            try:
                word = self.line.recv(ANSWER_BYTES)
            except ConnectionResetError:  # the process was killed before it read the call
                raise _ended() from None
            if len(word) != ANSWER_BYTES:
                raise _ended()
            self._owed -= 1
            if not self._owed:
                break
        result, number = _ANSWER.unpack(word)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result, number

    def _call(self, name: str, arguments: tuple[int, ...], file: int | None) -> tuple[int, int]:
        self.ask(name, *arguments, file=file)
        return self.answer(ANSWER_S)

    def _await(self, within_s: float | None) -> None:
        if self.line.fileno() < 0:
            raise _ended()
        if not select.select([self.line], [], [], within_s)[0]:
            raise TimeoutError(110, "the process that starts commands in the task does not answer")


def _ended() -> OSError:
    return ProcessLookupError(
        3, "the process that starts commands in the task has ended: the task may have killed it"
    )


class Command:
    """A command beside a task, run by a session. The caller must close it."""

    def __init__(
        self,
        session: Inner,
        argv: Sequence[str],
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        directory: int,
        *,
        terminal: bool,
    ) -> None:
        """Start the command in a kernel session of its own (setsid(2)).

        Args:
            session: Session of this command alone; closed by `close`, and if the start fails.
            argv: Command line; its first word is searched for in the PATH of `env`.
            env: Complete environment of the command.
            streams: Descriptors of this process for stdin, stdout and stderr.
            directory: Descriptor of this process for the working directory.
            terminal: Whether stdin is a terminal that becomes the controlling terminal of the command.

        Raises:
            NotExecuted: The program does not exist in the task, or may not be executed there.
            OSError: The command cannot be started for another reason.
        """
        self._session, self._lock = session, _thread.allocate_lock()
        self._code: int | None = None
        self._gone = False
        self._memory = os.memfd_create("command", os.MFD_CLOEXEC)
        try:
            paths = _paths(argv[0], env)
            variables = [f"{name}={value}" for name, value in env.items()]
            places = self._share(paths, argv, variables)
            first = session.fork()
            self.pid = first.pid
            with contextlib.closing(first):
                _prepare(first, streams, directory, terminal=terminal)
                _execute(first, argv[0], paths, *places)
            session.ask("wait4", first.name, _MEMORY)
        except OSError:
            self.close()
            raise

    def _share(
        self, paths: Sequence[str], argv: Sequence[str], variables: Sequence[str]
    ) -> tuple[list[int], int, int]:
        """Map memory with the strings of the command into the session; return the addresses of each path, of argv and
        of envp."""
        words = bytearray(_STRINGS)
        places = [_put(words, os.fsencode(path) + b"\0") for path in paths]
        vectors = []
        for texts in (argv, variables):
            each = [_put(words, os.fsencode(text) + b"\0") for text in texts]
            words += bytes(-len(words) % 8)
            vectors.append(_put(words, struct.pack(f"{len(each) + 1}Q", *each, 0)))
        os.pwrite(self._memory, words, 0)
        session = self._session
        number = session.give(self._memory)
        session.call("mmap", _MEMORY, len(words), _PROT_READ_WRITE, _MAP_SHARED_FIXED, number, 0)
        session.call("close", number)
        return places, vectors[0], vectors[1]

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the command has ended."""
        return self._session.line.fileno()

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal that ended the command; None if the command is running."""
        with self._lock:
            if self._code is None and select.select([self._session.line], [], [], 0)[0]:
                try:
                    self._session.answer(0)
                except OSError:
                    # The session was killed, and the kernel then kills the command (PR_SET_PDEATHSIG).
                    self._code = -signal.SIGKILL
                else:
                    status = struct.unpack("i", os.pread(self._memory, 4, 0))[0]
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, within_s: float | None = None) -> int | None:
        """Wait until the command has ended; return the result of `poll`.

        Args:
            within_s: Seconds to wait; None to wait without a limit.
        """
        deadline = None if within_s is None else time.monotonic() + within_s
        while self.poll() is None and (deadline is None or time.monotonic() < deadline):
            left_s = _LOOK_S if deadline is None else max(min(_LOOK_S, deadline - time.monotonic()), 0.0)
            # Another thread may take the answer meanwhile.
            select.select([self._session.line], [], [], left_s)
        return self._code

    def processes(self) -> list[int]:
        """Return the ids of all processes below the session, the command included. Reap those that have ended."""
        if self.poll() is not None:
            with self._lock, contextlib.suppress(OSError):
                while self._session.call("wait4", -1, _MEMORY, _WNOHANG) > 0:
                    pass
        return processes.descendants(self._session.pid) if self._is_there() else []

    def _is_there(self) -> bool:
        """Return whether the session is alive, so that its process id has not been reused."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._session.line.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT))
        return True

    def gone(self) -> bool:
        """Return whether the session has ended and was reaped. A closed session ends once its command has ended."""
        if not self._gone:
            try:
                self._gone = os.waitpid(self._session.pid, os.WNOHANG)[0] > 0
            except ChildProcessError:  # reaped by other code, or a child of another process
                self._gone = not os.path.exists(f"/proc/{self._session.pid}")
        return self._gone

    def close(self) -> None:
        """Close the session, which ends once the command has ended. May be called more than once."""
        self._session.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _paths(program: str, env: Mapping[str, str]) -> list[str]:
    if "/" in program:
        return [program]
    return [f"{at}/{program}" for at in env.get("PATH", _PATH).split(":")]


def _put(words: bytearray, more: bytes) -> int:
    """Append bytes to the shared memory; return their address in the session."""
    words += more
    return _MEMORY + len(words) - len(more)


def _prepare(first: Inner, streams: tuple[int, int, int], directory: int, *, terminal: bool) -> None:
    """Give the first process of a command its kernel session, its streams and its working directory."""
    first.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
    first.call("setsid")
    given = {stream: first.give(stream) for stream in dict.fromkeys(streams)}
    if terminal:
        first.call("ioctl", given[streams[0]], _TIOCSCTTY, 0)
    first.call("fchdir", first.give(directory))
    first.call("umask", 0o022)
    for number, stream in enumerate(streams):
        first.call("dup3", given[stream], number, 0)


def _execute(
    first: Inner, name: str, paths: Sequence[str], places: Sequence[int], argv: int, envp: int
) -> None:
    """Execute the first path that exists; execve closes all descriptors but the streams."""
    number, why = 2, f"{name}: No such file or directory"
    for path, place in zip(paths, places, strict=True):
        first.ask("execve", place, argv, envp)
        try:
            first.answer(EXECUTE_S)
        except ProcessLookupError:
            return  # execve has closed the socket: the command runs, or was killed meanwhile
        except OSError as error:
            if error.errno not in NOT_THERE:
                number, why = error.errno or 0, f"{path}: {error.strerror}"
    raise NotExecuted(number, why)
