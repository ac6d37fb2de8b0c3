"""The gate: the first program of an image's container. It waits until its executor has put it behind the fence, sees
from inside that it is there, and becomes the command.

A container is started by another (the agent, or the Docker Engine) in a cgroup of that one's choice. So the command
does not begin there: a program of less than 900 bytes does, which needs nothing of the image, connects to a Unix
socket that is bound into the container, and waits to be told what to execute. Nothing of the task has run until then.

    socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC), connect, read      what it is told: see `_told`
    socket(AF_INET, SOCK_DGRAM), sendto the denied port                any answer but EPERM: exit 125
    prctl(PR_SET_NO_NEW_PRIVS)                                         each of these four that fails: write and
    landlock_create_ruleset, open "/", landlock_add_rule,              exit 124
    landlock_restrict_self                                             if there is to be a domain
    prctl(PR_SET_SECCOMP)                                              if there is to be a filter
    write one byte; prlimit64(RLIMIT_CORE) if it is told variables; any failure: write and exit 124
    execve each path in turn; write the exit code; exit 127 if the last is not there, else 126

Sources: elf(5), landlock(7), seccomp(2), the System V ABI of each machine for what the stack holds at the start,
syscalls(2), unix(7).
"""

import os
import select
import shutil
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from isolator.confinement import apart_sys
from isolator.confinement.apart import FILTER, NOT_APART, Apart
from isolator.confinement.fence import Fence
from isolator.host.not_started import NotStarted
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.tasks.assignment import Outcome

