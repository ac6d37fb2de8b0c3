"""Cgroup v2 of a container, entered by the launch helper: Mesos 1.11 does not support cgroup v2 itself."""

import errno
import os

RUNTIME_DIRECTORY = "MESOS_CONTAINERIZER_RUNTIME_DIRECTORY"


def enter(cgroup2: str, program: str) -> None:
    """Move this process, and so the container's command, into the cgroup of its top-level container.

    The cgroup is <cgroup2>-<number of the agent>/<container id>. Unused cgroups of ended containers are removed.

    Raises:
        OSError: The cgroup cannot be entered; the container must not run outside of it.
    """
    # <cluster>/agent-<number>/run/containers/<id>[/containers/<nested id>…]
    cluster = os.path.dirname(os.path.dirname(program))
    agent, _, _, container = os.path.relpath(os.environ[RUNTIME_DIRECTORY], cluster).split("/")[:4]
    top = f"{cgroup2}-{agent.rpartition('-')[2]}"
    os.makedirs(top, exist_ok=True)
    for name in os.listdir(top):
        try:
            os.rmdir(f"{top}/{name}")
        except OSError:  # a control file of the kernel, a cgroup in use, or already removed
            continue
    _join(f"{top}/{container}")


def _join(cgroup: str) -> None:
    while True:
        os.makedirs(cgroup, exist_ok=True)
        try:
            with open(cgroup + "/cgroup.procs", "w") as file:
                file.write("0")  # the writing process itself, in any pid namespace
            return
        except OSError as error:
            # another container's start removed it as unused, before or after it was opened
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
