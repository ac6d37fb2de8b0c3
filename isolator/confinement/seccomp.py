"""Assembler of a filter of system calls as a classic BPF program. Pure.

Layouts and numbers: include/uapi/linux/{filter,seccomp,audit}.h, arch/x86/entry/syscalls/syscall_{64,32}.tbl,
include/uapi/asm-generic/unistd.h, arch/arm/tools/syscall.tbl; seccomp(2). The program gets struct
seccomp_data {nr, arch, instruction_pointer, args[6]} and returns the verdict on the call.
"""

import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS: a word of the data
JUMP_IF: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_ANY: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN: Final = 0x06  # BPF_RET | BPF_K
ALLOW: Final = 0x7FFF0000
DENY: Final = 0x00050000 | 1  # SECCOMP_RET_ERRNO: EPERM
_NR, _ARCH = 0, 4
_X32: Final = 0x40000000  # __X32_SYSCALL_BIT
_SWAPPED: Final = 0 if sys.byteorder == "little" else 4

#: Calls that reach another process of the same user: its memory, its open files, and information on them.
PROCESSES: Final = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp")
#: Calls on keys, which all tasks of a user share, and on programs and page faults in the kernel.
KERNEL: Final = ("add_key", "request_key", "keyctl", "bpf", "userfaultfd")
#: Calls that change limits and priorities of other processes of the same user, which Landlock does not prevent. Denied
#: if they name another process, group or user; a program may change its own by the id 0. Calls for CPU affinity and
#: scheduling policy are not included: libraries use them with ids of own threads, which a filter cannot recognize.
OTHERS: Final = ("prlimit64", "setpriority", "ioprio_set")
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3  # linux/resource.h, linux/ioprio.h
#: Requests of ptrace that begin to trace a process that did not ask for it (linux/ptrace.h). Debuggers of
#: programs that they start use PTRACE_TRACEME.
ATTACHES: Final = (16, 0x4206)  # PTRACE_ATTACH, PTRACE_SEIZE

