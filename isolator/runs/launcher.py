"""Launcher: the process that becomes the task, forked while the executor has one thread, and given its order
later.

A fork of a program with threads may find locks held for ever (fork(2)); this one is made before there are
any.
"""

import _socket
import contextlib
import ctypes
import errno
import json
import os
import signal
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from isolator.confinement import apart_sys, inner
from isolator.confinement.fence import Probe, see_denied
from isolator.devices import view
from isolator.host import processes

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24  # linux/prctl.h
LAST_CAP: Final = 63  # dropping a capability that the kernel lacks is EINVAL, and harmless
#: Capabilities of a task that runs as root (linux/capability.h): enough to own files and change users, but
#: not to make nodes, mount, trace processes of others, or load programs. CHOWN, DAC_OVERRIDE, FOWNER, FSETID,
#: KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT, SETFCAP. Not NET_RAW: a raw socket bypasses
#: the denied ports.
ROOT_KEEPS: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31})
MAX_WORDS: Final = 65536  # most bytes of a helper's output that are kept


class LaunchFailed(OSError):
    """Error: the launcher could not become the task.

    Attributes:
        step: Step that failed.
    """

    def __init__(self, step: str, number: int, text: str) -> None:
        super().__init__(number, text)
        self.step = step


@dataclass(frozen=True, slots=True)
class Order:
    """Settings of a process that the launcher becomes.

    Attributes:
        user: uid, gid and supplementary groups; None for the executor's.
        cgroups: Directories of cgroups to join.
        nodes: Nodes of a /dev of its own (path there, node on the host); None for the host's /dev.
        refused: Node that must be denied once the cgroups are joined; "" to verify nothing.
        volume: Driver volume to mount at /usr/local/nvidia, or "". Needs `nodes`.
        mounts: Bind mounts (path on the host, path in the task, read-only); relative paths are in `cwd`.
            Needs `nodes`.
        identities: Device and inode that each of `mounts` must have.
        given: Further bind mounts, for the task's share. Needs `nodes`.
        denied: Ports that must be denied once the cgroups are joined.
        private_mib: Size in MiB of a /tmp, /var/tmp and /dev/shm of its own, 0 for half of the memory; None
            for the host's. Needs `nodes`.
        keeps: Capabilities that root keeps; other users keep none.
        hidden: Directories of the host of which the task sees only its own sandbox. Needs `nodes`.
        processes: Most processes of its user on the host; 0 for any number.
        domain, sockets, filter: Settings of `apart.Apart`; the filter in hexadecimal digits.
        secret: Whether the environment has secrets, so that no core dump may be made of the process.
        secret_files: Files of secrets (path in the sandbox, content in base64). Needs `nodes`.
        inner: Whether an inner process is started, for commands beside the task.
        root: Root of the task's image, by fields of `image_root.RootOrder`, with `nodes`; None for the
            host's. With it `cwd` is a path in it, and `volume`, `mounts`, `given`, `private_mib` and `hidden`
            are not used.
        libraries: Directories of the image in which no libcuda may be found (`own_cuda`); None for no check.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    user: tuple[int, int, tuple[int, ...]] | None = None
    cgroups: tuple[str, ...] = ()
    nodes: tuple[tuple[str, str], ...] | None = None
    refused: str = ""
    volume: str = ""
    mounts: tuple[tuple[str, str, bool], ...] = ()
    identities: tuple[tuple[int, int], ...] = ()
    given: tuple[tuple[str, str, bool], ...] = ()
    denied: tuple[Probe, ...] = ()
    keeps: tuple[int, ...] = tuple(ROOT_KEEPS)
    private_mib: int | None = None
    hidden: tuple[str, ...] = ()
    processes: int = 0
    domain: bool = False
    sockets: bool = True
    filter: str = ""
    secret: bool = False
    secret_files: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    inner: bool = False
    root: Mapping[str, Any] | None = None
    libraries: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Helped:
    """Result of a helper: exit status, or minus the signal that ended it, and the end of its output."""

    code: int
    said: str


@dataclass(slots=True)
class Launcher:
    """Handle of the launch process in the executor. Call exactly one of `start` and `dismiss`, after any
    number of `help`.

    Attributes:
        pid: Process id of the launch process, which becomes the task.
        inner: Socket to the inner process, which the launch process starts before it becomes the task.
    """

    pid: int
    inner: _socket.socket
    _line: _socket.socket = field(repr=False)

    @classmethod
    def fork(cls) -> Self:
        """Fork the process, which waits for orders; to be called while there is one thread."""
        ours, theirs = _socket.socketpair()
        outside, inside = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            _run(theirs, (inside.fileno(), outside.fileno()))
        theirs.close()
        inside.close()
        return cls(pid, outside, ours)

    def start(self, order: Order) -> None:
        """Make the process become the task.

        Raises:
            LaunchFailed: It could not, and has ended.
        """
        with contextlib.closing(self._line):
            self._tell("start", order)
            failure = _read(self._line.fileno())
        if failure:
            self.wait()
            raise LaunchFailed(**json.loads(failure))

    def help(self, order: Order) -> Helped:
        """Run a helper for the task as a child of the process, isolated like the task, and wait for its end.

        Raises:
            LaunchFailed: It could not be isolated or started.
            OSError: The process has ended.
        """
        self._tell("help", order)
        with open(self._line.fileno(), "rb", closefd=False) as file:
            answer = file.readline()
        if not answer:
            raise ProcessLookupError(3, "the process that becomes the task has ended")
        done = json.loads(answer)
        if "step" in done:
            raise LaunchFailed(**done)
        return Helped(**done)

    def abort(self) -> None:
        """Kill the running helper, from any thread."""
        processes.send(processes.descendants(self.pid), signal.SIGKILL)

    def _tell(self, what: str, order: Order) -> None:
        self._line.sendall(json.dumps([what, asdict(order)]).encode() + b"\n")

    def wait(self) -> int:
        """Wait for the end of the process, and end its inner process; return the exit status, or minus the signal."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # reaped by the code that ended it
            return -signal.SIGKILL
        finally:
            self.inner.close()

    def dismiss(self) -> None:
        """End the process, which is not needed."""
        self._line.close()
        self.wait()


