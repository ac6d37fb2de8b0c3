"""Check of whether tasks of one user could read each other's secrets on this host, and its report by the
monitor.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from isolator.confinement.apart import FILTER, has_landlock
from isolator.host.hardening import Answer
from isolator.host.user_pool import UID, pool_of
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.gpu import Inventory


def with_key(inventory: Inventory, directory: Path, env: Mapping[str, str]) -> Inventory:
    """Return the inventory with this host's public key, or why it has none.

    Args:
        inventory: Inventory of the host.
        directory: The node directory.
        env: Environment of the host's agent.
    """
    from isolator.secrets import keys

    try:
        if why := exposed(env):
            return replace(inventory, secrets_problem=why)
        return replace(inventory, secrets_key=keys.current(directory, time.time()))
    except MesosGpuError as error:
        return replace(inventory, secrets_problem=error.what)
    except OSError as error:
        return replace(
            inventory, secrets_problem=f"the key of this host cannot be kept in {directory}: {error.strerror}"
        )


def exposed(env: Mapping[str, str]) -> str:
    """Return why a task's environment would be exposed to other tasks of its user (/proc/PID/environ); "" if
    it is not.

    Where executors are not root, all tasks run as their user, who has the host's keys as well.

    Raises:
        BadConfiguration: The setting of the user pool is invalid.
    """
    return "" if pool_of(env) else exposed_to_user(env)


def exposed_to_user(own: Mapping[str, str]) -> str:
    """Return why the environment of one task would be exposed to other tasks of its user; "" if it is not.

    Args:
        own: Environment of its executor, which names the task's uid if that is from the pool.
    """
    if not is_root() or UID in own:
        return ""
    if own.get(FILTER) == "off":
        return f"{FILTER} is off on the agent, so tasks of one user could read each other's secrets"
    if not has_landlock():
        return (
            "the kernel has no Landlock, so tasks of one user could read each other's secrets; "
            "MESOS_GPU_USER_POOL on the agent gives each a user of its own"
        )
    return ""


def is_root() -> bool:
    """Return whether executors may become other users."""
    return os.geteuid() == 0


def answer(env: Mapping[str, str]) -> Answer:
    """Return the doctor's answer on secrets of this host.

    Args:
        env: Environment of its agent.
    """
    if why := exposed(env):
        return Answer(f"jobs with secrets are not placed on this host: {why}", "see docs/secrets.md")
    return Answer("tasks are kept from each other's secrets")
