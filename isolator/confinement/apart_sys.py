"""System calls of `apart`, in a small module, as processes that join a task for a health check import little
else.
"""

import ctypes
import os
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2  # linux/prctl.h, linux/seccomp.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_FS_MAKE_BLOCK = 1 << 11  # a right that device rules deny anyway; a ruleset must handle at least one
#: Right to move files between directories; a domain that handles any right of files denies it unless a rule
#: allows it.
_FS_REFER = 1 << 13
REFER_SINCE = 2  # ABI version of Linux 5.19
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1, 2
SCOPES_SINCE = 6  # ABI version of Linux 6.12
NO_CORE = 1  # bytes; with 0, a program to which the kernel pipes dumps would still get one (core(5))
_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Return the ABI version of Landlock; less than 1 if this kernel does not have it, or it is disabled."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def enter_domain(*, signals: bool = True, sockets: bool = True) -> None:
    """Restrict this process and its children to attaching to each other, and to no other process.

    That includes ptrace and what needs the same permission (/proc/PID/mem, process_vm_readv, pidfd_getfd). To
    be called with no_new_privs set.

    Args:
        signals: Whether to confine signals as well, where the kernel can (Linux 6.12). On older kernels, the
            domain also keeps the process from mounting, even in user namespaces of its own.
        sockets: Whether to confine connections to abstract Unix sockets, where the kernel can.

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
    """Return the struct landlock_ruleset_attr of a domain, and the rights (LANDLOCK_ACCESS_FS_*) that it
    allows below "/".

    Args:
        signals: Whether to confine signals, see `enter_domain`.
        sockets: Whether to confine abstract Unix sockets.

    Returns:
        The struct, and the rights; 0 if the domain needs no rule.
    """
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
    """Install a filter on the system calls of this process and its children, for good; no_new_privs must be
    set.

    Raises:
        OSError: The kernel refuses.
    """
    code = ctypes.create_string_buffer(program, len(program))
    filter = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