INSIDE: Final = "/dev/mesos_gpu"  # where the container has the directory with the program and the socket
PROGRAM: Final = f"{INSIDE}/gate"
_LOOK_S: Final = 0.05  # between looks whether the container still runs
_ANSWER_S: Final = 30.0  # for some ten system calls
_MOST: Final = 262144  # bytes that it reads, and keeps pointers to variables behind
_SO_SNDBUFFORCE: Final = 32  # asm-generic/socket.h, and x86
_NOT_APART: Final = 124  # what it writes, and its exit status
_ADDRESS_SIZE: Final = 16  # of struct sockaddr_in
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: By the machine's name as of uname(2): its number in ELF (EM_*), and its instructions, each with what it says.
_MACHINES: Final = {
    "x86_64": (
        62,
        """
    4989e4            mov %rsp,%r12
    4881ec00000400    sub $0x40000,%rsp
    b829000000        mov $0x29,%eax
    bf01000000        mov $0x1,%edi
    be05000800        mov $0x80005,%esi
    31d2              xor %edx,%edx
    0f05              syscall
    89c3              mov %eax,%ebx
    89c7              mov %eax,%edi
    488d35f1010000    lea 0x1f1(%rip),%rsi # 219 <path>
    ba18000000        mov $0x18,%edx
    b82a000000        mov $0x2a,%eax
    0f05              syscall
    85c0              test %eax,%eax
    0f88d1010000      js 20d <fail>
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba00000400        mov $0x40000,%edx
    31c0              xor %eax,%eax
    0f05              syscall
    4883f85a          cmp $0x5a,%rax
    0f8cb9010000      jl 20d <fail>
    b829000000        mov $0x29,%eax
    bf02000000        mov $0x2,%edi
    be02000800        mov $0x80002,%esi
    31d2              xor %edx,%edx
    0f05              syscall
    89c7              mov %eax,%edi
    4889e6            mov %rsp,%rsi
    31d2              xor %edx,%edx
    4531d2            xor %r10d,%r10d
    4989e0            mov %rsp,%r8
    41b910000000      mov $0x10,%r9d
    b82c000000        mov $0x2c,%eax
    0f05              syscall
    83f8ff            cmp $0xffffffff,%eax
    0f8583010000      jne 20d <fail>
    bd7c000000        mov $0x7c,%ebp
    b89d000000        mov $0x9d,%eax
    bf26000000        mov $0x26,%edi
    be01000000        mov $0x1,%esi
    31d2              xor %edx,%edx
    4531c0            xor %r8d,%r8d
    0f05              syscall
    85c0              test %eax,%eax
    0f8548010000      jne 1f5 <tell>
    488b742410        mov 0x10(%rsp),%rsi
    4885f6            test %rsi,%rsi
    746c              je 123 <filter>
    b8bc010000        mov $0x1bc,%eax
    488d7c2418        lea 0x18(%rsp),%rdi
    0f05              syscall
    85c0              test %eax,%eax
    0f882a010000      js 1f5 <tell>
    4189c6            mov %eax,%r14d
    48837c243000      cmpq $0x0,0x30(%rsp)
    7439              je 10f <enter>
    b802000000        mov $0x2,%eax
    488d7c243c        lea 0x3c(%rsp),%rdi
    be00002800        mov $0x280000,%esi
    0f05              syscall
    85c0              test %eax,%eax
    0f8806010000      js 1f5 <tell>
    89442438          mov %eax,0x38(%rsp)
    b8bd010000        mov $0x1bd,%eax
    4489f7            mov %r14d,%edi
    be01000000        mov $0x1,%esi
    488d542430        lea 0x30(%rsp),%rdx
    0f05              syscall
    85c0              test %eax,%eax
    0f85e6000000      jne 1f5 <tell>
    b8be010000        mov $0x1be,%eax
    4489f7            mov %r14d,%edi
    31f6              xor %esi,%esi
    0f05              syscall
    85c0              test %eax,%eax
    0f85d2000000      jne 1f5 <tell>
    66837c244000      cmpw $0x0,0x40(%rsp)
    7428              je 153 <behind>
    488d442458        lea 0x58(%rsp),%rax
    4889442448        mov %rax,0x48(%rsp)
    b89d000000        mov $0x9d,%eax
    bf16000000        mov $0x16,%edi
    be02000000        mov $0x2,%esi
    488d542440        lea 0x40(%rsp),%rdx
    0f05              syscall
    85c0              test %eax,%eax
    0f85a2000000      jne 1f5 <tell>
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba01000000        mov $0x1,%edx
    b801000000        mov $0x1,%eax
    0f05              syscall
    4c8d6c2458        lea 0x58(%rsp),%r13
    4c036c2450        add 0x50(%rsp),%r13
    498b0424          mov (%r12),%rax
    4d8d7cc410        lea 0x10(%r12,%rax,8),%r15
    4c8b742408        mov 0x8(%rsp),%r14
    4d85f6            test %r14,%r14
    743e              je 1bf <next>
    4901e6            add %rsp,%r14
    b82e010000        mov $0x12e,%eax
    31ff              xor %edi,%edi
    be04000000        mov $0x4,%esi
    4c89f2            mov %r14,%rdx
    4531d2            xor %r10d,%r10d
    0f05              syscall
    85c0              test %eax,%eax
    7559              jne 1f5 <tell>
    498d7610          lea 0x10(%r14),%rsi
    4d89e7            mov %r12,%r15
    4983ef08          sub $0x8,%r15
    498907            mov %rax,(%r15)
    4983ef08          sub $0x8,%r15
    498937            mov %rsi,(%r15)
    803e00            cmpb $0x0,(%rsi)
    488d7601          lea 0x1(%rsi),%rsi
    75f7              jne 1b1 <char>
    803e00            cmpb $0x0,(%rsi)
    75eb              jne 1aa <each>
    41807d0000        cmpb $0x0,0x0(%r13)
    7422              je 1e8 <none>
    4c89ef            mov %r13,%rdi
    498d742410        lea 0x10(%r12),%rsi
    4c89fa            mov %r15,%rdx
    b83b000000        mov $0x3b,%eax
    0f05              syscall
    4189c6            mov %eax,%r14d
    41807d0000        cmpb $0x0,0x0(%r13)
    4d8d6d01          lea 0x1(%r13),%r13
    75f5              jne 1db <skip>
    ebd7              jmp 1bf <next>
    bd7f000000        mov $0x7f,%ebp
    4183fefe          cmp $0xfffffffe,%r14d
    7402              je 1f5 <tell>
    ffcd              dec %ebp
    892c24            mov %ebp,(%rsp)
    89df              mov %ebx,%edi
    4889e6            mov %rsp,%rsi
    ba01000000        mov $0x1,%edx
    b801000000        mov $0x1,%eax
    0f05              syscall
    89ef              mov %ebp,%edi
    eb05              jmp 212 <out>
    bf7d000000        mov $0x7d,%edi
    b8e7000000        mov $0xe7,%eax
    0f05              syscall
""",
    ),
    "aarch64": (
        183,
        """
    f3030091          mov x19, sp
    ff0341d1          sub sp, sp, #0x40, lsl #12
    c81880d2          mov x8, #0xc6
    200080d2          mov x0, #0x1
    a10080d2          mov x1, #0x5
    0101a0f2          movk x1, #0x8, lsl #16
    020080d2          mov x2, #0x0
    010000d4          svc #0x0
    f40300aa          mov x20, x0
    61100010          adr x1, 230 <path>
    020380d2          mov x2, #0x18
    681980d2          mov x8, #0xcb
    010000d4          svc #0x0
    800ff837          tbnz w0, #31, 224 <fail>
    e00314aa          mov x0, x20
    e1030091          mov x1, sp
    8200a0d2          mov x2, #0x40000
    e80780d2          mov x8, #0x3f
    010000d4          svc #0x0
    1f6801f1          cmp x0, #0x5a
    ab0e0054          b.lt 224 <fail>
    c81880d2          mov x8, #0xc6
    400080d2          mov x0, #0x2
    410080d2          mov x1, #0x2
    0101a0f2          movk x1, #0x8, lsl #16
    020080d2          mov x2, #0x0
    010000d4          svc #0x0
    e1030091          mov x1, sp
    020080d2          mov x2, #0x0
    030080d2          mov x3, #0x0
    e4030091          mov x4, sp
    050280d2          mov x5, #0x10
    c81980d2          mov x8, #0xce
    010000d4          svc #0x0
    1f040031          cmn w0, #0x1
    c10c0054          b.ne 224 <fail>
    990f80d2          mov x25, #0x7c
    e81480d2          mov x8, #0xa7
    c00480d2          mov x0, #0x26
    210080d2          mov x1, #0x1
    020080d2          mov x2, #0x0
    030080d2          mov x3, #0x0
    040080d2          mov x4, #0x0
    010000d4          svc #0x0
    a00a0035          cbnz w0, 204 <tell>
    e10b40f9          ldr x1, [sp, #16]
    810300b4          cbz x1, 128 <filter>
    883780d2          mov x8, #0x1bc
    e0630091          add x0, sp, #0x18
    010000d4          svc #0x0
    e009f837          tbnz w0, #31, 204 <tell>
    f503002a          mov w21, w0
    e01b40f9          ldr x0, [sp, #48]
    000200b4          cbz x0, 114 <enter>
    080780d2          mov x8, #0x38
    600c8092          mov x0, #0xffffffffffffff9c
    e1f30091          add x1, sp, #0x3c
    0205a0d2          mov x2, #0x280000
    030080d2          mov x3, #0x0
    010000d4          svc #0x0
    a008f837          tbnz w0, #31, 204 <tell>
    e03b00b9          str w0, [sp, #56]
    a83780d2          mov x8, #0x1bd
    e003152a          mov w0, w21
    210080d2          mov x1, #0x1
    e2c30091          add x2, sp, #0x30
    030080d2          mov x3, #0x0
    010000d4          svc #0x0
    a0070035          cbnz w0, 204 <tell>
    c83780d2          mov x8, #0x1be
    e003152a          mov w0, w21
    010080d2          mov x1, #0x0
    010000d4          svc #0x0
    00070035          cbnz w0, 204 <tell>
    e0834079          ldrh w0, [sp, #64]
    20010034          cbz w0, 150 <behind>
    e0630191          add x0, sp, #0x58
    e02700f9          str x0, [sp, #72]
    e81480d2          mov x8, #0xa7
    c00280d2          mov x0, #0x16
    410080d2          mov x1, #0x2
    e2030191          add x2, sp, #0x40
    010000d4          svc #0x0
    c0050035          cbnz w0, 204 <tell>
    e00314aa          mov x0, x20
    e1030091          mov x1, sp
    220080d2          mov x2, #0x1
    080880d2          mov x8, #0x40
    010000d4          svc #0x0
    f5630191          add x21, sp, #0x58
    e02b40f9          ldr x0, [sp, #80]
    b502008b          add x21, x21, x0
    600240f9          ldr x0, [x19]
    76420091          add x22, x19, #0x10
    d70e008b          add x23, x22, x0, lsl #3
    f80740f9          ldr x24, [sp, #8]
    580200b4          cbz x24, 1c8 <next>
    e0030091          mov x0, sp
    1803008b          add x24, x24, x0
    a82080d2          mov x8, #0x105
    000080d2          mov x0, #0x0
    810080d2          mov x1, #0x4
    e20318aa          mov x2, x24
    030080d2          mov x3, #0x0
    010000d4          svc #0x0
    00030035          cbnz w0, 204 <tell>
    01430091          add x1, x24, #0x10
    f70313aa          mov x23, x19
    ff8e1ff8          str xzr, [x23, #-8]!
    e18e1ff8          str x1, [x23, #-8]!
    20144038          ldrb w0, [x1], #1
    e0ffff35          cbnz w0, 1b8 <char>
    20004039          ldrb w0, [x1]
    80ffff35          cbnz w0, 1b4 <each>
    a0024039          ldrb w0, [x21]
    40010034          cbz w0, 1f4 <none>
    e00315aa          mov x0, x21
    e10316aa          mov x1, x22
    e20317aa          mov x2, x23
    a81b80d2          mov x8, #0xdd
    010000d4          svc #0x0
    f803002a          mov w24, w0
    a0164038          ldrb w0, [x21], #1
    e0ffff35          cbnz w0, 1e8 <skip>
    f6ffff17          b 1c8 <next>
    f90f80d2          mov x25, #0x7f
    1f0b0031          cmn w24, #0x2
    40000054          b.eq 204 <tell>
    d90f80d2          mov x25, #0x7e
    f9030039          strb w25, [sp]
    e00314aa          mov x0, x20
    e1030091          mov x1, sp
    220080d2          mov x2, #0x1
    080880d2          mov x8, #0x40
    010000d4          svc #0x0
    e00319aa          mov x0, x25
    02000014          b 228 <out>
    a00f80d2          mov x0, #0x7d
    c80b80d2          mov x8, #0x5e
    010000d4          svc #0x0
""",
    ),
}
_ADDRESS: Final = 0x400000
_HEADERS: Final = 64 + 2 * 56


