"""Doctor's checks that tasks cannot take ports of other tasks, or connections to them, or reach metadata addresses."""

import socket
from collections.abc import Iterator, Mapping
from typing import Final

from isolator.confinement import listeners
from isolator.host import control_ports, port_ranges
from isolator.node.findings import Finding, Host, Level

PORTS: Final = "task ports"
METADATA: Final = "metadata"
PROOF: Final = "port proof"
_SYSCTLS: Final = ("ip_local_port_range", "ip_local_reserved_ports")


def look_at_ports(host: Host, flags: Mapping[str, str] | None) -> Iterator[Finding]:
    """Yield the finding on task ports: whether the kernel may choose a port that agents of this host give to tasks.

    Args:
        host: The host that is checked.
        flags: Flags of the host's Mesos agent; None if no agent answers.

    Raises:
        BadConfiguration: MESOS_GPU_TASK_PORTS is not a list of ranges.
    """
    if control_ports.is_off(host.env):
        text = "tasks can bind ports of other tasks, and get their connections: port rules are off"
        yield Finding(PORTS, Level.WARN, text, f"unset {control_ports.SETTING}=off")
        return
    reserved = port_ranges.listed(host.env)
    work_dir = (flags or {}).get("work_dir", "")
    try:
        if work_dir:
            reserved = port_ranges.merged((*reserved, *port_ranges.of_agent(f"{host.root}/{work_dir}")))
    except (OSError, ValueError, KeyError) as error:
        if not reserved:
            text = f"no task starts: the agent's range of ports is unknown: {error}"
            remedy = (
                f"set {port_ranges.SETTING} on the agent to the ports of its --resources, such as 31000-32000"
            )
            yield Finding(PORTS, Level.FAIL, text, remedy)
            return
    if not reserved:
        yield Finding(PORTS, Level.OK, "no agent that gives ports to tasks answers; not checked")
        return
    yield _overlap(host, reserved)


def _overlap(host: Host, reserved: tuple[port_ranges.Range, ...]) -> Finding:
    """Compare the ports of tasks with those that the kernel chooses for sockets without a port."""
    chosen, reserved_text = (host.text(f"proc/sys/net/ipv4/{name}") for name in _SYSCTLS)
    ranges = port_ranges.text_of(reserved)
    both = port_ranges.common(reserved, port_ranges.ephemeral(chosen, reserved_text))
    if not both:
        text = f"a task binds only its own of {ranges}, and the kernel chooses none of these"
        return Finding(PORTS, Level.OK, text)
    text = (
        f"a task that names no port can get one of another task: the kernel chooses from {'-'.join(chosen.split())}, "
        f"which overlaps the ports of tasks at {port_ranges.text_of(both)}"
    )
    more = port_ranges.text_of(port_ranges.merged((*port_ranges.parse(reserved_text), *both)))
    remedy = (
        f"sysctl -w net.ipv4.ip_local_reserved_ports={more} (and in /etc/sysctl.d), or give the agent --resources "
        f"with ports outside of {'-'.join(chosen.split())}"
    )
    return Finding(PORTS, Level.FAIL, text, remedy)


def look_at_metadata(host: Host) -> Iterator[Finding]:
    """Yield the finding on metadata: whether tasks reach link-local and metadata addresses.

    Raises:
        BadConfiguration: MESOS_GPU_METADATA is neither allow nor deny.
    """
    off = control_ports.is_off(host.env)
    if control_ports.allows_metadata(host.env) or off:
        name = f"{control_ports.SETTING}=off" if off else f"{control_ports.METADATA_SETTING}=allow"
        text = (
            "tasks reach link-local and metadata addresses: on a cloud's host each has the host's credentials"
        )
        yield Finding(METADATA, Level.WARN, text, f"unset {name}, unless all tasks may have them")
        return
    denied = control_ports.metadata_denials(host.env, str(host.root / "etc/resolv.conf"))
    servers = [each.address for each in denied if each.exempt]
    but = f", except the name servers {', '.join(map(str, servers))}" if servers else ""
    yield Finding(METADATA, Level.OK, f"tasks do not reach link-local and metadata addresses{but}")


def look_at_proof(host: Host) -> Iterator[Finding]:
    """Yield the finding on the proof: whether the kernel reports the cgroup of a socket of this process."""
    if not listeners.is_wanted(host.env):
        text = "the proof is off: whatever process listens at a task's port is taken for the task"
        remedy = f"unset {listeners.PROOF}=off on Linux 5.9 or newer, and MESOS_GPU_ISOLATION=off"
        yield Finding(PROOF, Level.WARN, text, remedy)
        return
    if not host.real:
        return
    why = ""
    try:
        with socket.create_server(("127.0.0.1", 0)) as own:
            sockets = listeners.listening(own.getsockname()[1])
        if not sockets or sockets[0].cgroup is None:
            why = "the kernel does not report in which cgroup a socket was made"
    except OSError as error:
        why = str(error)
    if why:
        text = f"connections to ports of tasks, and checks by TCP or HTTP, are refused: {why}"
        remedy = (
            f"use Linux 5.9 or newer with CONFIG_INET_DIAG; or do without the proof: {listeners.PROOF}=off"
        )
        yield Finding(PROOF, Level.FAIL, text, remedy)
    else:
        yield Finding(PROOF, Level.OK, "the kernel reports which task listens at a port")
