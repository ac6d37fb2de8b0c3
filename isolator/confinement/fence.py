"""Fence of a task, which denies control ports, metadata addresses and ports of other tasks.

It is a cgroup v2 of the task with eBPF programs, which the kernel runs when a socket created in the cgroup
connects, sends to an address, or is bound to one. Without it, a process that listens at the port of an agent
that is being restarted, or of a task that is not ready yet, would be taken for that agent or task.

It works beside cgroup v1, too: a process is in one cgroup of each hierarchy. If version 2 is not mounted,
this module mounts it. Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and
Documentation/bpf/libbpf/program_types.rst.
"""

import _socket
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from isolator.devices import bpf, bpf_sys, cgroups, view
from isolator.devices.cgroups import Cgroup
from isolator.gpus.ledger import Trace
from isolator.host.control_ports import SETTING, Denial
from isolator.host.port_ranges import EVERY_PORT, PortGrant
from isolator.program import statement
from mesos_gpu.errors import Unavailable

#: A test of a denial: port, address (None for any), whether reaching it is denied, whether listening there is denied.
Probe = tuple[int, str | None, bool, bool]
#: Address family, and the kinds of programs that decide on it: for binding, and those for reaching.
_PROGRAMS: Final = (
    (_socket.AF_INET, bpf_sys.BIND4, bpf_sys.CONNECT4, bpf_sys.SENDMSG4),
    (_socket.AF_INET6, bpf_sys.BIND6, bpf_sys.CONNECT6, bpf_sys.SENDMSG6),
)
TRIAL_S: Final = 30.0
_LOOPBACK: Final = {_socket.AF_INET: "127.0.0.1", _socket.AF_INET6: "::1"}


@dataclass(frozen=True, slots=True)
class Fence:
    """Network restrictions of a task: eBPF programs on a cgroup v2 that deny connecting and binding.

    Attributes:
        denied: Ports and addresses that the task's processes cannot reach.
        cgroup: Cgroup v2 of the task's processes.
        grant: Ports that the processes may bind; None if they may bind any port, as in a network of their own.
    """

    denied: tuple[Denial, ...]
    cgroup: Cgroup
    grant: PortGrant | None = EVERY_PORT

    def probes(self) -> tuple[Probe, ...]:
        """Return the tests for `see_denied`: every denied port, but no address at which a real server may
        answer.
        """
        listens = self.grant is not None
        tries: list[Probe] = [
            (each.port, each.address, True, listens)
            for each in self.denied
            if each.port is not None and not each.exempt
        ]
        if self.grant is not None and (port := self.grant.denied_port()) is not None:
            tries.append((port, None, False, True))
        return tuple(tries)

    def traces(self) -> tuple[Trace, ...]:
        """Return the traces that `set_up` leaves."""
        return (Trace(self.cgroup.version, str(self.cgroup.path)),)

    def set_up(self) -> None:
        """Create the cgroup and attach the eBPF programs to it. No process joins it here.

        Raises:
            MesosGpuError, OSError: A step failed. Results of earlier steps remain, for
                `isolator.confinement.enclosure.undo` with the `traces`.
        """
        self.cgroup.create()
        self.put_on(self.cgroup.path)

    def put_on(self, directory: Path) -> None:
        """Attach the eBPF programs to a cgroup, beside programs that others attached.

        Raises:
            MesosGpuError, OSError: The kernel refuses.
        """
        with _opened(directory) as fd:
            for kind, program in self._programs():
                bpf_sys.install(fd, program, kind)

    def _programs(self) -> Iterator[tuple[bpf_sys.Kind, bytes]]:
        """Yield the eBPF programs, each with its kind, which names the hook that it is attached to."""
        for family, bind, *reach in _PROGRAMS:
            program = bpf.encode(bpf.compile_denials(self.denied, family))
            yield from ((kind, program) for kind in reach)
            if self.grant is not None:
                yield bind, bpf.encode(bpf.compile_binds(self.denied, self.grant, family))

    def probe4(self) -> tuple[int, str]:
        """Return port and IPv4 address of a destination that is denied.

        Raises:
            Unavailable: Only single addresses of IPv6 are denied.
        """
        for port, address, reach, _ in self.probes():
            if reach and (address is None or ":" not in address):
                return port, address or _LOOPBACK[_socket.AF_INET]
        raise Unavailable(
            "an image cannot verify that ports are denied, as no IPv4 address is denied",
            remedy="give the agent an IPv4 address",
        )

    def take(self, pid: int, own_cgroup: str = "") -> None:
        """Put a process that another program has started behind the fence.

        Args:
            pid: Pid of the process.
            own_cgroup: Part of the path of a cgroup that belongs to the container alone; if the process is in
                such a cgroup, the programs are attached to that, as it has the limits. "" if there is no such
                cgroup.

        Raises:
            MesosGpuError, OSError: The process could not be moved, or the programs could not be attached.
        """
        path = cgroups.membership(pid).get("cgroup2", "/")
        if own_cgroup and own_cgroup in path:
            self.put_on(cgroups.mounted()["cgroup2"] / path.lstrip("/"))
        else:
            (self.cgroup.path / "cgroup.procs").write_text(str(pid))

    def stands(self) -> bool:
        """Return whether exactly the fence's programs are attached to its cgroup.

        Raises:
            MesosGpuError, OSError: The programs cannot be read.
        """
        with _opened(self.cgroup.path) as fd:
            return all(bpf_sys.installed(fd, program, kind) for kind, program in self._programs())


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def fence_for(
    container: str, denied: Sequence[Denial], root: Path = Path("/"), *, grant: PortGrant = EVERY_PORT
) -> Fence | None:
    """Return the fence of a container's task; None if nothing is denied to it.

    Args:
        container: Mesos' id of the executor's container.
        denied: Ports and addresses that the task must not reach, from `control_ports`.
        root: Directory whose /proc is read.
        grant: Ports that the task may bind on the host's network.

    Raises:
        Unavailable: As for `see_cgroup2`.
    """
    if not denied and not grant.reserved:
        return None
    if root == Path("/"):
        see_cgroup2()
    return Fence(tuple(denied), cgroups.own_cgroup2(container, root), grant)


