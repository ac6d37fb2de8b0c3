"""The inner process of a task: commands beside a running task (`exec`, COMMAND checks) are forked from it.

A Landlock domain cannot be entered from outside, only inherited: a command that is to signal its own task and no other
must be born in the domain of that task. So a process of ours is left there before the task's program is executed. It
makes the system calls that the executor sends it over a socket pair, one at a time, and does nothing else:

    prctl(PR_SET_DUMPABLE, 0)                                          no process of the task may look into it
    sendto 16 bytes: the result of the last call (at first 0), and the number of the file that came with it, or -1
    recvmsg 56 bytes: number and six arguments of a call, maybe with a file; other sizes and the end: exit_group(0)
    the call; after a clone that returns 0, the child goes on at the file that came with it

It is executed from less than 500 bytes, so it holds nothing of the executor's memory, and no variables. Its socket has
no name, and a task has no way to its files: it cannot attach to a process that is not dumpable. A task may end it, as
all processes of its domain; then no more commands are started there, and the task goes on.

The first one only forks. Each command gets a *session*, a copy that collects what the command leaves behind and tells
how it ended; the command's first process is forked from that. What comes from there is taken as input: all numbers.

What the executor has done there is in `inner_calls`, which few executors need.

Sources: clone(2), unix(7), cmsg(3), prctl(2), elf(5); arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h of Linux for the numbers.
"""

import ctypes
import os
import signal
from collections.abc import Mapping
from typing import Final

from isolator.confinement.machine_code import INNER, elf

NAME: Final = "mesos-gpu-inner"  # as ps(1) shows it
ANSWER_BYTES: Final = 16
CLONE: Final[Mapping[str, int]] = {"x86_64": 56, "aarch64": 220}  # the number of clone(2)
CLONE_PARENT: Final = 0x8000
_CLONE_VFORK: Final = 0x4000
_MFD_EXEC: Final = 0x10  # linux/memfd.h, since Linux 6.3


def program(machine: str) -> bytes:
    """Return the program of inner processes for a machine, named as by uname(2); empty if there is none."""
    return elf(*INNER[machine]) if machine in INNER else b""


def leave(theirs: int, ours: int) -> None:
    """Leave an inner process where this process is, as a child of this one's parent, and wait until it runs.

    To be called by a process with one thread. If the host does not let it be executed there is none, and the executor
    sees the end of the socket.

    Args:
        theirs: The socket that it gets; closed here.
        ours: The other end, for its first word.
    """
    code = program(os.uname().machine)
    if not code:
        os.close(theirs)
        return
    file = _executable(code)
    libc = ctypes.CDLL(None, use_errno=True)
    clone = CLONE[os.uname().machine]
    # A copy of this process until it executes the program, for which this one waits. No handler of a fork runs.
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
    except OSError:  # before Linux 6.3 each can be executed
        file = os.memfd_create(NAME, os.MFD_CLOEXEC)
    os.write(file, code)
    return file