def _run(theirs: _socket.socket, sockets: tuple[int, int]) -> None:
    """Run the launch process until it becomes the task.

    Args:
        sockets: Arguments of `inner.leave`.
    """
    first = 3
    for fd in sorted((theirs.fileno(), *sockets)):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    with open(theirs.fileno(), "rb", closefd=False) as orders:
        for line in orders:
            what, order = json.loads(line)
            if what == "start":
                _become(theirs.fileno(), order, sockets)
            os.write(theirs.fileno(), _help(theirs, order) + b"\n")
    os._exit(0)


def _help(theirs: _socket.socket, order: Mapping[str, Any]) -> bytes:
    """Run a helper as a child; return the answer for the executor."""
    (failure, fails), (words, says) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        theirs.close()
        os.dup2(says, 1)
        os.dup2(says, 2)
        _become(fails, order)
    os.close(fails)
    os.close(says)
    failed = _read(failure)
    output = _read(words, MAX_WORDS)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(failure)
    os.close(words)
    return failed or json.dumps({"code": code, "said": output.decode(errors="replace")}).encode()


def _read(fd: int, most: int = 1 << 20) -> bytes:
    """Read to the end; return the last `most` bytes."""
    tail = b""
    while data := os.read(fd, 65536):
        tail = (tail + data)[-most:]
    return tail


def _become(fails: int, order: Mapping[str, Any], sockets: tuple[int, int] = (-1, -1)) -> None:
    """Become the task; does not return.

    Args:
        fails: Descriptor to which the reason of a failure is written; closed by exec.
        order: Settings of the task; see `Order`.
        sockets: Arguments of `inner.leave`; -1 for no inner process.
    """
    step = "order"
    try:
        for name, action in _steps(order, sockets):
            step = name
            action()
    except OSError as error:
        _fail(fails, step, error.errno or 0, error.strerror or str(error))
    except Exception as error:  # noqa: BLE001 - any error must be reported, as the parent waits for an answer
        _fail(fails, step, 0, repr(error))
    os._exit(255)


def _fail(fails: int, step: str, number: int, text: str) -> None:
    os.write(fails, json.dumps({"step": step, "number": number, "text": text}).encode())
    os._exit(255)


def _steps(order: Mapping[str, Any], sockets: tuple[int, int]) -> list[tuple[str, Callable[[], None]]]:
    """Return the steps in their order: the view is made before the cgroup is joined and frozen after; rights
    go last but exec.
    """
    steps: list[tuple[str, Callable[[], None]]] = [("session", _session)]
    # Imported only if needed, and now, as our own code may be out of sight later.
    if order["secret_files"]:
        from isolator.secrets import mount
    if order["processes"] or order["secret"]:
        import resource  # noqa: F401 # `_limit` and `_no_cores` import it
    nodes = [(seen, path) for seen, path in order["nodes"] or ()]
    if order["refused"]:
        # opened now, as it is out of sight later
        denied = os.open(order["refused"], os.O_PATH | os.O_CLOEXEC)
    image = _image_root(order)
    if order["nodes"] is not None:
        own = order["private_mib"] is not None or bool(image)
        steps += [("namespace", lambda: view.enter(ipc=own))]
        if order["volume"]:
            steps += [("volume", lambda: view.mount_volume(order["volume"]))]
        steps += [("dev", lambda: view.make_dev(nodes, own=own))]
    steps += [("cgroup", lambda path=path: _join(path)) for path in order["cgroups"]]  # type: ignore[misc]
    steps += [("ports", lambda probe=probe: see_denied(probe)) for probe in order["denied"]]  # type: ignore[misc]
    if order["nodes"] is not None:
        is_root = (order["user"] or [os.geteuid()])[0] == 0
        steps += [("cgroups", lambda: view.freeze_cgroups(hides=is_root))]
    if order["refused"]:
        steps += [("verify", lambda: _verify([seen for seen, _ in nodes], denied))]
    # As late as possible: from here on nothing of the host's file system is used.
    steps += image or _host_mounts(order)
    if order["nodes"] is not None:
        if order["secret_files"]:
            steps += [("secrets", lambda: _show_secrets(mount.show, order["secret_files"], order["user"]))]
        steps += [("sandboxes", lambda: view.hide(order["hidden"], order["cwd"]))]
    steps += [
        ("cwd", lambda: os.chdir(order["cwd"])),
        *([("processes", lambda: _limit(order["processes"]))] if order["processes"] else []),
        *([("cores", _no_cores)] if order["secret"] else []),
        ("rights", lambda: _drop(order["user"], order["keeps"])),
        *(
            [("links", lambda: _link_secrets(mount.link, order["secret_files"]))]
            if order["secret_files"]
            else []
        ),
        *([("directory", lambda: os.chdir(order["root"]["directory"]))] if image else []),
        *_fence(order),
        *([("inner", lambda: inner.leave(*sockets))] if order["inner"] else []),
        ("exec", lambda: os.execvpe(order["argv"][0], order["argv"], order["env"])),
    ]
    return steps


