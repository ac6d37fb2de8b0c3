"""Delivery of files of secrets to a container that waits at its gate; variables are delivered by the gate
itself.

The files are made by a process of its own (`attaching`), as a program with threads cannot change its mount
namespace.
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

_MAX_S: Final = 30.0  # time limit for some twenty system calls


def hand(given: Given, pid: int, gate: Path, user: tuple[int, int], sandbox: str) -> None:
    """Mount the files of secrets in a container, if its task has any.

    Args:
        given: Secrets of the task.
        pid: Pid of the process at the container's gate.
        gate: Directory of the gate on the host.
        user: Uid and gid of the task.
        sandbox: Path of the sandbox in the container.

    Raises:
        MesosGpuError, OSError: That failed; the container is to be killed.
    """
    if not given.files:
        return
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        raise MesosGpuError(
            "a container in a user namespace of its own cannot get files of secrets",
            remedy="request the secrets as variables, or run the Docker Engine without userns-remap",
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
    # it ends running as the task's user, and other tasks of that user may stop it
    except subprocess.TimeoutExpired as error:
        raise _cannot(f"not done within {_MAX_S:g} s") from error
    if done.returncode:
        last_lines = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        raise _cannot(last_lines[0] if last_lines else f"status {done.returncode}")


def _cannot(why: str) -> MesosGpuError:
    return MesosGpuError(
        f"the files of secrets cannot be mounted in the container: {why}",
        remedy="request the secrets as variables; images can have files of secrets since Linux 5.2",
    )
