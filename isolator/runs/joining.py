"""A command beside a running task: as its user, with its environment, in its namespaces and cgroups.

If a task has an inner process (`isolator.confinement.inner`), its commands are forked from the inner process, and so
are in the Landlock domain of the task. Containers of the Docker Engine have no inner process, because their pid
namespace blocks signals to other tasks. In such a container, and to run modules of mesos_gpu in any task, a process
joins the task from outside. Its namespaces and cgroups are read when the task has just been started and kept as open
files, because its process id may be reused later. The process that joins is a new interpreter that runs `joined`,
because a process with threads cannot safely run code between fork and exec.

Sources: setns(2), namespaces(7), proc_pid_status(5), cgroups(7), capabilities(7).
"""

import contextlib
import marshal
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from isolator.confinement.apart import Apart, apart_of
from isolator.confinement.inner_calls import Command, Inner
from isolator.devices.cgroups import cgroups_of, mounted_with
from isolator.host import processes
from isolator.runs import joined

# the mount namespace last, as this /proc is gone then
_NAMESPACES: Final = ("cgroup", "ipc", "uts", "net", "pid", "mnt")
_MAX_WORDS: Final = 4096
#: Environment variable of sessions' commands, by which processes that they leave behind are found.
MARK: Final = "MESOS_GPU_CHANNEL"
BEGUN_S: Final = 2.0  # an engine reports a task as running some milliseconds before its program runs


@dataclass(frozen=True, slots=True)
class _Order:
    """Order for the joining process; numbers are descriptors that it inherits."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cgroups: tuple[str, ...]  # cgroup directories to join
    namespaces: tuple[int, ...]
    forks: bool  # whether to fork: a pid namespace contains only processes that are made after joining it
    root: int
    directory: int
    user: tuple[int, int, tuple[int, ...]]  # uid, gid, supplementary groups
    capabilities: int  # bounding set
    no_new_privileges: bool
    domain: bool
    signals: bool  # whether it may signal only its own children
    program: bytes
    # stdin, stdout and stderr; if empty, no input, and both outputs go to the pipe for failures
    streams: tuple[int, ...] = ()
    terminal: bool = False  # whether the first stream is its controlling terminal
    work: str = ""  # module whose `main` is called with `argv`, in place of a program; "" for a program


class Running(Protocol):
    """A command that runs beside a task."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal that ended the command; None if the command is running."""

    def wait(self, within_s: float | None = None) -> int | None:
        """Wait for the end of the command, at most `within_s` seconds; return the result of `poll`."""

    def processes(self) -> list[int]:
        """Return the ids of the command's process and its descendants that have not been reaped."""

    def close(self) -> None:
        """Free the resources of the command, whose processes have been ended."""

    def gone(self) -> bool:
        """Return whether the command's process was reaped; a process that waits in a driver may remain for long."""


class Joining:
    """A command run by an interpreter that joins the task from outside; implements `Running`.

    Args:
        process: Process that was just started in a session of its own.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        self._process, self.output, self.pid = process, process.stdout, process.pid

    def why(self) -> tuple[str, int | None]:
        """Wait until the program is executed; return "" and None, or the reason of the failure and the exit code."""
        if not (words := self.output.read(_MAX_WORDS)):
            return "", None
        return words.decode(errors="replace"), self._process.wait()

    def poll(self) -> int | None:
        """Return the exit code; see `Running.poll`. The process is not reaped, so that its id cannot be reused before
        its session is ended."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            child = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # reaped by the code that ends the task
            return -int(signal.SIGKILL)
        if child is None:
            return None
        return child.si_status if child.si_code == os.CLD_EXITED else -child.si_status

    def wait(self, within_s: float | None = None) -> int | None:
        """Wait for the end; see `Running.wait`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode

    def processes(self) -> list[int]:
        """Return the ids of its processes; see `Running.processes`."""
        return [] if self._process.returncode is not None else [self.pid, *processes.descendants(self.pid)]

    def close(self) -> None:
        """Kill the process group of the command."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def gone(self) -> bool:
        """Reap the process; see `Running.gone`."""
        if self._process.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, int(signal.SIGKILL)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode is not None