def _host_mounts(order: Mapping[str, Any]) -> list[tuple[str, Callable[[], None]]]:
    """Return the steps that mount a task's paths into its view of the host's file system; none without a
    view.
    """
    steps: list[tuple[str, Callable[[], None]]] = []
    if order["nodes"] is None:
        return steps
    covered = dict[str, int]()
    if order["private_mib"] is not None:
        steps += [
            ("cwd", lambda: os.chdir(order["cwd"])),  # fails if it does not exist
            ("private", lambda: covered.update(view.make_private(order["private_mib"], order["cwd"]))),
        ]
    if order["given"]:
        steps += [("share", lambda: view.mount_paths(order["given"], order["cwd"], covered))]
    mounts, known = order["mounts"], order["identities"]
    return [*steps, ("mounts", lambda: view.mount_paths(mounts, order["cwd"], covered, known))]


def _image_root(order: Mapping[str, Any]) -> list[tuple[str, Callable[[], None]]]:
    """Return the steps that give a task the root of its image; none without an image."""
    if order["root"] is None:
        return []
    from isolator.devices.image_root import MERGED, ImageRoot

    root = ImageRoot(order["root"])
    steps: list[tuple[str, Callable[[], None]]] = [("overlay", root.overlay), ("image", root.fill)]
    if order["libraries"] is not None:
        from isolator.host.not_started import NotStarted
        from isolator.shares.own_cuda import libcuda_of

        def see() -> None:
            try:
                own = libcuda_of(f"{order['root']['place']}/{MERGED}", order["libraries"])
            except NotStarted as error:
                raise OSError(errno.E2BIG, str(error)) from error
            if own:
                raise OSError(errno.EEXIST, own)

        steps += [("libcuda", see)]
    return [*steps, ("root", root.enter)]


def _fence(order: Mapping[str, Any]) -> list[tuple[str, Callable[[], None]]]:
    """Return the steps that enter the Landlock domain and install the seccomp filter."""
    steps: list[tuple[str, Callable[[], None]]] = []
    if order["domain"]:
        steps += [("domain", lambda: apart_sys.enter_domain(sockets=order["sockets"]))]
    if program := bytes.fromhex(order["filter"]):
        steps += [("filter", lambda: apart_sys.install(program))]
    return steps


def _session() -> None:
    os.setsid()
    os.umask(0o022)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(number, signal.SIG_DFL)


def _limit(most: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _no_cores() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (apart_sys.NO_CORE, apart_sys.NO_CORE))


def _show_secrets(
    show: Callable[[Mapping[str, bytes], int, int], None],
    files: Sequence[Sequence[str]],
    user: list[Any] | None,
) -> None:
    uid, gid = (user[0], user[1]) if user is not None else (os.geteuid(), os.getegid())
    show({path: a2b_base64(value) for path, value in files}, uid, gid)


def _link_secrets(link: Callable[[list[str], str], None], files: Sequence[Sequence[str]]) -> None:
    link([path for path, _ in files], os.getcwd())


def _join(path: str) -> None:
    with open(f"{path}/cgroup.procs", "w") as file:
        file.write("0")


def _verify(granted: list[str], denied: int) -> None:
    """Check granted and denied devices, as `Enclosure.verify`, for a cgroup that contains only the task."""
    for path in granted:
        writable = os.stat(path).st_mode & 0o222
        if not os.access(path, os.R_OK | (os.W_OK if writable else 0)):
            raise PermissionError(1, f"{path} is granted, but denied by a cgroup above")
    if os.access(f"/proc/self/fd/{denied}", os.R_OK | os.W_OK):
        raise PermissionError(1, "the rules of the task's cgroup deny nothing")


def _drop(user: list[Any] | None, root_keeps: Sequence[int]) -> None:
    """Allow no new privileges, reduce the bounding set, and become the job's user."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.geteuid() == 0:
        keeps = frozenset(root_keeps if user is None or user[0] == 0 else ())
        for capability in range(LAST_CAP + 1):
            if capability not in keeps:
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if user is not None:
        uid, gid, groups = user
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
