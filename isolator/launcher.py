"""The process that becomes the task: forked while the executor has one thread, told later what to become.

A fork of a program with threads may find locks held for ever (fork(2)); this one is made before there are any.
"""

import ctypes
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from isolator import view
from isolator.fence import see_denied

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24  # linux/prctl.h
LAST_CAP: Final = 63  # dropping one that the kernel does not have is EINVAL, and harmless
#: What a task that runs as root keeps (linux/capability.h): enough to own files and change users; it can make no
#: node, mount nothing, trace no other's process, load no program. CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID,
#: SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT, SETFCAP. Not NET_RAW: a raw socket goes round the denied ports.
ROOT_KEEPS: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31})


class LaunchFailed(OSError):
    """The launcher could not become the task; `step` says how far it came."""

    def __init__(self, step: str, number: int, text: str) -> None:
        """As `OSError`."""
        super().__init__(number, text)
        self.step = step


@dataclass(frozen=True, slots=True)
class Order:
    """What to become.

    Attributes:
        user: uid, gid and supplementary groups; None: as the executor.
        cgroups: Directories of cgroups to join.
        nodes: For a /dev of its own: what to see there, and the node on the host; None: the host's /dev.
        refused: With `nodes`, the path of a node that must be denied once the cgroups are joined.
        volume: With `nodes`, the driver volume to put at /usr/local/nvidia; "": none.
        mounts: With `nodes`, of each path of the host where the task has it, relative: in `cwd`, and whether it may
            only read.
        denied: Port, and address or None for any, that must be denied once the cgroups are joined.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    user: tuple[int, int, tuple[int, ...]] | None = None
    cgroups: tuple[str, ...] = ()
    nodes: tuple[tuple[str, str], ...] | None = None
    refused: str = ""
    volume: str = ""
    mounts: tuple[tuple[str, str, bool], ...] = ()
    denied: tuple[tuple[int, str | None], ...] = ()


@dataclass(slots=True)
class Launcher:
    """The parent's end. Of `start` and `dismiss` one is called, once."""

    pid: int
    _socket: socket.socket = field(repr=False)

    @classmethod
    def fork(cls) -> Self:
        """Make the process; it waits. To be called while there is one thread."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _run(theirs)
        theirs.close()
        return cls(pid, ours)

    def start(self, order: Order) -> None:
        """Have it become the task.

        Raises:
            LaunchFailed: It could not; it has ended.
        """
        with self._socket:
            self._socket.sendall(json.dumps(asdict(order)).encode())
            self._socket.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: self._socket.recv(65536), b""))
        if said:
            self.wait()
            raise LaunchFailed(**json.loads(said))

    def wait(self) -> int:
        """Until it has ended: its exit status, or minus the signal that ended it."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # collected by whoever ended it
            return -signal.SIGKILL

    def dismiss(self) -> None:
        """It is not needed: end it."""
        self._socket.close()
        self.wait()


def _run(theirs: socket.socket) -> None:
    """The child's life."""
    os.closerange(3, theirs.fileno())
    os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    step = "order"
    try:
        text = b"".join(iter(lambda: theirs.recv(65536), b""))
        if not text:
            os._exit(0)
        order = json.loads(text)
        for name, action in _steps(order):
            step = name
            action()
    except OSError as error:
        _fail(theirs, step, error.errno or 0, error.strerror or str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is: the parent waits for a word
        _fail(theirs, step, 0, repr(error))
    os._exit(255)


def _fail(theirs: socket.socket, step: str, number: int, text: str) -> None:
    theirs.sendall(json.dumps({"step": step, "number": number, "text": text}).encode())
    os._exit(255)


def _steps(order: Mapping[str, Any]) -> list[tuple[str, Callable[[], None]]]:
    """In order. The view is made before the cgroup is joined and frozen after; rights go last but exec."""
    steps: list[tuple[str, Callable[[], None]]] = [("session", _session)]
    if order["nodes"] is not None:
        denied = os.open(order["refused"], os.O_PATH | os.O_CLOEXEC)  # by then it is out of sight
        nodes = [(seen, path) for seen, path in order["nodes"]]
        steps += [("namespace", view.enter)]
        if order["volume"]:
            steps += [("volume", lambda: view.mount_volume(order["volume"]))]
        steps += [("dev", lambda: view.make_dev(nodes))]
    steps += [("cgroup", lambda path=path: _join(path)) for path in order["cgroups"]]  # type: ignore[misc]
    steps += [("ports", lambda probe=probe: see_denied(probe)) for probe in order["denied"]]  # type: ignore[misc]
    if order["nodes"] is not None:
        steps += [("cgroups", view.freeze_cgroups)]
        steps += [("verify", lambda: _verify([seen for seen, _ in nodes], denied))]
        # As late as can be: from here on nothing of the host's file system is used.
        steps += [("mounts", lambda: view.mount_paths(order["mounts"], order["cwd"]))]
    steps += [
        ("cwd", lambda: os.chdir(order["cwd"])),
        ("rights", lambda: _drop(order["user"])),
        ("exec", lambda: os.execvpe(order["argv"][0], order["argv"], order["env"])),
    ]
    return steps


def _session() -> None:
    os.setsid()
    os.umask(0o022)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(number, signal.SIG_DFL)


def _join(path: str) -> None:
    with open(f"{path}/cgroup.procs", "w") as file:
        file.write("0")


def _verify(granted: list[str], denied: int) -> None:
    """See `Enclosure.verify`; here it is for a cgroup that only the task is in."""
    for path in granted:
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(1, f"{path} is granted, and denied by a cgroup above")
    if os.access(f"/proc/self/fd/{denied}", os.R_OK | os.W_OK):
        raise PermissionError(1, "the rules of the task's cgroup deny nothing")


def _drop(user: list[Any] | None) -> None:
    """No new privileges, a bounding set that fits, and the job's user."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.geteuid() == 0:
        keeps = ROOT_KEEPS if user is None or user[0] == 0 else frozenset()
        for capability in range(LAST_CAP + 1):
            if capability not in keeps:
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if user is not None:
        uid, gid, groups = user
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
