"""Doctor's check that this host can prove which task listens at a port."""

import socket
from collections.abc import Iterator

from isolator.confinement.listeners import PROOF, is_wanted, listening
from isolator.node.findings import Finding, Host, Level


def port_proof(host: Host) -> Iterator[Finding]:
    """Yield the finding on the proof: whether the kernel reports the cgroup of a socket of this process."""
    if not is_wanted(host.env):
        text = "it is off: what listens at a port of a task is taken for the task"
        remedy = f"unset {PROOF}=off on Linux 5.9 or newer, and MESOS_GPU_ISOLATION=off"
        yield Finding("port proof", Level.WARN, text, remedy)
        return
    if not host.real:
        return
    why = ""
    try:
        with socket.create_server(("127.0.0.1", 0)) as own:
            sockets = listening(own.getsockname()[1])
        if not sockets or sockets[0].cgroup is None:
            why = "the kernel does not say in which cgroup a socket was made"
    except OSError as error:
        why = str(error)
    if why:
        text = f"no connection to a port of a task is made, nor a check by TCP or HTTP: {why}"
        remedy = f"use Linux 5.9 or newer with CONFIG_INET_DIAG; or do without the proof: {PROOF}=off"
        yield Finding("port proof", Level.FAIL, text, remedy)
    else:
        yield Finding("port proof", Level.OK, "the kernel says which task listens at a port")
