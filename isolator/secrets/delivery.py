"""Delivery of secrets to a task: opened when it is about to start, and not kept by any process but the task."""

import ctypes
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from isolator.confinement.apart_sys import NO_CORE
from isolator.host.not_started import NotStarted
from isolator.images.login import Logins
from isolator.secrets.exposure import exposed_to_user
from isolator.secrets.mount import PLACE
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.secret import IMAGE_LOGIN
from mesos_gpu.model.tasks.assignment import Assignment, Outcome

_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Given:
    """Secrets of one task. Their values are not part of its repr.

    Attributes:
        env: Values of variables, and paths of files.
        files: Contents by relative path.
        logins: Logins for registries, which the task itself does not get; None without an image secret.
    """

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    logins: Logins | None = None


NONE: Final = Given()


def guard() -> None:
    """Protect this process' memory from other processes of its user, and forbid core dumps of it and its
    children.

    See prctl(2), PR_SET_DUMPABLE; core(5).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (NO_CORE, NO_CORE))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def see_sealed(plan: Assignment) -> None:
    """Check that the launch contains the task's secrets, before anything is made for the task.

    Raises:
        NotStarted: It does not; the job is launched again.
    """
    if (plan.secrets or plan.image_secret) and not plan.sealed_secrets:
        why = plan.secrets_problem or "the launch contains none"
        raise NotStarted(f"the job's secrets did not arrive: {why}", Outcome(infrastructure=True))


def opened(plan: Assignment, task: str, own: Mapping[str, str], directory: Path) -> Given:
    """Return the secrets of a task, opened with the keys of this host.

    Args:
        plan: Launch of the task.
        task: Mesos' task id.
        own: Environment of the executor.
        directory: The node directory.

    Raises:
        NotStarted: They are not for this task, cannot be opened here, or would be exposed to others.
        OSError: This process cannot be protected from others.
    """
    if not plan.secrets and not plan.image_secret:
        return NONE
    guard()
    if why := exposed_to_user(own):
        raise NotStarted(f"the task gets no secrets: {why}")
    values = _values(plan, task, own, directory)
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for name, file in plan.secrets:
        if name not in values:
            raise NotStarted(f"the launch contains no secret {name}", Outcome(infrastructure=True))
        if file:
            files[file], env[name] = values[name], f"{PLACE}/{file}"
        elif b"\0" in values[name]:
            raise NotStarted(
                f"secret {name} contains a NUL byte, which variables cannot have; request it as a file"
            )
        else:
            env[name] = os.fsdecode(values[name])
    return Given(env, files, _logins(plan, values) if plan.image_secret else None)


def _logins(plan: Assignment, values: Mapping[str, bytes]) -> Logins:
    if IMAGE_LOGIN not in values:
        raise NotStarted(
            f"the launch contains no login of the image secret {plan.image_secret}",
            Outcome(infrastructure=True),
        )
    try:
        return Logins.parse(values[IMAGE_LOGIN])
    except ValueError as error:
        whose = "of its queue" if plan.image_secret_is_default else "of the job"
        raise NotStarted(
            f"the image secret {plan.image_secret} {whose} {error}",
            Outcome(infrastructure=plan.image_secret_is_default),
        ) from None


def _values(plan: Assignment, task: str, own: Mapping[str, str], directory: Path) -> dict[str, bytes]:
    from isolator.secrets import keys  # deferred: few tasks need it

    host_keys, infrastructure = keys.read(directory), Outcome(infrastructure=True)
    if not (lasting := host_keys.lasting(time.time())):
        why = f"the job's secrets cannot be opened: the monitor of this host has made no key in {directory}"
        raise NotStarted(why, infrastructure)
    if host_keys.library:  # an empty path would mean the sandbox
        sys.path.append(host_keys.library)
    from mesos_gpu.adapters.secrets import envelope

    try:
        info = envelope.purpose(task, own.get("MESOS_SLAVE_ID", ""))
        return envelope.unseal(plan.sealed_secrets, [key.private for key in lasting], info)
    except (envelope.Unopened, Unavailable) as error:
        why = error.what if isinstance(error, Unavailable) else str(error)
        raise NotStarted(f"the job's secrets cannot be opened: {why}", infrastructure) from error
