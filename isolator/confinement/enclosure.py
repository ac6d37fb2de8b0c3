"""Enclosure that restricts one task to its devices and ports: device nodes of its own, and cgroups that deny.
With undo.

The traces of an enclosure go into the ledger before `set_up` makes the first of them.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isolator.confinement.fence import Fence, fence_for, see_cgroup2
from isolator.confinement.limits import ANY_AMOUNTS, NO_LIMITS, Amounts, TaskLimits, limits_for
from isolator.devices import facts
from isolator.devices.cgroups import Cgroup, cgroup_of, make_directory, remove_if_empty
from isolator.devices.rules import Device, rules_of
from isolator.devices.view import OWN_CGROUP2
from isolator.gpus.ledger import Ledger, Trace
from isolator.host.control_ports import Denial
from isolator.host.port_ranges import EVERY_PORT, PortGrant
from mesos_gpu.errors import BadConfiguration, MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Inventory

if TYPE_CHECKING:  # deferred: few executors need it, and each import slows the start
    from mesos_gpu.model.shares.share import Share

#: Directory of tasks' nodes on devtmpfs, as /run is mounted nodev. It is empty after a boot, as it should be.
NODES: Final = Path("/dev/mesos_gpu")
#: Node with a minor that no GPU has (nv.h: GPUs end below 247), used to verify that the rules deny.
DENIED: Final = ".denied"
GATE: Final = ".gate"
#: Time limit for sealing a sandbox, in seconds: enough for some million files.
SEAL_S: Final = 60.0
#: Time limit for sealing a sandbox before the claim of its task is released, in seconds.
SMALL_SEAL_S: Final = 0.05
_DENIED_MINOR: Final = 253


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Everything that is to be made to enclose one task.

    Attributes:
        container: Mesos' id of the executor's container.
        isolated: Whether isolation is on; if an operator has set it off, nothing is made.
        cgroup: Cgroup of the task; None if the Docker Engine, which runs the task, denies devices itself.
        helpers: Without `cgroup`, cgroup of processes that do something for the task on the host, without any
            card.
        devices: Granted NVIDIA nodes.
        extra: Nodes of the host that every task gets.
        fence: Denied ports; None if none are denied.
        limits: Limits on processes, memory, CPUs and I/O.
    """

    container: str
    isolated: bool
    cgroup: Cgroup | None
    devices: tuple[Device, ...]
    extra: tuple[Device, ...]
    gpu_major: int
    nodes_root: Path = NODES
    fence: Fence | None = None
    helpers: Cgroup | None = None
    limits: TaskLimits = NO_LIMITS

    @property
    def nodes(self) -> Path:
        """Directory of the task's nodes, in which they are named as below /dev."""
        return self.nodes_root / self.container

    @property
    def refused(self) -> Path:
        """Node that the rules must deny."""
        return self.nodes / DENIED

    @property
    def gate(self) -> Path:
        """Directory of the gate, if the task has one."""
        return self.nodes / GATE

    def node(self, device: Device) -> Path:
        """Return the path of a device's node on the host."""
        return self.nodes / device.path.removeprefix("/dev/")

    def traces(self) -> tuple[Trace, ...]:
        """Return the traces that `set_up` leaves, in the order in which they are made."""
        traces = [Trace("nodes", str(self.nodes))] if self.isolated else []
        for cgroup in (self.cgroup, self.helpers):
            if cgroup is not None and cgroup.own:
                traces.append(Trace(cgroup.version, str(cgroup.path)))
        fenced = self.fence.traces() if self.fence is not None else ()
        return tuple(dict.fromkeys((*traces, *fenced, *self.limits.traces())))

    def joins(self) -> tuple[str, ...]:
        """Return the directories of the cgroups that the task's processes are to join."""
        fence = self.fence.cgroup if self.fence is not None else None
        groups = (self.cgroup, self.helpers, fence, *self.limits.own())
        return tuple(dict.fromkeys(str(group.path) for group in groups if group is not None and group.own))

    def set_up(self) -> None:
        """Make the nodes, then the cgroups with their rules, which would forbid to make nodes.

        Raises:
            MesosGpuError, OSError: A step failed; what was made before stays, for `undo`.
        """
        if not self.isolated:
            return
        make_directory(self.nodes)
        self.nodes.chmod(0o700)  # so that our nodes cannot be reached, whatever the modes of the driver's own
        for device in (*self.devices, *self.extra):
            _make_node(self.node(device), device.major, device.minor, writable="w" in device.access)
        _make_node(self.refused, self.gpu_major, _DENIED_MINOR)
        if self.cgroup is not None:
            self.cgroup.create()
            self.cgroup.allow(rules_of(self.devices, self.extra))
        if self.helpers is not None and (self.helpers.own or self.helpers.version == "cgroup2"):
            self.helpers.create()
            # In version 1, the cgroup that Mesos made denies already, and the engine's are below it.
            self.helpers.allow(rules_of(()))
        if self.fence is not None:
            self.fence.set_up()
        self.limits.set_up()

    def verify(self) -> None:
        """Verify from inside the cgroup that granted devices are allowed and others are denied.

        access(2) checks the device rules, and wakes no driver (fs/namei.c, `inode_permission`).

        Raises:
            MesosGpuError: A granted device is denied, or another is not.
        """
        if not self.isolated:
            return
        for device in self.devices:
            if not os.access(self.node(device), os.R_OK | (os.W_OK if "w" in device.access else 0)):
                raise MesosGpuError(
                    f"{device.path} ({device.major}:{device.minor}) is granted, but denied by a cgroup above",
                    remedy="find out what else restricts devices: the agent's own cgroup, or another device program",
                )
        if os.access(self.refused, os.R_OK | os.W_OK):
            raise MesosGpuError(
                f"the device rules of {self.cgroup} deny nothing",
                remedy="check whether another program replaces them; the task was not started",
            )


