"""System calls of `apart`. What joins a task for a health check imports this and little else, so it stays small."""

import ctypes
import os
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2  # linux/prctl.h, linux/seccomp.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_FS_MAKE_BLOCK = 1 << 11  # device rules deny it as well; something must be named
#: To move files between directories; a domain that handles any right of files denies it, unless a rule allows it.
_FS_REFER = 1 << 13
REFER_SINCE = 2  # ABI, of Linux 5.19
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1, 2
SCOPES_SINCE = 6  # ABI, of Linux 6.12
NO_CORE = 1  # bytes: with 0, a program that the kernel pipes dumps to would still get one (core(5))
_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The version of Landlock; less than 1: this kernel has none, or it is off."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def enter_domain(*, signals: bool = True, sockets: bool = True) -> None:
    """Let this process and its children attach to each other, and to no others: not by ptrace, nor by
    what asks the same (/proc/PID/mem, process_vm_readv, pidfd_getfd). To be called with no_new_privs set.

    Args:
        signals: Whether signals are kept in as well, where the kernel can (Linux 6.12). Before, the domain also keeps
            the process from mounting, in user namespaces of its own, too.
        sockets: Whether it connects to no abstract Unix sockets but those of the domain, likewise.

    Raises:
        OSError: The kernel refuses.
    """
    attributes, allowed = ruleset(signals=signals, sockets=sockets)
    made = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    _check(made)
    try:
        if allowed:
            _allow_below_root(made, allowed)
        _check(_libc.syscall(_RESTRICT_SELF, made, 0))
    finally:
        os.close(made)


def ruleset(*, signals: bool = True, sockets: bool = True) -> tuple[bytes, int]:
    """The struct landlock_ruleset_attr of a domain, and what it allows below "/", by the bits of LANDLOCK_ACCESS_FS_*;
    0: it needs no rule. `signals`, `sockets`: as of `enter_domain`."""
    scoped = (_SCOPE_SIGNAL if signals else 0) | (_SCOPE_ABSTRACT_SOCKET if sockets else 0)
    if scoped and landlock_abi() >= SCOPES_SINCE:
        return struct.pack("=QQQ", 0, 0, scoped), 0  # handled_access_fs, handled_access_net, scoped
    return struct.pack("=Q", _FS_MAKE_BLOCK | _FS_REFER), _FS_REFER


def _allow_below_root(made: int, allowed: int) -> None:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", allowed, root)  # struct landlock_path_beneath_attr, packed
        _check(_libc.syscall(_ADD_RULE, made, _PATH_BENEATH, rule, 0))
    finally:
        os.close(root)


def install(program: bytes) -> None:
    """Have the kernel filter the calls of this process and its children, for ever. With no_new_privs set.

    Raises:
        OSError: The kernel refuses.
    """
    code = ctypes.create_string_buffer(program, len(program))
    filter = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