class Place:
    """Namespaces, cgroups, rights and environment of a running task, for starting processes beside it.

    Close it when the task has ended: its files keep the task's mounts.

    Args:
        pid: Pid of the task's first process as this process sees it.
        task: Task id; a process without it in its environment is not the task's.
        session: Function that returns a new session of the task's inner process; None if the task has none.

    Raises:
        OSError: The process has ended, or cannot be read.
    """

    def __init__(self, pid: int, task: str, session: Callable[[], Inner] | None = None) -> None:
        self._files: list[int] = []
        self._session = session
        try:
            env = _environment(pid, task)
            self._order = self._read(pid, env)
            _environment(pid, task)  # checked again: so it was the task's process all the time
        except OSError:
            self.close()
            raise

    def _read(self, pid: int, env: dict[str, str]) -> _Order:
        """Read the place of a process."""
        status = _status(pid)
        user = (int(status["Uid"].split()[1]), int(status["Gid"].split()[1]), _numbers(status["Groups"]))
        if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
            raise PermissionError(1, "the task is in a user namespace of its own")
        if user[0] == 0 and os.stat(f"/proc/{pid}/root") != os.stat("/"):
            # The image's /bin/sh could lead to the file of the joining interpreter, which root of the image
            # may write to (as CVE-2019-5736 did to runc).
            raise PermissionError(1, "the task is an image that runs as root")
        bound = status["NoNewPrivs"] == "1"
        apart = apart_of(os.environ) if bound else Apart()
        others = [name for name in _NAMESPACES if _is_other(pid, name)]
        return _Order(
            argv=(),
            env=env,
            cgroups=tuple(_other_cgroups(pid)),
            namespaces=tuple(self._open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in others),
            forks="pid" in others,
            root=self._open(f"/proc/{pid}/root", os.O_PATH),
            directory=self._open(f"/proc/{pid}/cwd", os.O_PATH),
            user=user,
            capabilities=int(status["CapBnd"], 16),
            no_new_privileges=bound,
            domain=apart.domain,
            # The Landlock domain of the task cannot be entered. Without a pid namespace that blocks signals, the
            # command may send signals only to its own children.
            signals="pid" not in others,
            program=apart.program,
        )

    def _open(self, path: str, flags: int) -> int:
        self._files.append(os.open(path, flags | os.O_CLOEXEC))
        return self._files[-1]

    def start(self, command: str) -> tuple[Running, int]:
        """Start `/bin/sh -c command` beside the task, in a session of its own.

        Returns:
            The command, and the descriptor from which its stdout and stderr are read. A command that cannot join the
            task exits with 125 and writes the reason there.

        Raises:
            OSError: The command cannot be started.
        """
        argv = ("/bin/sh", "-c", command)
        if self._session is None:
            joining = self._start(argv=argv)
            with joining.output:
                return joining, os.dup(joining.output.fileno())
        reads, writes = os.pipe()
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._born(argv, self._order.env, (null, writes, writes), terminal=False), reads
        except OSError:
            os.close(reads)
            raise
        finally:
            os.close(writes)
            os.close(null)

    def _born(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        terminal: bool,
    ) -> Running:
        assert self._session is not None
        return Command(self._session(), argv, env, streams, self._order.directory, terminal=terminal)

    def run(
        self, argv: tuple[str, ...], env: Mapping[str, str], streams: tuple[int, int, int], *, terminal: bool
    ) -> Running:
        """Start a command beside the task, in a session of its own.

        A command that joins from outside and cannot be executed exits with 125, 126 or 127, and gives the
        reason by `Joining.why`.

        Args:
            argv: Command; the first word is searched in its PATH.
            env: Variables that are added to the task's.
            streams: Descriptors of stdin, stdout and stderr.
            terminal: Whether these are a terminal that becomes its controlling terminal.

        Raises:
            NotExecuted: The program does not exist in the task, or may not be executed.
            OSError: The command cannot be started for another reason.
        """
        given = {**self._order.env, **env}
        if self._session is None:
            return self._start(argv=argv, env=given, streams=streams, terminal=terminal)
        return self._born(argv, given, streams, terminal=terminal)

    def work(self, module: str, words: tuple[str, ...], streams: tuple[int, int, int]) -> Joining:
        """Start `main(words)` of a module of ours beside the task, as `run` starts a program.

        The module is imported before the task is joined; afterwards nothing of ours can be imported, and only
        the streams are open. The process has the task's rights; processes of the task cannot attach to it,
        and it cannot send signals.

        Raises:
            OSError: It cannot be started.
        """
        return self._start(argv=words, env={}, streams=streams, work=module, signals=True)

    @property
    def sandbox(self) -> str:
        """The task's sandbox, as the task sees it."""
        env = self._order.env
        return env.get("MESOS_SANDBOX") or env.get("MESOS_DIRECTORY") or "."

    @property
    def root(self) -> int:
        """Descriptor of the task's root directory."""
        return self._order.root

    @property
    def owner(self) -> tuple[int, int]:
        """Uid and gid of the task."""
        return self._order.user[:2]

    def _start(self, **more: Any) -> Joining:
        order = replace(self._order, **more)
        words = marshal.dumps(asdict(order))
        order_file = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            os.write(order_file, words)
            os.lseek(order_file, 0, os.SEEK_SET)
            return Joining(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", joined.__file__],
                    stdin=order_file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={},
                    pass_fds=(*self._files, *order.streams),
                    start_new_session=True,
                    bufsize=0,
                )
            )
        finally:
            os.close(order_file)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.pop())