def _make_node(path: Path, major: int, minor: int, *, writable: bool = True) -> None:
    mode = 0o666 if writable else 0o444
    make_directory(path.parent)
    try:
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    except PermissionError as error:
        raise MesosGpuError(
            f"the node {path} ({major}:{minor}) cannot be made: {error.strerror}",
            remedy="run agents as root, in a cgroup that allows it (c 195:* rwm)",
        ) from error
    path.chmod(mode)  # regardless of the umask, as the cgroup decides


def _remove_directory(path: str, above: int | None = None) -> None:
    """Remove a directory with its content, without following links, and without the module shutil, whose
    import takes milliseconds.

    Raises:
        OSError: It cannot be removed.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        for name in os.listdir(handle):
            try:
                os.unlink(name, dir_fd=handle)
            except IsADirectoryError:
                _remove_directory(name, handle)
    finally:
        os.close(handle)
    os.rmdir(path, dir_fd=above)


def undo(trace: Trace) -> list[int]:
    """Remove what a trace names; harmless if it was never made, or is gone.

    Returns:
        Pids of processes that use it and could not be killed.

    Raises:
        MesosGpuError, OSError: It cannot be removed.
    """
    match trace.kind:
        case "nodes":
            if os.path.lexists(trace.what):
                _remove_directory(trace.what)
            remove_if_empty(Path(trace.what).parent)
        case "cgroup1" | "cgroup2":
            if trace.what.startswith(f"{OWN_CGROUP2}/"):
                see_cgroup2()  # it was mounted in another process' mount namespace
            return Cgroup(
                "cgroup1" if trace.kind == "cgroup1" else "cgroup2", Path(trace.what), own=True
            ).remove()
        case "uid":
            from isolator.host.user_pool import give_back

            return give_back(trace.what)
        case "rootfs":
            from isolator.host.rootfs import remove

            remove(trace.what)
        case "share" | "limit":
            from isolator.shares.enforcing import undo as undo_share

            return undo_share(trace)
        case "volume" | "container":
            pass  # a lease and a name, which end with the holding
        case "docker":
            from isolator.agent.docker_engine import DockerEngine

            socket_path, _, name = trace.what.partition(" ")
            DockerEngine(socket_path).remove(name)
        case _:
            raise BadConfiguration(
                f"the ledger of tasks has an entry of an unknown kind, {trace.kind}",
                remedy="undo it with the version of mesos_gpu that wrote the entry",
            )
    return []


def seal_soon(sandbox: str) -> bool:
    """Seal a sandbox of few files; return False if that fails or takes too long, and `seal` is to be called later."""
    from isolator.host.sealing import seal as seal_directory

    try:
        seal_directory(sandbox, SMALL_SEAL_S)
    except OSError:
        return False
    return True


def seal(sandbox: str, timeout_s: float, ledger: Ledger, log: Callable[[str], None]) -> None:
    """Seal the sandbox of an ended task, and kill processes of other tasks that keep the seal from ending.

    Args:
        sandbox: Path of the sandbox.
        timeout_s: Seconds until it is given up. The next call goes on.
        ledger: Ledger of this host, which names its tasks.
        log: Log of this program.

    Raises:
        OSError: See `unsealed.seal_sandbox`.
    """
    from isolator.host.unsealed import seal_sandbox

    def end_holders(place: str, deadline: float) -> None:
        from isolator.devices.holders import end_below  # deferred: few sandboxes need it

        try:
            end_below(place, ledger, deadline, log)
        except (MesosGpuError, OSError) as error:  # sealing may succeed all the same
            log(f"processes that hold directories in {place} cannot be searched: {error}")

    seal_sandbox(sandbox, timeout_s, end_holders)


def plan(
    container: str,
    gpus: Sequence[GpuId],
    inventory: Inventory,
    env: Mapping[str, str],
    root: Path = Path("/"),
    *,
    denied: Sequence[Denial] = (),
    grant: PortGrant = EVERY_PORT,
    share: "Share | None" = None,
    amounts: Amounts = ANY_AMOUNTS,
) -> Enclosure:
    """Return the enclosure to make for a task of this container that is granted these GPUs.

    Args:
        container: Mesos' id of the executor's container.
        gpus: UUIDs of the GPUs.
        inventory: Report of the node's monitor.
        env: Environment of the executor.
        root: Directory whose /proc and /dev are read.
        denied: Ports and addresses that the task must not reach.
        grant: Ports that the task may bind.
        share: Share of each GPU; None for whole GPUs.
        amounts: Amounts of memory and CPUs that the task may use.

    Raises:
        MesosGpuError: A GPU or the driver is missing, or the host cannot isolate: the task must not start.
    """
    isolation = facts.isolation_name(env)
    minors: Mapping[GpuId, int] = {}
    if gpus:
        minors = facts.minors(tuple(gpus), inventory, root)
    driver = facts.read_driver(root, env)
    if gpus and inventory.source == "nvml" and "nvidia-uvm" not in driver.majors:
        facts.load_driver(root)
        driver = facts.read_driver(root, env)
        if "nvidia-uvm" not in driver.majors:
            raise Unavailable(
                "the kernel module nvidia-uvm is not loaded",
                remedy="install nvidia-modprobe, or: modprobe nvidia-uvm",
            )
    cgroup = None if isolation == "off" else cgroup_of(container, isolation, root)
    fence = None if isolation == "off" else fence_for(container, denied, root, grant=grant)
    return Enclosure(
        container=container,
        isolated=isolation != "off",
        cgroup=cgroup,
        devices=facts.granted_devices(driver, minors, share, inventory, root),
        extra=facts.extra_devices(env, driver, root),
        gpu_major=driver.gpu_major,
        fence=fence,
        limits=limits_for(container, amounts, env, root, isolated=isolation != "off"),
    )
