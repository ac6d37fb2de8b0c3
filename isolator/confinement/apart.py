"""What keeps a task from the other tasks of its user: a domain of Landlock, and a filter of system calls.

MESOS_GPU_TASK_FILTER on the agent: `auto`, if it is not set: ways to other processes are filtered where neither
Landlock nor Yama keeps tasks apart; `strict`: always; `off`: neither domain nor filter.
Sources: landlock(7), seccomp(2), the kernel's Documentation/userspace-api/landlock.rst ("Ptrace restrictions").
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
    """What keeps a task apart from others.

    Attributes:
        domain: Whether it has a domain of Landlock.
        program: The seccomp filter, as the kernel takes it; empty: no filter.
        signals, sockets: As of `apart_sys.enter_domain`.
    """

    domain: bool = False
    program: bytes = b""
    signals: bool = True
    sockets: bool = True


NOT_APART: Final = Apart()


def apart_of(own: Mapping[str, str]) -> Apart:
    """Read how tasks are kept apart on this host, from what its operator set and what its kernel can do.

    Args:
        own: The executor's environment.

    Raises:
        BadConfiguration: `MESOS_GPU_TASK_FILTER` is none of its values.
    """
    how = own.get(FILTER) or "auto"
    if how not in ("auto", "strict", "off"):
        raise BadConfiguration(f"{FILTER} is {how!r}", remedy="set it to auto, strict or off")
    if how == "off":
        return NOT_APART
    domain = has_landlock()
    apart = domain or has_yama()
    always = (*seccomp.KERNEL, *seccomp.OTHERS)
    names = always if apart and how == "auto" else (*seccomp.PROCESSES, *always)
    return Apart(domain, seccomp.encode(seccomp.compile_filter(names, os.uname().machine)))


def apart_on_host_network(own: Mapping[str, str]) -> Apart:
    """What keeps a container that has all namespaces of its own but the network's: of abstract Unix sockets, which
    belong to that, it reaches its own only, where the kernel can.

    Args:
        own: As of `apart_of`.

    Raises:
        BadConfiguration: As of `apart_of`.
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
    """Whether this kernel has a Landlock that can be used, and it is on. The first one (Linux 5.13) keeps whoever is in
    a domain from moving files between directories, which programs need."""
    return landlock_abi() >= REFER_SINCE


def has_yama() -> bool:
    """Whether processes attach to their own children only."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) >= 1
    except FileNotFoundError:
        return False
