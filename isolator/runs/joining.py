"""A command beside a running task: as its user, with its environment, in its namespaces and cgroups.

Where a task is, is read from its process when it has just been started, and kept by files: a process id may belong to
another process later. What joins it is a fresh interpreter that runs `joined`, for nothing may be done between fork
and exec of a program with threads.

Sources: setns(2), namespaces(7), proc_pid_status(5), cgroups(7), capabilities(7).
"""

import contextlib
import marshal
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from isolator.confinement.apart import FILTER, Apart, apart_of
from isolator.runs import joined

_NAMESPACES: Final = ("cgroup", "ipc", "uts", "net", "pid", "mnt")  # the mounts last: then this /proc is gone
BEGUN_S: Final = 2.0  # an engine says that a task runs some milliseconds before its program does


@dataclass(frozen=True, slots=True)
class _Order:
    """What the joining process is to do. Numbers are of files that it inherits."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cgroups: tuple[str, ...]  # directories to join
    namespaces: tuple[int, ...]
    forks: bool  # a namespace of processes holds only those that are made after it is joined
    root: int
    directory: int
    user: tuple[int, int, tuple[int, ...]]  # uid, gid, supplementary groups
    capabilities: int  # the most that it may ever have
    no_new_privileges: bool
    domain: bool
    signals: bool  # whether it signals nobody but its own children
    program: bytes
    streams: tuple[int, ...] = ()  # its stdin, stdout and stderr; none: nothing, and both where failures go
    terminal: bool = False  # whether the first of them is its controlling terminal
    work: str = ""  # a module whose `main` is called with the words, in place of a program; "": none


class Place:
    """Where a task is. Close it when the task has ended: its files keep the task's mounts."""

    def __init__(self, pid: int, task: str) -> None:
        """Read it.

        Args:
            pid: Of the task's first process, as this one sees it.
            task: Its id; a process that does not carry it in its environment is another.

        Raises:
            OSError: It has ended, or cannot be seen.
        """
        self._files: list[int] = []
        try:
            env = _environment(pid, task)
            self._order = self._read(pid, env)
            _environment(pid, task)  # so it was the task's all the time
        except OSError:
            self.close()
            raise

    def _read(self, pid: int, env: dict[str, str]) -> _Order:
        status = _status(pid)
        user = (int(status["Uid"].split()[1]), int(status["Gid"].split()[1]), _numbers(status["Groups"]))
        if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
            raise PermissionError(1, "it is in a user namespace of its own")
        if user[0] == 0 and os.stat(f"/proc/{pid}/root") != os.stat("/"):
            # Its /bin/sh could be a way to the file of the interpreter that joins, which root of the image may
            # write to (as CVE-2019-5736 did to runc).
            raise PermissionError(1, "it is an image that runs as root")
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
            signals=os.environ.get(FILTER) == "strict",  # the task's own domain cannot be entered
            program=apart.program,
        )

    def _open(self, path: str, flags: int) -> int:
        self._files.append(os.open(path, flags | os.O_CLOEXEC))
        return self._files[-1]

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start `/bin/sh -c command` there, in a session of its own; both its streams come through `stdout`. It
        exits with 125 and says why if it cannot get there.

        Raises:
            OSError: It cannot be started.
        """
        return self._start(argv=("/bin/sh", "-c", command))

    def run(
        self, argv: tuple[str, ...], env: Mapping[str, str], streams: tuple[int, int, int], *, terminal: bool
    ) -> subprocess.Popen[bytes]:
        """Start a command there, in a session of its own. Its `stdout` says why it cannot get there or what it cannot
        execute, and ends when it is executed; then it exits with 125, 126 or 127.

        Args:
            argv: The first word is looked for in its PATH.
            env: Beside the task's.
            streams: Its stdin, stdout and stderr.
            terminal: Whether these are one that is to be its controlling terminal.

        Raises:
            OSError: It cannot be started.
        """
        given = {**self._order.env, **env}
        return self._start(argv=argv, env=given, streams=streams, terminal=terminal)

    def work(
        self, module: str, words: tuple[str, ...], streams: tuple[int, int, int]
    ) -> subprocess.Popen[bytes]:
        """Start `main(words)` of a module of ours there, as `run` does a program. It is imported before the task is
        joined; afterwards nothing of ours can be, and nothing but the streams is open. The process has the task's
        rights, and no process of the task may look into it.

        Raises:
            OSError: It cannot be started.
        """
        return self._start(argv=words, env={}, streams=streams, work=module)

    @property
    def sandbox(self) -> str:
        """The task's directory, as it sees it."""
        env = self._order.env
        return env.get("MESOS_SANDBOX") or env.get("MESOS_DIRECTORY") or "."

    @property
    def owner(self) -> tuple[int, int]:
        """The uid and the gid of the task."""
        return self._order.user[:2]

    def _start(self, **more: Any) -> subprocess.Popen[bytes]:
        order = replace(self._order, **more)
        words = marshal.dumps(asdict(order))
        told = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            os.write(told, words)
            os.lseek(told, 0, os.SEEK_SET)
            return subprocess.Popen(
                [sys.executable, "-I", "-S", joined.__file__],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                pass_fds=(*self._files, *order.streams),
                start_new_session=True,
                bufsize=0,
            )
        finally:
            os.close(told)

    def close(self) -> None:
        """Let go of it."""
        while self._files:
            os.close(self._files.pop())


def first_of(pids: Callable[[], Iterable[int]], task: str) -> int | None:
    """The lowest of the processes that carries a task's id, as soon as there is one; None: there is none in time."""
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
    """Find those of the processes that carry a task's id in their environment."""
    carriers = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if _variables(pid).get("MESOS_TASK_ID") == task:
                carriers.append(pid)
    return carriers


def _environment(pid: int, task: str) -> dict[str, str]:
    """That its program began with: it is seen empty, or is of what started it, until that is executed."""
    deadline = time.monotonic() + BEGUN_S
    while (variables := _variables(pid)).get("MESOS_TASK_ID") != task:
        if time.monotonic() > deadline:
            raise ProcessLookupError(3, "it is not the task's, or has ended")
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
    """Directories of the cgroups that a process is in and this one is not."""
    mine, directories = cgroups_of("self"), []
    for hierarchy, path in cgroups_of(str(pid)).items():
        if mine.get(hierarchy) != path:
            directories.append(mount_of(hierarchy) + path)
    return directories


def cgroups_of(pid: str) -> dict[str, str]:
    """The paths of the process's cgroups, by their controllers as /proc names them; "" is version 2."""
    with open(f"/proc/{pid}/cgroup", errors="surrogateescape") as file:
        return {
            controllers: path for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in file)
        }


def mount_of(hierarchy: str) -> str:
    """Where a hierarchy with these controllers is mounted; "" is version 2.

    Raises:
        FileNotFoundError: Nowhere.
    """
    with open("/proc/self/mounts", errors="surrogateescape") as file:
        for line in file:
            _, point, kind, options, *_ = line.split(" ")
            if kind == "cgroup2" and not hierarchy:
                return point
            if kind == "cgroup" and hierarchy and set(hierarchy.split(",")) <= set(options.split(",")):
                return point
    raise FileNotFoundError(2, f"the cgroups of {hierarchy or 'version 2'} are mounted nowhere")
