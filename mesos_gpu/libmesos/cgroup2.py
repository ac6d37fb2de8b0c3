"""The cgroup v2 that a launch helper puts its container into: Mesos 1.11 has none of its own there."""

import errno
import os

RUNTIME_DIRECTORY = "MESOS_CONTAINERIZER_RUNTIME_DIRECTORY"


def enter(cgroup2: str, program: str) -> None:
    """Put this process, and so the container's command, into the cgroup of its top-level container:
    <cgroup2>-<the agent's number>/<container id>. Cgroups of containers that ended go meanwhile.

    Raises:
        OSError: It cannot be entered; the container must not run outside of it.
    """
    # <cluster>/agent-<number>/run/containers/<id>[/containers/<nested id>…]
    cluster = os.path.dirname(os.path.dirname(program))
    agent, _, _, container = os.path.relpath(os.environ[RUNTIME_DIRECTORY], cluster).split("/")[:4]
    top = f"{cgroup2}-{agent.rpartition('-')[2]}"
    os.makedirs(top, exist_ok=True)
    for name in os.listdir(top):
        try:
            os.rmdir(f"{top}/{name}")
        except OSError:  # a file of the kernel's, in use, or gone
            continue
    _join(f"{top}/{container}")


def _join(cgroup: str) -> None:
    while True:
        os.makedirs(cgroup, exist_ok=True)
        try:
            with open(cgroup + "/cgroup.procs", "w") as file:
                file.write("0")  # the writer itself, in whichever pid namespace
            return
        except OSError as error:
            # another container's start took it for unused: before it was opened, or after
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
