"""Commands that are started by the inner process of a task: the system calls that it makes for them.

Sources: as of `inner`.
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

ANSWER_S: Final = 5.0  # for one system call that does not wait
EXECUTE_S: Final = 30.0  # for the file system of a program to answer
_LOOK_S: Final = 0.5
_REQUEST, _ANSWER = struct.Struct("=Q6q"), struct.Struct("=qi4x")
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred
#: Where sessions map what is exchanged with them: their program is below, all else far above.
_MEMORY: Final = 0x10000000
_STRINGS: Final = 4096  # from there on are the strings of a command; before, what calls return
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
    """A command that its task has no program for, or may not execute."""


class Inner:
    """The executor's end of an inner process.

    Attributes:
        line: The socket.
        pid: Its id for this process, 0 if that is unknown.
        number: The number of its end of the socket.
        name: Its id for the process that it was forked from.
    """

    __slots__ = ("_children", "_lock", "_owed", "line", "name", "number", "pid")

    def __init__(self, line: _socket.socket, pid: int = 0, number: int = 0, name: int = 0) -> None:
        """Take over the socket, by which nothing was said yet."""
        self.line, self.pid, self.number, self.name = line, pid, number, name
        self._lock, self._children = _thread.allocate_lock(), list[int]()
        self._owed = 0  # answers that are still to come; more than one if it was stopped

    @classmethod
    def of(cls, line: int, pid: int, number: int) -> "Inner":
        """Take over one from another process of ours, by the number of the file here."""
        return cls(_socket.socket(fileno=line), pid, number)

    def greet(self) -> None:
        """Take its first word, and see which process it is.

        Raises:
            OSError: It has ended, or does not answer.
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
        """Have it make a system call.

        Args:
            name: Of the call.
            arguments: Numbers, and addresses in its memory.
            file: A file of this process to send along.

        Raises:
            OSError: The call failed there; or the process has ended, or does not answer.
        """
        return self._call(name, arguments, file)[0]

    def give(self, file: int) -> int:
        """Give it a file of this process; return the number that it has there.

        Raises:
            OSError: As of `call`.
        """
        return self._call("getpid", (), file)[1]

    def fork(self, flags: int = 0) -> "Inner":
        """Have it fork.

        Args:
            flags: CLONE_*.

        Raises:
            OSError: As of `call`.
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
            if self.number < _STREAMS:  # which are never free: files that come later get others
                child.call("dup3", self.number + 1, self.number, 0)
            else:
                child.call("close", self.number)
        except OSError:
            child.close()
            raise
        return child

    def session(self) -> "Inner":
        """Have the first one fork what a command is forked from. It is a child of the first one's parent, and ends when
        its socket is closed or its parent ends. From any thread.

        Raises:
            OSError: As of `call`.
        """
        with self._lock:
            self.collect()
            child = self.fork(CLONE_PARENT)
            self._children.append(child.pid)
        try:
            child.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
            child.call("prctl", _PR_SET_CHILD_SUBREAPER, 1)
        except OSError:
            child.close()
            raise
        return child

    def collect(self) -> None:
        """Collect sessions that have ended, as far as they are children of this process."""
        for pid in tuple(self._children):
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0]
            except ChildProcessError:
                ended = pid
            if ended:
                self._children.remove(pid)

    def close(self) -> None:
        """Let it end. Twice is harmless."""
        self.line.close()

    def ask(self, name: str, *arguments: int, file: int | None = None) -> None:
        """Send a call, of which `answer` tells the result later."""
        number = _CALLS[os.uname().machine][name]
        request = _REQUEST.pack(number, *arguments, *[0] * (6 - len(arguments)))
        ancillary = [] if file is None else [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", file))]
        try:
            self.line.sendmsg([request], ancillary)
        except OSError as error:
            if error.errno in (
                errno.EPIPE,
                errno.EBADF,
            ):  # EBADF: this process let it go, as the task has ended
                raise _ended() from None
            raise
        self._owed += 1

    def answer(self, within_s: float | None) -> tuple[int, int]:
        """Return the result of the call that was asked for, and the number of the file that went along.

        Raises:
            OSError: As of `call`; after `within_s` seconds, TimeoutError.
        """
        while True:
            self._await(within_s)
            word = self.line.recv(ANSWER_BYTES)
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
    """A command that a session runs. Close it in the end."""

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
        """Start it, in a session of its own of the kernel's.

        Args:
            session: Of it alone; closed in the end, and if this fails.
            argv: The first word is looked for in PATH of `env`.
            env: All its variables.
            streams: Its stdin, stdout and stderr, files of this process.
            directory: Its directory, a file of this process.
            terminal: Whether the streams are one that is to be its controlling terminal.

        Raises:
            NotExecuted: The task has no such program, or may not execute it.
            OSError: It cannot be started.
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
        """Give the session memory with what is to be executed; return the addresses of the paths, and of argv and
        envp."""
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
        """The file that can be read once the command has ended."""
        return self._session.line.fileno()

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None: it runs."""
        with self._lock:
            if self._code is None and select.select([self._session.line], [], [], 0)[0]:
                try:
                    self._session.answer(0)
                except OSError:  # the session was killed, and its end is the command's
                    self._code = -signal.SIGKILL
                else:
                    status = struct.unpack("i", os.pread(self._memory, 4, 0))[0]
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, within_s: float | None = None) -> int | None:
        """Wait for its end, or for so long; return what `poll` does."""
        deadline = None if within_s is None else time.monotonic() + within_s
        while self.poll() is None and (deadline is None or time.monotonic() < deadline):
            left_s = _LOOK_S if deadline is None else max(min(_LOOK_S, deadline - time.monotonic()), 0.0)
            select.select(
                [self._session.line], [], [], left_s
            )  # another thread may take the answer meanwhile
        return self._code

    def processes(self) -> list[int]:
        """The processes that it has started, and it, as far as they are below the session; what has ended is
        collected."""
        if self.poll() is not None:
            with self._lock, contextlib.suppress(OSError):
                while self._session.call("wait4", -1, _MEMORY, _WNOHANG) > 0:
                    pass
        return processes.descendants(self._session.pid) if self._is_there() else []

    def _is_there(self) -> bool:
        """Whether the session lives, so that its id is no other's."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._session.line.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT))
        return True

    def gone(self) -> bool:
        """Whether the session has ended and was collected, after `close`; it waits for its command."""
        if not self._gone:
            try:
                self._gone = os.waitpid(self._session.pid, os.WNOHANG)[0] > 0
            except ChildProcessError:  # collected by another, or of another parent
                self._gone = not os.path.exists(f"/proc/{self._session.pid}")
        return self._gone

    def close(self) -> None:
        """Let go of it: the session ends once the command has."""
        self._session.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _paths(program: str, env: Mapping[str, str]) -> list[str]:
    if "/" in program:
        return [program]
    return [f"{at}/{program}" for at in env.get("PATH", _PATH).split(":")]


def _put(words: bytearray, more: bytes) -> int:
    """Append; return the address that it has in the session."""
    words += more
    return _MEMORY + len(words) - len(more)


def _prepare(first: Inner, streams: tuple[int, int, int], directory: int, *, terminal: bool) -> None:
    """What a command finds: a session of its own, its streams, its directory."""
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
    """Execute the first of the paths that is there; all files but the streams are closed by that."""
    number, why = 2, f"{name}: No such file or directory"
    for path, place in zip(paths, places, strict=True):
        first.ask("execve", place, argv, envp)
        try:
            first.answer(EXECUTE_S)
        except ProcessLookupError:
            return  # its socket was closed: it runs, or was killed meanwhile
        except OSError as error:
            if error.errno not in NOT_THERE:
                number, why = error.errno or 0, f"{path}: {error.strerror}"
    raise NotExecuted(number, why)
