"""Files of secrets for a container, at its gate; the gate itself is told of variables.

The files are made by a process of its own (`attaching`): a program with threads cannot change its mount namespace.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from isolator.secrets import attaching
from isolator.secrets.delivery import Given
from isolator.secrets.mount import PLACE
from mesos_gpu.errors import MesosGpuError

_MAX_S: Final = 30.0  # for some twenty system calls


def hand(given: Given, pid: int, gate: Path, user: tuple[int, int], sandbox: str) -> None:
    """Give a container its files of secrets, if it has some.

    Args:
        given: Of its task.
        pid: Of the process at its gate.
        gate: The gate's directory on the host.
        user: uid and gid of the task.
        sandbox: Where the container has it.

    Raises:
        MesosGpuError, OSError: It cannot be; the container is to be killed.
    """
    if not given.files:
        return
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        raise MesosGpuError(
            "a container in a user namespace of its own gets no files of secrets",
            remedy="ask for variables, or run the Docker Engine without userns-remap",
        )
    status = os.stat(gate / os.path.basename(PLACE))
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        _attach(
            {
                "files": {path: value.hex() for path, value in given.files.items()},
                "user": user,
                "namespace": namespace,
                "root": root,
                "place": (status.st_dev, status.st_ino),
                "sandbox": sandbox,
            },
            (namespace, root),
        )
    finally:
        os.close(namespace)
        os.close(root)


def _attach(order: dict[str, object], files: tuple[int, ...]) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", attaching.__file__],
            input=json.dumps(order).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            pass_fds=files,
            timeout=_MAX_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:  # it ends as the task's user, whose other tasks may stop it
        raise _cannot(f"not done within {_MAX_S:g} s") from error
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        raise _cannot(said[0] if said else f"status {done.returncode}")


def _cannot(why: str) -> MesosGpuError:
    return MesosGpuError(
        f"the container cannot be given its files of secrets: {why}",
        remedy="ask for variables; images have files of secrets from Linux 5.2 on",
    )
