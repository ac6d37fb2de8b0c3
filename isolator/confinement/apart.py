"""Isolation of a task from other tasks of its user: a Landlock domain, and a filter of system calls.

MESOS_GPU_TASK_FILTER on the agent: with `auto`, the default, system calls that reach other processes are
filtered only where neither Landlock nor Yama isolates tasks; with `strict` always; with `off` there is
neither domain nor filter. Sources: landlock(7), seccomp(2), the kernel's
Documentation/userspace-api/landlock.rst ("Ptrace restrictions").
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isolator.confinement import seccomp
from isolator.confinement.apart_sys import REFER_SINCE, SCOPES_SINCE, landlock_abi
from mesos_gpu.errors import BadConfiguration

FILTER: Final = "MESOS_GPU_TASK_FILTER"


@dataclass(frozen=True, slots=True)
class Apart:
    """Isolation of a task from other tasks of its user.

    Attributes:
        domain: Whether it is in a Landlock domain.
        program: Seccomp filter in the kernel's format; empty for no filter.
        signals, sockets: Restrictions of the domain, see `apart_sys.enter_domain`.
    """

    domain: bool = False
    program: bytes = b""
    signals: bool = True
    sockets: bool = True


NOT_APART: Final = Apart()


def apart_of(own: Mapping[str, str]) -> Apart:
    """Return the isolation of tasks on this host, by its operator's settings and its kernel.

    Args:
        own: Environment of the executor.

    Raises:
        BadConfiguration: `MESOS_GPU_TASK_FILTER` has an invalid value.
    """
    setting = own.get(FILTER) or "auto"
    if setting not in ("auto", "strict", "off"):
        raise BadConfiguration(f"{FILTER} is {setting!r}", remedy="set it to auto, strict or off")
    if setting == "off":
        return NOT_APART
    domain = has_landlock()
    apart = domain or has_yama()
    always = (*seccomp.KERNEL, *seccomp.OTHERS)
    names = always if apart and setting == "auto" else (*seccomp.PROCESSES, *always)
    return Apart(domain, seccomp.encode(seccomp.compile_filter(names, os.uname().machine)))


def apart_on_host_network(own: Mapping[str, str]) -> Apart:
    """Return the isolation of a container that has all namespaces of its own except the network's.

    Abstract Unix sockets belong to the network namespace; where the kernel supports it, the container reaches
    only its own.

    Args:
        own: Environment of the executor.

    Raises:
        BadConfiguration: As for `apart_of`.
    """
    return Apart(domain=True, signals=False) if has_scopes(own) else NOT_APART


def has_scopes(own: Mapping[str, str]) -> bool:
    """Return whether the Landlock domains of tasks block signals and abstract Unix sockets across domains.

    Args:
        own: The executor's environment.

    Raises:
        BadConfiguration: See `apart_of`.
    """
    return apart_of(own).domain and landlock_abi() >= SCOPES_SINCE


def has_landlock() -> bool:
    """Return whether this kernel has a usable Landlock that is enabled.

    The first version (Linux 5.13) keeps processes in a domain from moving files between directories, which
    programs need.
    """
    return landlock_abi() >= REFER_SINCE


def has_yama() -> bool:
    """Return whether Yama lets processes attach to their own children only."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) >= 1
    except FileNotFoundError:
        return False
