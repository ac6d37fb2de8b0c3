"""The inner process of a task, from which commands beside the running task (`exec`, COMMAND checks) are forked.

A process cannot enter an existing Landlock domain; it can only inherit one. A command that may signal its own task and
no other task must therefore be forked inside the domain of its task. The executor leaves a helper process, the inner
process, in that domain before the task's program is executed. The inner process makes the system calls that the
executor sends over a socket pair, one at a time:

    prctl(PR_SET_DUMPABLE, 0)       so that no process of the task can attach to it or read its memory
    sendto, 16 bytes                result of the last call (0 at first); number of the received descriptor, or -1
    recvmsg, 56 bytes               number and six arguments of a call, optionally with a file descriptor;
                                    any other size, or the end of the connection: exit_group(0)
    the call                        after a clone that returns 0, the child continues on the received descriptor

Its program has less than 500 bytes, so the process holds neither memory of the executor nor environment variables. Its
socket has no name, and the task cannot open its descriptors, because it cannot attach to a process that is not
dumpable. A task may kill its inner process, like every process of its domain; afterwards no command can be started
beside the task, and the task continues.

The first inner process only forks. Each command gets a *session*: a fork that reaps the descendants of the command and
reports the exit status. The command's first process is forked from the session. The executor treats the answers of
inner processes as untrusted input: they consist of numbers only.

The calls that the executor sends are in `inner_calls`, a module of its own because few executors need it.

Sources: clone(2), unix(7), cmsg(3), prctl(2), elf(5); arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h of Linux for the numbers.
"""

import ctypes
import os
import signal
from collections.abc import Mapping
from typing import Final

from isolator.confinement.machine_code import INNER, elf

NAME: Final = "mesos-gpu-inner"  # process name in ps(1)
ANSWER_BYTES: Final = 16
CLONE: Final[Mapping[str, int]] = {"x86_64": 56, "aarch64": 220}  # system call number of clone(2)
CLONE_PARENT: Final = 0x8000
_CLONE_VFORK: Final = 0x4000
_MFD_EXEC: Final = 0x10  # linux/memfd.h, since Linux 6.3


def program(machine: str) -> bytes:
    """Return the ELF program of inner processes for a machine; b"" if the machine is not supported.

    Args:
        machine: Machine name as in uname(2), such as x86_64.
    """
    return elf(*INNER[machine]) if machine in INNER else b""


def is_inner(pid: int) -> bool:
    """Return whether a process names itself an inner process, as sessions do."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read() == f"{NAME}\0".encode()
    except (FileNotFoundError, ProcessLookupError):
        return False


def leave(theirs: int, ours: int) -> None:
    """Start an inner process in the Landlock domain of the calling process, and wait until it runs.

    The inner process becomes a child of the caller's parent. The caller must have a single thread. If the program
    cannot be executed on this host, no inner process remains and the executor reads the end of the socket.

    Args:
        theirs: Socket descriptor for the inner process; closed by this function.
        ours: Socket descriptor of the other end, on which the inner process sends its first answer.
    """
    code = program(os.uname().machine)
    if not code:
        os.close(theirs)
        return
    file = _executable(code)
    libc = ctypes.CDLL(None, use_errno=True)
    clone = CLONE[os.uname().machine]
    # CLONE_VFORK suspends this process until the child executes the program. A raw clone runs no at-fork handlers.
    pid = libc.syscall(clone, ctypes.c_long(CLONE_PARENT | _CLONE_VFORK | signal.SIGCHLD), 0, 0, 0, 0)
    if pid == 0:
        try:
            os.setsid()
            null = os.open("/dev/null", os.O_RDONLY)
            for number, stream in enumerate((theirs, null, null)):
                os.dup2(stream, number)
            os.execve(file, [NAME], {})
        finally:
            os._exit(1)
    os.close(file)
    os.close(theirs)
    if pid > 0:
        os.read(ours, ANSWER_BYTES)


def _executable(code: bytes) -> int:
    try:
        file = os.memfd_create(NAME, os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:  # before Linux 6.3 MFD_EXEC is unknown, and every memfd is executable
        file = os.memfd_create(NAME, os.MFD_CLOEXEC)
    os.write(file, code)
    return file
