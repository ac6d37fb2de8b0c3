"""System call bpf(2) for programs of cgroups: load, attach, replace, detach, query.

Numbers and layouts: include/uapi/linux/bpf.h. Every call passes a buffer of the size of a recent kernel's
whole `union bpf_attr`: kernels 6.17 to 7.2 write results of BPF_PROG_QUERY beyond the size that they are
given.
"""

import ctypes
import errno
import os
import struct
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError

NAME: Final = b"mesos_gpu"  # name of our programs, which distinguishes them from others
ATTR_SIZE: Final = 256  # more than any kernel uses; the rest must be zero, and is
PROG_LOAD, PROG_ATTACH, PROG_DETACH = 5, 8, 9
PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, PROG_QUERY = 13, 15, 16
F_ALLOW_MULTI, F_REPLACE = 2, 4
MAX_PROGRAMS: Final = 64  # BPF_CGROUP_MAX_PROGS
_QUERY_SIZE: Final = 64
_LOG_BYTES: Final = 1 << 16
_LOAD: Final = "=IIQQIIQII16s"
_SYSCALL: Final = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "ppc64": 361, "s390x": 351, "riscv64": 280}


class BpfError(MesosGpuError):
    """Error: the kernel refused a program, so the task must not run."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of an eBPF program on a cgroup.

    Attributes:
        what: Operation that it decides on, in words.
        off: Setting that does without the program.
        told: Whether the kernel must know `attach` already when the program is loaded.
    """

    what: str
    program: int  # enum bpf_prog_type
    attach: int  # enum bpf_attach_type
    off: str
    told: bool = True


DEVICE: Final = Kind("device", 15, 6, "MESOS_GPU_ISOLATION=cgroup1", told=False)
_SOCK_ADDR, _NO_PORTS = 18, "MESOS_GPU_CONTROL_PORTS=off"
BIND4: Final = Kind("bind", _SOCK_ADDR, 8, _NO_PORTS)
BIND6: Final = Kind("bind", _SOCK_ADDR, 9, _NO_PORTS)
CONNECT4: Final = Kind("connect", _SOCK_ADDR, 10, _NO_PORTS)
CONNECT6: Final = Kind("connect", _SOCK_ADDR, 11, _NO_PORTS)
SENDMSG4: Final = Kind("sendmsg", _SOCK_ADDR, 14, _NO_PORTS)
SENDMSG6: Final = Kind("sendmsg", _SOCK_ADDR, 15, _NO_PORTS)


@dataclass(frozen=True, slots=True)
class Attached:
    """Program that is attached to a cgroup.

    Attributes:
        tag: Digest of its instructions by the kernel.
    """

    id: int
    name: str
    tag: bytes


def _bpf(command: int, attr: "ctypes.Array[ctypes.c_char]", size: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) has no number known for {os.uname().machine}")
    done = int(libc.syscall(number, command, attr, size))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _attr(layout: str, *values: Any) -> "ctypes.Array[ctypes.c_char]":
    return ctypes.create_string_buffer(struct.pack(layout, *values).ljust(ATTR_SIZE, b"\0"), ATTR_SIZE)


def _call(command: int, layout: str, *values: Any) -> int:
    return _bpf(command, _attr(layout, *values), struct.calcsize(layout))