_GENERIC: Final = {
    "ptrace": 117, "add_key": 217, "request_key": 218, "keyctl": 219, "process_vm_readv": 270, "process_vm_writev": 271,
    "kcmp": 272, "bpf": 280, "userfaultfd": 282, "pidfd_getfd": 438,
    "prlimit64": 261, "setpriority": 140, "ioprio_set": 30,
}  # fmt: skip
_X86_64: Final = {
    "ptrace": 101, "add_key": 248, "request_key": 249, "keyctl": 250, "process_vm_readv": 310, "process_vm_writev": 311,
    "kcmp": 312, "bpf": 321, "userfaultfd": 323, "pidfd_getfd": 438,
    "prlimit64": 302, "setpriority": 141, "ioprio_set": 251,
}  # fmt: skip
_I386: Final = {
    "ptrace": 26, "add_key": 286, "request_key": 287, "keyctl": 288, "process_vm_readv": 347, "process_vm_writev": 348,
    "kcmp": 349, "bpf": 357, "userfaultfd": 374, "pidfd_getfd": 438,
    "prlimit64": 340, "setpriority": 97, "ioprio_set": 289,
}  # fmt: skip
_ARM: Final = {
    "ptrace": 26, "add_key": 309, "request_key": 310, "keyctl": 311, "process_vm_readv": 376, "process_vm_writev": 377,
    "kcmp": 378, "bpf": 386, "userfaultfd": 388, "pidfd_getfd": 438,
    "prlimit64": 369, "setpriority": 97, "ioprio_set": 314,
}  # fmt: skip
#: System call numbers by machine and ABI (AUDIT_ARCH_*) of its programs; the first ABI is the machine's own.
ENTRIES: Final[Mapping[str, Mapping[int, Mapping[str, int]]]] = {
    "x86_64": {0xC000003E: _X86_64, 0x40000003: _I386},
    "aarch64": {0xC00000B7: _GENERIC, 0x40000028: _ARM},
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """A BPF instruction, struct sock_filter.

    Attributes:
        true, false: Number of instructions to skip.
    """

    code: int
    value: int
    true: int = 0
    false: int = 0

    def __str__(self) -> str:
        return {
            LOAD: f"A = data[{self.value}]",
            JUMP_IF: f"if A == {self.value:#x} goto +{self.true} else +{self.false}",
            JUMP_ANY: f"if A & {self.value:#x} goto +{self.true} else +{self.false}",
            RETURN: f"return {'allow' if self.value == ALLOW else 'EPERM'}",
        }[self.code]


def compile_filter(denied: Iterable[str], machine: str) -> tuple[Instruction, ...]:
    """Return the program that denies system calls with EPERM.

    For ptrace, only the requests `ATTACHES` are denied; for the calls in `OTHERS`, only those that name other
    processes. Calls by an unknown ABI, such as x32, are all denied.

    Args:
        denied: Names of calls.
        machine: Machine name as in uname(2).

    Returns:
        The program; empty for a machine whose numbers are not known here.
    """
    names, program = tuple(denied), [Instruction(LOAD, _ARCH)]
    if machine not in ENTRIES:
        return ()
    for arch, numbers in ENTRIES[machine].items():
        body = [Instruction(LOAD, _NR)]
        if machine == "x86_64" and numbers is _X86_64:
            body += [Instruction(JUMP_ANY, _X32, 0, 1), Instruction(RETURN, DENY)]
        for name in names:
            body += _call(name, numbers[name])
        body.append(Instruction(RETURN, ALLOW))
        program += [Instruction(JUMP_IF, arch, 0, len(body)), *body]
    return (*program, Instruction(RETURN, DENY))


def _word(argument: int, *, upper: bool = False) -> Instruction:
    """Return the instruction that loads the lower or upper 32 bits of an argument of the call."""
    return Instruction(LOAD, 16 + 8 * argument + (4 - _SWAPPED if upper else _SWAPPED))


def _call(name: str, number: int) -> list[Instruction]:
    if name not in _BODIES:
        return [Instruction(JUMP_IF, number, 0, 1), Instruction(RETURN, DENY)]
    body = [*_BODIES[name], Instruction(RETURN, ALLOW)]
    return [Instruction(JUMP_IF, number, 0, len(body)), *body]


def _denied_if(value: int) -> list[Instruction]:
    return [Instruction(JUMP_IF, value, 0, 1), Instruction(RETURN, DENY)]


def _denied_unless_0() -> list[Instruction]:
    return [Instruction(JUMP_IF, 0, 1, 0), Instruction(RETURN, DENY)]


#: Instructions that decide on calls that are denied with some arguments only; without a denial the call is allowed.
_BODIES: Final[Mapping[str, Sequence[Instruction]]] = {
    "ptrace": (_word(0), *(each for request in ATTACHES for each in _denied_if(request))),
    # prlimit64(pid, resource, new, old) is allowed if pid is 0 or new is NULL.
    "prlimit64": (
        *(_word(0), Instruction(JUMP_IF, 0, 6, 0)),
        *(_word(2), *_denied_unless_0(), _word(2, upper=True), *_denied_unless_0()),
    ),
    # setpriority(which, who, value), ioprio_set(which, who, value)
    "setpriority": (_word(1), *_denied_unless_0(), _word(0), *_denied_if(_PRIO_USER)),
    "ioprio_set": (_word(1), *_denied_unless_0(), _word(0), *_denied_if(_IOPRIO_WHO_USER)),
}


def encode(program: Sequence[Instruction]) -> bytes:
    """Encode a program for the kernel: 8 bytes per instruction, struct sock_filter, in this machine's byte
    order.
    """
    return b"".join(struct.pack("=HBBI", i.code, i.true, i.false, i.value) for i in program)


def listing(program: Sequence[Instruction]) -> str:
    """Return the program as text for people."""
    return "\n".join(f"{place:4}: {instruction}" for place, instruction in enumerate(program)) + "\n"


def verdict(program: Sequence[Instruction], call: int, arch: int, *arguments: int) -> int:
    """Run a filter program and return its result, as the kernel would.

    Args:
        program: Instructions of the filter.
        call: Number of the system call.
        arch: AUDIT_ARCH_* of the call.
        arguments: First arguments of the call; the others are 0.
    """
    data = struct.pack("=iIQ6Q", call, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    place, word = 0, 0
    while True:
        i = program[place]
        place += 1
        if i.code == RETURN:
            return i.value
        if i.code == LOAD:
            (word,) = struct.unpack_from("=I", data, i.value)
        else:
            place += i.true if (word == i.value if i.code == JUMP_IF else word & i.value) else i.false