class KeptPlace(Place):
    """Sandbox of an ended task; processes started there have it as root directory, and no capabilities.

    Args:
        sandbox: Path of the sandbox; only root may be able to change the path's directories.

    Raises:
        OSError: The sandbox does not exist, or is a link.
    """

    def __init__(self, sandbox: str) -> None:
        self._files: list[int] = []
        self._session = None
        directory = self._open(sandbox, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        apart = apart_of(os.environ)
        self._order = _Order(
            argv=(),
            env={},
            cgroups=(),
            namespaces=(),
            forks=False,
            root=directory if os.geteuid() == 0 else self._open("/", os.O_PATH),
            directory=directory,
            user=(os.geteuid(), os.getegid(), ()),
            capabilities=0,
            no_new_privileges=True,
            domain=apart.domain,
            signals=True,
            program=apart.program,
        )


def first_of(pids: Callable[[], Iterable[int]], task: str) -> int | None:
    """Wait for a process that has a task's id in its environment; return the lowest such pid, or None after
    `BEGUN_S`.
    """
    deadline = time.monotonic() + BEGUN_S
    while True:
        for pid in sorted(pids()):
            with contextlib.suppress(OSError):
                if _variables(pid).get("MESOS_TASK_ID") == task:
                    return pid
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)


def carrying(pids: Iterable[int], task: str) -> list[int]:
    """Return those of the processes that have a task's id in their environment, except sessions' commands."""
    carriers = []
    for pid in pids:
        with contextlib.suppress(OSError):
            variables = _variables(pid)
            if variables.get("MESOS_TASK_ID") == task and MARK not in variables:
                carriers.append(pid)
    return carriers


def _environment(pid: int, task: str) -> dict[str, str]:
    """Return the environment with which a process' program began; wait until the program is executed.

    Before that the environment is empty, or that of the program that started it.
    """
    deadline = time.monotonic() + BEGUN_S
    while (variables := _variables(pid)).get("MESOS_TASK_ID") != task:
        if time.monotonic() > deadline:
            raise ProcessLookupError(3, "the process is not the task's, or has ended")
        time.sleep(0.002)
    return variables


def _variables(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


def _is_other(pid: int, name: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
    except FileNotFoundError:
        if os.path.exists(f"/proc/self/ns/{name}"):
            raise  # it is the process that is gone, not a kind of namespace that this kernel lacks
        return False


def _other_cgroups(pid: int) -> list[str]:
    """Return the directories of the cgroups that a process is in and this one is not."""
    mine, directories = cgroups_of("self"), []
    for hierarchy, path in cgroups_of(pid).items():
        if mine.get(hierarchy) != path:
            directories.append(f"{mounted_with(hierarchy)}{path}")
    return directories