def load(program: bytes, *, name: bytes = NAME, kind: Kind = DEVICE) -> int:
    """Load a program into the kernel; return its file descriptor.

    Raises:
        BpfError: The verifier refuses it, with the verifier's message, or a right is missing.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"Apache-2.0")

    def attempt(log: "ctypes.Array[ctypes.c_char] | None") -> int:
        # prog_type, insn_cnt, insns, license, log_level, log_size, log_buf, kern_version, prog_flags, prog_name,
        # prog_ifindex, expected_attach_type
        logged = (0, 0, 0) if log is None else (1, len(log), ctypes.addressof(log))
        values = (
            kind.program, len(program) // 8, ctypes.addressof(instructions), ctypes.addressof(licence),
            *logged, 0, 0, name,
        )  # fmt: skip
        if not kind.told:
            return _call(PROG_LOAD, _LOAD, *values)
        return _call(PROG_LOAD, f"{_LOAD}II", *values, 0, kind.attach)

    try:
        return attempt(None)
    except OSError as error:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        try:
            return attempt(log)
        except OSError:
            verifier_log = log.value.decode(errors="replace").strip()
            raise _explained("load", kind, error, verifier_log) from error


def attach(cgroup: int, program: int, *, replace: int | None = None, kind: Kind = DEVICE) -> None:
    """Attach a program beside those of others, all of which must then allow; or replace one atomically.

    Args:
        cgroup: File descriptor of the cgroup's directory.
        program: File descriptor of the program.
        replace: File descriptor of the program to replace.

    Raises:
        OSError: As bpf(2): EPERM if another program was attached exclusively, EINVAL for `replace` before
            Linux 5.6.
    """
    if replace is None:
        _call(PROG_ATTACH, "=IIII", cgroup, program, kind.attach, F_ALLOW_MULTI)
    else:
        _call(PROG_ATTACH, "=IIIII", cgroup, program, kind.attach, F_ALLOW_MULTI | F_REPLACE, replace)


def detach(cgroup: int, program: int, kind: Kind = DEVICE) -> None:
    """Remove one program from a cgroup.

    Raises:
        OSError: As bpf(2): ENOENT if it is not attached.
    """
    _call(PROG_DETACH, "=III", cgroup, program, kind.attach)


def query(cgroup: int, kind: Kind = DEVICE) -> tuple[Attached, ...]:
    """Return the programs attached to this cgroup itself, oldest first.

    Raises:
        OSError: As bpf(2).
    """
    ids = (ctypes.c_uint32 * MAX_PROGRAMS)()
    # target_fd, attach_type, query_flags, attach_flags, prog_ids, prog_cnt
    attr = _attr("=IIIIQI", cgroup, kind.attach, 0, 0, ctypes.addressof(ids), MAX_PROGRAMS)
    _bpf(PROG_QUERY, attr, _QUERY_SIZE)
    count = struct.unpack_from("=I", attr.raw, 24)[0]
    attached = []
    for ident in ids[:count]:
        try:
            with closing(_Fd(open_program(ident))) as fd:
                attached.append(_about(ident, fd.number))
        except FileNotFoundError:
            continue  # removed meanwhile
    return tuple(attached)


def open_program(ident: int) -> int:
    """Return a file descriptor of the program with an id.

    Raises:
        OSError: As bpf(2): ENOENT if there is no such program.
    """
    return _call(PROG_GET_FD_BY_ID, "=I", ident)


def _about(ident: int, program: int) -> Attached:
    info = ctypes.create_string_buffer(ATTR_SIZE)
    _call(OBJ_GET_INFO_BY_FD, "=IIQ", program, ATTR_SIZE, ctypes.addressof(info))
    # struct bpf_prog_info: tag[8] at offset 8, name at 64, which ends with a NUL
    return Attached(ident, info.raw[64:].split(b"\0")[0].decode(errors="replace"), info.raw[8:16])


def installed(cgroup: int, program: bytes, kind: Kind = DEVICE) -> bool:
    """Return whether exactly this program is our only one on the cgroup.

    Raises:
        BpfError, OSError: The kernel refuses.
    """
    with closing(_Fd(load(program, kind=kind))) as wanted:
        ours = [attached for attached in query(cgroup, kind) if attached.name == NAME.decode()]
        return [attached.tag for attached in ours] == [_about(0, wanted.number).tag]


def install(cgroup: int, program: bytes, kind: Kind = DEVICE) -> None:
    """Make `program` our only one on the cgroup, without a moment without any of ours; programs of others
    stay.

    Raises:
        BpfError: The kernel refuses; the programs before are still attached.
    """
    with closing(_Fd(load(program, kind=kind))) as new:
        try:
            old = [
                _Fd(open_program(attached.id))
                for attached in query(cgroup, kind)
                if attached.name == NAME.decode()
            ]
            try:
                _swap(cgroup, new.number, [fd.number for fd in old], kind)
            finally:
                for fd in old:
                    fd.close()
        except OSError as error:
            raise _explained("attach", kind, error, "") from error


def _swap(cgroup: int, new: int, old: list[int], kind: Kind) -> None:
    """Attach a program, and detach our old ones."""
    if len(old) == 1:
        try:
            attach(cgroup, new, replace=old[0], kind=kind)
            return
        except OSError as error:
            if error.errno != errno.EINVAL:  # kernels before 5.6 cannot replace
                raise
    attach(cgroup, new, kind=kind)  # with both attached, only what both allow is allowed
    for program in old:
        detach(cgroup, program, kind)


class _Fd:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


def _explained(what: str, kind: Kind, error: OSError, log: str) -> BpfError:
    since = "4.15" if kind is DEVICE else "4.18"
    remedies: dict[int | None, str] = {
        errno.EPERM: "run as root with CAP_BPF and CAP_NET_ADMIN (before 5.8: CAP_SYS_ADMIN); if another program was "
        "attached to this cgroup without BPF_F_ALLOW_MULTI, remove it",
        errno.ENOSYS: f"use a kernel with CONFIG_BPF_SYSCALL, or {kind.off}",
        errno.EINVAL: f"use a kernel with CONFIG_CGROUP_BPF ({since} or newer), or {kind.off}",
    }
    return BpfError(
        f"cannot {what} a {kind.what} program: {error.strerror}" + (f": {log}" if log else ""),
        remedy=remedies.get(error.errno, "see dmesg"),
    )
