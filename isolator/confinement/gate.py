"""Gate: the first program in an image's container. It waits until the executor has put it behind the fence,
verifies from inside that the fence denies, and becomes the task's command.

A container is started by the agent or the Docker Engine in a cgroup of their choice. So its first program is
not the command, but one of less than 1000 bytes that needs nothing of the image. It connects to a Unix socket
that is bound into the container, and waits for its order. Until then nothing of the task has run.

    socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC), connect, read      the order: see `_order`
    socket(AF_INET, SOCK_DGRAM), sendto the denied port                any answer but EPERM: exit 125
    prctl(PR_SET_NO_NEW_PRIVS)                                         each of these four that fails: write and
    landlock_create_ruleset, open "/", landlock_add_rule,              exit 124
    landlock_restrict_self                                             if there is to be a domain
    prctl(PR_SET_SECCOMP)                                              if there is to be a filter
    socket, connect; clone(CLONE_PARENT | CLONE_VFORK), in the child    if there is to be an inner process: before
    dup2 of the socket to 0, execve of that                            anything of the task can connect
    write one byte; prlimit64(RLIMIT_CORE) if the order has variables; any failure: write and exit 124
    execve each path in turn; write the exit code; exit 127 if the last is not there, else 126

Sources: elf(5), landlock(7), seccomp(2), the System V ABI of each machine for the contents of the stack at
the start, syscalls(2), unix(7).
"""

import contextlib
import os
import select
import shutil
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from isolator.confinement import apart_sys, inner
from isolator.confinement.apart import FILTER, NOT_APART, Apart
from isolator.confinement.fence import Fence
from isolator.confinement.inner_calls import Inner
from isolator.confinement.machine_code import GATE, elf
from isolator.host.not_started import NotStarted
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.tasks.assignment import Outcome

INSIDE: Final = "/dev/mesos_gpu"  # path of the directory with the program and the socket in the container
PROGRAM: Final = f"{INSIDE}/gate"
_INNER: Final = "inner"
_LOOK_S: Final = 0.05  # pause between checks whether the container still runs
_ANSWER_S: Final = 30.0  # time limit for some ten system calls
_MAX: Final = 262144  # bytes that the gate reads, and behind which it keeps pointers to variables
_SO_SNDBUFFORCE: Final = 32  # asm-generic/socket.h, also x86
_NOT_APART: Final = 124  # byte that it writes, and its exit status
_ADDRESS_SIZE: Final = 16  # size of struct sockaddr_in
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def program(machine: str) -> bytes:
    """Return the gate as an ELF file for a machine.

    Raises:
        NotStarted: The machine is not supported.
    """
    if machine not in GATE:
        known = " and ".join(GATE)
        raise NotStarted(f"images can run only on {known}, not on {machine}")
    names = (f"{INSIDE}/socket", f"{INSIDE}/{_INNER}")
    return elf(
        *GATE[machine],
        struct.pack("=H", socket.AF_UNIX) + b"".join(name.encode() + b"\0" for name in names),
    )


