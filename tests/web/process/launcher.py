"""Becomes a browser that is not told when interfaces of this machine come and go: `python -m tests.web.process.launcher
DESCRIPTOR PROGRAM [ARGUMENT ...]`. The descriptor becomes 3 and 4, by which the browser is driven.

Chromium ends what it loads with net::ERR_NETWORK_CHANGED when the machine has another address, though the page comes
from this machine itself. Other tests make hosts in network namespaces all the time. It hears of them by netlink, and
does without where it gets no such socket.
"""

import ctypes
import errno
import os
import socket
import sys
from typing import Final

from isolator.confinement import apart_sys
from isolator.confinement.seccomp import ALLOW, JUMP_IF, LOAD, RETURN, Instruction, encode
from isolator.runs.launcher import PR_SET_NO_NEW_PRIVS

#: The number of socket(2), by AUDIT_ARCH_*: x86-64, arm64.
CALLS: Final = {0xC000003E: 41, 0xC00000B7: 198}
_NR, _ARCH, _FIRST = 0, 4, 16  # places in struct seccomp_data; the first argument's lower half
_ERRNO: Final = 0x00050000  # SECCOMP_RET_ERRNO


def no_netlink() -> bytes:
    """A filter of system calls: socket(AF_NETLINK, …) has EAFNOSUPPORT, all others go on."""
    program = [Instruction(LOAD, _ARCH)]
    for arch, number in CALLS.items():
        body = [
            Instruction(LOAD, _NR),
            Instruction(JUMP_IF, number, 1, 0),
            Instruction(RETURN, ALLOW),
            Instruction(LOAD, _FIRST),
            Instruction(JUMP_IF, socket.AF_NETLINK, 1, 0),
            Instruction(RETURN, ALLOW),
            Instruction(RETURN, _ERRNO | errno.EAFNOSUPPORT),
        ]
        program += [Instruction(JUMP_IF, arch, 0, len(body)), *body]
    return encode((*program, Instruction(RETURN, ALLOW)))


def main(end: str, *command: str) -> None:
    """Become the command."""
    for number in 3, 4:
        os.dup2(int(end), number)
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # else the next asks for root
    apart_sys.install(no_netlink())
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