def see_cgroup2() -> None:
    """Mount cgroup version 2 in this mount namespace, unless it is mounted.

    Raises:
        Unavailable: It cannot be mounted.
    """
    if "cgroup2" in cgroups.mounted():
        return
    try:
        view.mount_cgroup2()
    except OSError as error:
        raise Unavailable(
            f"tasks cannot be kept from the control ports: cgroup v2 is not mounted, and cannot be: {error.strerror}",
            remedy=f"run agents as root on Linux 4.18 or newer; or do without: {SETTING}=off",
        ) from error


def see_denied(probe: Probe) -> None:
    """Verify from inside the cgroup that a port is denied, by TCP and UDP, IPv4 and IPv6, for reaching it and
    listening at it.

    If the kernel lets a try through, an empty datagram is sent, or a connection is begun and given up.

    Args:
        probe: Port that must be denied.

    Raises:
        PermissionError: It is not denied; the text names a possible cause.
    """
    port, address, reach, listen = probe
    tries = tuple(bind for bind, wanted in ((False, reach), (True, listen)) if wanted)
    ways = tuple(product((_socket.SOCK_STREAM, _socket.SOCK_DGRAM), tries))
    for family, loopback in _LOOPBACK.items():
        target = loopback if address is None else _written_for(address, family)
        for kind, bind in ways if target else ():
            if (number := _tried(family, kind, (target, port), bind=bind)) != errno.EPERM:
                import socket

                how = "nothing" if not number else os.strerror(number)
                names = f"{socket.AddressFamily(family).name}, {socket.SocketKind(kind).name}"
                what = f"{names}, {'listening' if bind else 'reaching'}: {how}"
                raise PermissionError(
                    errno.EPERM,
                    f"port {port} is not denied by the rules of its cgroup ({what}); before Linux 5.15 the use of "
                    "cgroup v1's net_cls or net_prio turns such rules off until the next boot",
                )


def _written_for(address: str, family: int) -> str:
    """Return an address in the form for a socket of a family; "" if the family has no such address."""
    if family == _socket.AF_INET6:
        return address if ":" in address else f"::ffff:{address}"
    return "" if ":" in address else address


def _tried(family: int, kind: int, target: tuple[str, int], *, bind: bool) -> int:
    """Return the error number of reaching for an address, or of listening there; 0 for none.

    EPERM if this host does not support the family at all.
    """
    try:
        made = _socket.socket(family, kind)
    except OSError:
        return errno.EPERM
    with closing(made):
        made.setblocking(False)
        try:
            if bind:
                made.bind(target)
            elif kind == _socket.SOCK_STREAM:
                made.connect(target)
            else:
                made.sendto(b"", target)
        except OSError as error:
            return error.errno or errno.EIO
    return 0


def trial(name: str, port: int, grant: PortGrant) -> None:
    """Make a fence, verify from inside that it denies, and remove it.

    Args:
        name: Name of its cgroup.
        port: Port to deny.
        grant: Ports that may be bound inside the fence.

    Raises:
        MesosGpuError, OSError: It cannot be made, or does not deny.
    """
    fence = fence_for(name, (Denial(port),), grant=grant)
    assert fence is not None
    import json
    import subprocess  # deferred: needed only for the trial of a host

    code = "from isolator.confinement.fence import _join_and_see; _join_and_see(sys.argv[1], sys.argv[2])"
    try:
        fence.set_up()
        done = subprocess.run(
            statement(code, str(fence.cgroup.path), json.dumps(fence.probes())),
            capture_output=True,
            text=True,
            timeout=TRIAL_S,
            check=False,
        )
        if done.returncode:
            raise PermissionError(errno.EPERM, (done.stderr.strip().splitlines() or ["?"])[-1])
    finally:
        fence.cgroup.remove()


def _join_and_see(directory: str, probes: str) -> None:
    import json

    Path(directory, "cgroup.procs").write_text("0")
    for probe in json.loads(probes):
        see_denied(tuple(probe))
