"""Availability and limits of NVIDIA's Multi-Process Service (MPS) for this host, a card and a task."""

import os
import shutil
from collections.abc import Mapping
from typing import Final

from isolator.shares.mps.daemon import Host, host_of
from mesos_gpu.adapters.mps_control import PROGRAM, SERVER, Control
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.shares.card import Ability
from mesos_gpu.model.shares.host_settings import MPS_PERCENTAGES, MPS_USERS
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.sharing.percentages import Cap, cap_of

FIRST_LIMITED: Final = 7  # the major compute capability of Volta
FIRST_3: Final = 615  # the first driver with protocol 3
#: Clients of a server on one card, before and from CUDA 13.1 on. Source: NVIDIA's MPS documentation of release 615,
#: "Client-Server Connection Limits": CUDA contexts, of which a process has one or more.
MAX_CLIENTS: Final = (48, 60)
_MORE_CLIENTS: Final = (13, 1)
_HOST_PID_NAMESPACE: Final = 0xEFFFFFFC  # linux/proc_ns.h, PROC_PID_INIT_INO


def any_percentage(env: Mapping[str, str]) -> bool:
    """Return whether the operator allows compute percentages that are known to give wrong results.

    Raises:
        BadConfiguration: The setting has an invalid value.
    """
    return MPS_PERCENTAGES.of(env) == "any"


def across_users(env: Mapping[str, str]) -> bool:
    """Return whether the operator lets tasks of several users share a server.

    Raises:
        BadConfiguration: The setting has an invalid value.
    """
    return MPS_USERS.of(env) == "all"


def no_users(env: Mapping[str, str], host: Host | None = None) -> str:
    """Return why tasks of several users cannot share a server on this host; "" if they can.

    Args:
        env: Environment of an executor or a monitor.
        host: MPS settings of the host. By default those of `env`.

    Raises:
        BadConfiguration: As for `across_users`.
    """
    if not across_users(env):
        return f"{MPS_USERS.name} is not 'all', so a server is for one user only"
    program = (host or host_of(env)).program
    if program is None:
        return f"{PROGRAM} is not installed"
    try:
        # in both protocols the name of the daemon's option has this word
        has_option = b"multiuser" in program.read_bytes()
    except OSError as error:
        return f"{program} cannot be read: {error.strerror}"
    return "" if has_option else "this driver's MPS daemon serves one user at a time"


def cap_for(share: Share, compute_capability: str | None, env: Mapping[str, str]) -> Cap:
    """Return the percentage of compute that a share gets on a card of this host.

    Raises:
        Unavailable: No allowed percentage is as small.
        BadConfiguration: As for `any_percentage`.
    """
    cap = cap_of(share.compute_milli, compute_capability, any_percentage=any_percentage(env))
    if cap is None:
        raise Unavailable(
            f"{share.compute_milli} thousandths of a card are less than MPS can give",
            remedy="ask for 1 % or more",
        )
    return cap


def probe(env: Mapping[str, str], driver_version: str) -> dict[Ability, str]:
    """Return why this host cannot use MPS, by protocol; "" if it can.

    Args:
        env: Environment of the monitor.
        driver_version: Version as NVML has it, "535.261.03"; "" without a driver.
    """
    why = _lacks(host_of(env), env)
    major = driver_version.partition(".")[0]
    newer = major.isdecimal() and int(major) >= FIRST_3
    return {
        Ability.MPS3: why or ("" if newer else f"driver {driver_version or 'none'} is older than {FIRST_3}"),
        Ability.MPS2: why,
    }


def _lacks(host: Host, env: Mapping[str, str]) -> str:
    """Return the first requirement of MPS that this host does not meet; "" if it meets all."""
    if host.program is None:
        return f"{PROGRAM} is not installed"
    if not shutil.which(SERVER, path=Control(host.program, host.root).environment()["PATH"]):
        return f"{SERVER} is not installed"
    if os.geteuid() != 0:
        return "agents do not run as root"
    if os.stat("/proc/self/ns/pid").st_ino != _HOST_PID_NAMESPACE:
        return "agents, or their executors, are in a pid namespace of their own"
    if host.nvml is None:
        return "nvidia-ml-py is not installed, which sets compute modes"
    if env.get("MESOS_GPU_USER_POOL"):
        return "MESOS_GPU_USER_POOL gives each task a user of its own, but MPS serves one user"
    missing = [tool for tool in ("unshare", "mount", "nsenter") if not shutil.which(tool)]
    return f"{' and '.join(missing)} of util-linux is not installed" if missing else ""


def too_old(compute_capability: str | None) -> str:
    """Return why MPS cannot limit clients on a card; "" if it can. Source: nvidia-cuda-mps-control(1), "Volta
    MPS".

    Args:
        compute_capability: Version such as "9.0"; None if not known.
    """
    major = (compute_capability or "").partition(".")[0]
    if not major.isdecimal() or int(major) >= FIRST_LIMITED:
        return ""
    return f"compute capability {compute_capability}: MPS can limit clients only from {FIRST_LIMITED}.0 on"


def refusal(uid: int | None, cards: int) -> str:
    """Return why a task cannot be an MPS client, whatever its host has; "" if it can.

    Args:
        uid: Id of the user that it runs as; None if not known.
        cards: Number of cards that it has a share of.
    """
    if uid is None:
        return "MPS needs to know the user that the task runs as"
    if uid == 0:
        return "MPS would let a task of root change the limits of others"
    return (
        "a process reaches one MPS daemon only, so shares of several cards cannot use it" if cards > 1 else ""
    )


def most_clients(cuda_version: str | None) -> int:
    """Return the number of clients that a server takes.

    Args:
        cuda_version: Newest CUDA version that the driver can run, "12.2"; None if not known.
    """
    numbers = tuple(int(part) for part in (cuda_version or "").split(".") if part.isdecimal())
    return MAX_CLIENTS[numbers >= _MORE_CLIENTS]