def program(machine: str) -> bytes:
    """The gate as an ELF file of that machine.

    Raises:
        NotStarted: None is known for it.
    """
    if machine not in _MACHINES:
        known = " and ".join(_MACHINES)
        raise NotStarted(f"images are run on {known} only: there is no gate for {machine}")
    number, listing = _MACHINES[machine]
    code = b"".join(bytes.fromhex(line.split()[0]) for line in listing.strip().splitlines())
    body = code + struct.pack("=H", socket.AF_UNIX) + f"{INSIDE}/socket".encode() + b"\0"
    size = _HEADERS + len(body)
    # e_ident; e_type EXEC, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, sizes and counts
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, number, 1, _ADDRESS + _HEADERS, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    # p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x10000)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # PT_GNU_STACK: it executes nothing
    return header + load + stack + body


class Gate:
    """The gate of a task. `directory` is on the host, below one that only root may pass; it goes into the container."""

    def __init__(self, directory: Path, fence: Fence, apart: Apart = NOT_APART) -> None:
        """Nothing is made yet. `apart`: what keeps the container from other tasks; by default nothing does."""
        self._directory, self._fence, self._apart = directory, fence, apart
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Make the program and listen.

        Raises:
            NotStarted: There is no such program for this machine.
            OSError: It cannot be made.
        """
        code = program(os.uname().machine)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir()
        file = self._directory / "gate"
        file.write_bytes(code)
        file.chmod(0o555)
        self._directory.chmod(0o755)
        if os.statvfs(file).f_flag & os.ST_NOEXEC:
            raise MesosGpuError(
                f"nothing can be executed in {self._directory}",
                remedy="mount /dev without noexec: images need it",
            )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        at = os.open(self._directory, os.O_PATH | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{at}/socket")  # however long its path is
        finally:
            os.close(at)
        (self._directory / "secrets").mkdir()  # for whom there are files to be mounted there
        (self._directory / "socket").chmod(0o666)  # its directory lets only root and the container come near
        self._socket.listen(1)

    def bind(self) -> tuple[str, str, bool]:
        """The directory as a bind: path on the host, path inside, read-only."""
        return str(self._directory), INSIDE, True

    def admit(
        self,
        argv: Sequence[str],
        ended: Callable[[], bool],
        own_cgroup: str = "",
        *,
        first: int = 0,
        see: Callable[[int], None],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Wait for it, put its container behind the fence, and let it become the command.

        Args:
            argv: The command.
            ended: Whether the container has ended, so that it will not come.
            own_cgroup: As of `Fence.take`.
            first: The container's first process, if that may be another, as an engine's init: it is the task's user's,
                who may attach to it, and so goes behind the fence, too. 0: the one at the gate is.
            see: Looks at the container, from the process that is at the gate, before it may go on.
            variables: That the command has beside those that the container was started with, which others may read.

        Returns:
            False: the container ended before.

        Raises:
            NotStarted: The command cannot be executed.
            MesosGpuError, OSError: The fence does not hold; the container is to be killed.
        """
        assert self._socket is not None
        while not select.select([self._socket], [], [], _LOOK_S)[0]:
            if ended():
                return False
        gate, _ = self._socket.accept()
        self.close()
        with gate:
            gate.settimeout(_ANSWER_S)
            pid = struct.unpack("3i", gate.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if not pid:
                raise MesosGpuError(
                    "the container's processes cannot be seen from here",
                    remedy="run the agent in the host's pid namespace",
                )
            for each in {first or pid, pid}:
                self._fence.take(each, own_cgroup)
            see(pid)
            environment = _environment(pid)
            told = self._told(_paths(argv[0], environment.get("PATH")), environment, variables)
            if variables:
                gate.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2 * _MOST)
            gate.sendall(told)
            said = b"".join(iter(lambda: gate.recv(16), b""))
        _heed(said, argv[0])
        return True

    def _told(
        self, paths: Sequence[str], environment: Mapping[str, str], variables: Mapping[str, str]
    ) -> bytes:
        """What it reads: struct sockaddr_in of something that is denied, in whose padding is where the last part
        begins, or 0: the command has the gate's own; size and struct landlock_ruleset_attr, both 0 for no domain;
        struct landlock_path_beneath_attr, whose first word is 0 for no rule, and the name "/"; struct sock_fprog,
        whose first word is 0 for no filter; the filter's size in bytes, and the filter; what to execute, each ended by
        0, and all of them; struct rlimit64, and variables, ended likewise. The gate fills in file descriptors and
        addresses.
        """
        port, address = self._fence.probe4()
        apart = self._apart
        attributes, allowed = b"", 0
        if apart.domain:
            attributes, allowed = apart_sys.ruleset(signals=apart.signals, sockets=apart.sockets)
        program = apart.program
        told = struct.pack(
            "=Q24sQi4sH14xQ", len(attributes), attributes, allowed, 0, b"/", len(program) // 8, len(program)
        )
        told += program
        told += _ended_by_0(paths)
        first, pairs = 0, [f"{name}={value}" for name, value in {**environment, **variables}.items()]
        if variables:
            first = _ADDRESS_SIZE + len(told)
            told += struct.pack("=QQ", apart_sys.NO_CORE, apart_sys.NO_CORE) + _ended_by_0(pairs)
        if _ADDRESS_SIZE + len(told) + 8 * (len(pairs) + 1) > _MOST:
            raise NotStarted("the container's environment is too large for a secret beside it")
        head = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s", port, socket.inet_aton(address))
        return head + struct.pack("=Q", first) + told

    def close(self) -> None:
        """Nobody comes in any more; harmless if it was never open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _paths(name: str, path: str | None) -> list[str]:
    """What execvp(3) tries."""
    if "/" in name or not name:
        return [name or "/"]
    return [f"{part or '.'}/{name}" for part in (path or _DEFAULT_PATH).split(":")]


def _environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _ended_by_0(texts: Iterable[str]) -> bytes:
    """Each ended by 0, and all of them."""
    return b"".join(os.fsencode(text) + b"\0" for text in texts) + b"\0"


def _heed(said: bytes, command: str) -> None:
    """Take what the gate says at last.

    Raises:
        NotStarted: The command cannot be executed.
        MesosGpuError: The fence does not hold.
    """
    if not said:
        raise MesosGpuError(
            "the rules of its cgroup do not keep the container from the control ports",
            remedy="run mesos-gpu doctor on this host",
        )
    if said[0] == _NOT_APART:
        raise MesosGpuError(
            "the kernel does not keep the container from other tasks of its user",
            remedy=f"see the kernel's log; or give it up: {FILTER}=off on the agent",
        )
    if len(said) > 1:
        why = "No such file or directory" if said[1] == 127 else "it cannot be executed"
        raise NotStarted(f"cannot start {command!r}: {why}", Outcome(exit_status=said[1]))
