"""Whether tasks of one user could read each other's secrets on this host, and what its monitor says of that."""

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
    """The inventory with this host's key.

    Args:
        inventory: What is known of the host else.
        directory: Of the node.
        env: Of its agent.
    """
    from isolator.secrets import keys

    try:
        if why := exposed(env):
            return replace(inventory, secrets_problem=why)
        return replace(inventory, secrets_key=keys.current(directory, time.time()))
    except MesosGpuError as error:
        return replace(inventory, secrets_problem=error.what)
    except OSError as error:
        return replace(inventory, secrets_problem=f"its key cannot be kept in {directory}: {error.strerror}")


def exposed(env: Mapping[str, str]) -> str:
    """Why a task's environment would be open to other tasks of its user (/proc/PID/environ); "": it is not.

    Where executors are not root, all tasks are their user's own, who has the host's keys as well.

    Raises:
        BadConfiguration: The pool of users cannot be read.
    """
    return "" if pool_of(env) else exposed_to_user(env)


def exposed_to_user(own: Mapping[str, str]) -> str:
    """Why the environment of one task would be open to others of its user; "": it is not.

    Args:
        own: Its executor's environment, which names the task's uid if that is of the pool.
    """
    if not is_root() or UID in own:
        return ""
    if own.get(FILTER) == "off":
        return f"{FILTER} is off on its agent, so tasks of one user could read each other's secrets"
    if not has_landlock():
        return (
            "its kernel has no Landlock, so tasks of one user could read each other's secrets; "
            "MESOS_GPU_USER_POOL on its agent gives each a user of its own"
        )
    return ""


def is_root() -> bool:
    """Whether executors may become other users."""
    return os.geteuid() == 0


def answer(env: Mapping[str, str]) -> Answer:
    """What the doctor says of secrets on this host. `env`: of its agent."""
    if why := exposed(env):
        return Answer(f"jobs with secrets do not come here: {why}", "see docs/secrets.md")
    return Answer("tasks are kept from each other's secrets")