class Gate:
    """Gate of a task.

    Args:
        directory: Directory on the host, below one that only root may pass; it is mounted in the container.
        fence: Fence to put the container behind.
        apart: Isolation of the container from other tasks; none by default.
    """

    def __init__(self, directory: Path, fence: Fence, apart: Apart = NOT_APART) -> None:
        self._directory, self._fence, self._apart = directory, fence, apart
        self._socket: socket.socket | None = None
        self.inner: Inner | None = None  # inner process of the task, set by `admit` if it starts one

    def open(self) -> None:
        """Make the program and listen.

        Raises:
            NotStarted: The machine is not supported.
            OSError: It cannot be made.
        """
        code = program(os.uname().machine)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir()
        file = self._directory / "gate"
        file.write_bytes(code)
        file.chmod(0o555)
        other = self._directory / _INNER
        other.write_bytes(inner.program(os.uname().machine))
        # A process is not dumpable from its first instruction if its user cannot read the program.
        other.chmod(0o111)
        self._directory.chmod(0o755)
        if os.statvfs(file).f_flag & os.ST_NOEXEC:
            raise MesosGpuError(
                f"programs cannot be executed in {self._directory}",
                remedy="mount /dev without noexec: images need it",
            )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        at = os.open(self._directory, os.O_PATH | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{at}/socket")  # by this way the path may have any length
        finally:
            os.close(at)
        (self._directory / "secrets").mkdir()  # mount point for files with secrets
        (self._directory / "socket").chmod(0o666)  # only root and the container can reach its directory
        self._socket.listen(2)

    def bind(self) -> tuple[str, str, bool]:
        """Return the bind mount of the directory: path on the host, path inside, read-only."""
        return str(self._directory), INSIDE, True

    def admit(
        self,
        argv: Sequence[str],
        ended: Callable[[], bool],
        own_cgroup: str = "",
        *,
        first: int = 0,
        see: Callable[[int], None],
        leaves: bool = False,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Wait for the gate, put its container behind the fence, and let it become the command.

        Args:
            argv: Command of the task.
            ended: Function that returns whether the container has ended, so that the gate will not come.
            own_cgroup: Part of the path of a cgroup that belongs to the container alone, see `Fence.take`.
            first: Pid of the container's first process if that may be another, as an engine's init, which also
                goes behind the fence: it runs as the task's user, who may attach to it. 0 if the gate is the first
                process.
            see: Function that checks the container, from the pid of the gate, before the command.
            leaves: Whether the gate starts an inner process for commands beside the task; must be False if
                the gate may be the first process of a pid namespace.
            variables: Variables of the command besides those that the container was started with, which
                others may read.

        Returns:
            False if the container ended before.

        Raises:
            NotStarted: The command cannot be executed.
            MesosGpuError, OSError: The fence does not hold; the container is to be killed.
        """
        assert self._socket is not None
        while not select.select([self._socket], [], [], _LOOK_S)[0]:
            if ended():
                return False
        gate, _ = self._socket.accept()
        with contextlib.closing(self), gate:
            gate.settimeout(_ANSWER_S)
            pid = struct.unpack("3i", gate.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if not pid:
                raise MesosGpuError(
                    "the container's processes are not visible to the executor",
                    remedy="run the agent in the host's pid namespace",
                )
            for process in {first or pid, pid}:
                self._fence.take(process, own_cgroup)
            see(pid)
            environment = _environment(pid)
            order = self._order(_paths(argv[0], environment.get("PATH")), environment, variables, leaves)
            if variables:
                gate.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2 * _MAX)
            gate.sendall(order)
            answer = b"".join(iter(lambda: gate.recv(16), b""))
            _raise_refusal(answer, argv[0])
            if leaves:
                self.inner = self._connected()
        return True

    def _connected(self) -> Inner:
        """Return the inner process. It connects before the gate executes the command, so no task can connect first."""
        assert self._socket is not None
        self._socket.settimeout(0)
        line, _ = self._socket.accept()
        line.settimeout(None)
        process = Inner(line)
        process.greet()
        return process

    def _order(
        self,
        paths: Sequence[str],
        environment: Mapping[str, str],
        variables: Mapping[str, str],
        leaves: bool,
    ) -> bytes:
        """Return the order that the gate reads. It fills in file descriptors and addresses.

        The order consists of: struct sockaddr_in of a denied destination, with the offset of the last part in
        its padding (0 if the command gets the gate's own variables); size and struct landlock_ruleset_attr,
        both 0 for no domain; struct landlock_path_beneath_attr, whose first word is 0 for no rule, and the
        name "/"; struct sock_fprog, whose first word is 0 for no filter, with 1 in its padding to leave an
        inner process; the filter's size in bytes, and the filter; paths to execute, each ended by 0, and a
        final 0; struct rlimit64, and variables, ended in the same way.
        """
        port, address = self._fence.probe4()
        apart = self._apart
        attributes, allowed = b"", 0
        if apart.domain:
            attributes, allowed = apart_sys.ruleset(signals=apart.signals, sockets=apart.sockets)
        program = apart.program
        order = struct.pack(
            "=Q24sQi4sH2xI8xQ",
            *(len(attributes), attributes, allowed, 0, b"/", len(program) // 8, int(leaves), len(program)),
        )
        order += program
        order += _ended_by_0(paths)
        first, pairs = 0, [f"{name}={value}" for name, value in {**environment, **variables}.items()]
        if variables:
            first = _ADDRESS_SIZE + len(order)
            order += struct.pack("=QQ", apart_sys.NO_CORE, apart_sys.NO_CORE) + _ended_by_0(pairs)
        if _ADDRESS_SIZE + len(order) + 8 * (len(pairs) + 1) > _MAX:
            raise NotStarted("the container's environment is too large for a secret beside it")
        head = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s", port, socket.inet_aton(address))
        return head + struct.pack("=Q", first) + order

    def close(self) -> None:
        """Stop listening; harmless if it was never open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _paths(name: str, path: str | None) -> list[str]:
    """Return the paths that execvp(3) would try."""
    if "/" in name or not name:
        return [name or "/"]
    return [f"{part or '.'}/{name}" for part in (path or _DEFAULT_PATH).split(":")]


def _environment(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _ended_by_0(texts: Iterable[str]) -> bytes:
    """Join texts, each ended by 0, with a final 0."""
    return b"".join(os.fsencode(text) + b"\0" for text in texts) + b"\0"


def _raise_refusal(answer: bytes, command: str) -> None:
    """Raise the error that the gate reported in its last answer.

    The answer is empty if the fence does not deny; its first byte is 124 if the kernel does not isolate the
    container; a second byte is the exit status of a command that cannot be executed.

    Raises:
        NotStarted: The command cannot be executed.
        MesosGpuError: The fence does not hold.
    """
    if not answer:
        raise MesosGpuError(
            "the rules of its cgroup do not keep the container from the control ports",
            remedy="run mesos-gpu doctor on this host",
        )
    if answer[0] == _NOT_APART:
        raise MesosGpuError(
            "the kernel does not keep the container from other tasks of its user",
            remedy=f"see the kernel's log; or do without: {FILTER}=off on the agent",
        )
    if len(answer) > 1:
        why = "No such file or directory" if answer[1] == 127 else "it cannot be executed"
        raise NotStarted(f"cannot start {command!r}: {why}", Outcome(exit_status=answer[1]))
