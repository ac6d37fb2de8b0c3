"""Memory limits by cgroup: the driver, or the kernel's dmem controller, refuses allocations beyond a task's
share.

They are set on the cgroup that the task's processes join, before the first of them is in it, and read back.
The undo sets them to nothing before the cgroup goes: a soft limit is added to all cgroups above, and stays
there when the cgroup is removed (NVIDIA's "MPS v3 Memory Partitioning", "Ancestor reservation propagation").

The Docker Engine makes the cgroup of a container when it starts it, and removes it at once when that ends. So
limits are set there while the container waits at its gate, and none is soft.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from isolator.devices.cgroups import cgroup_of
from isolator.gpus import driver_volume
from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.nvml_child import NvmlCalls
from isolator.gpus.share_claims import CardTrace
from isolator.host import control_ports
from isolator.shares.tenancy import Given, MemoryInUse, Tenancy
from mesos_gpu.errors import Conflict, MesosGpuError, Unavailable
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.share import Share

KIND: Final = "limit"  # kind of a trace; it names a card and a cgroup directory
CGROUPS: Final = Path("/sys/fs/cgroup")
DMEM: Final = "dmem"
NO_BURST: Final = (
    "the task cannot use more memory than its share, even while the rest is free: the Docker Engine removes its "
    "cgroup when it ends, and a limit that may be exceeded would stay"
)


def calls_of(env: Mapping[str, str]) -> NvmlCalls:
    """Return a client of this host's driver, by an executor's or monitor's environment."""
    return NvmlCalls(driver_volume.libraries_of_module(env))


class CgroupLimits:
    """`Measure` that limits memory by the cgroup controller dmem or misc; NVML uses the one that the host
    has.

    Args:
        calls: Client of the driver. By default that of this host's driver, by the executor's environment.
        cgroups: Directory where cgroups are mounted.
    """

    def __init__(self, calls: NvmlCalls | None = None, cgroups: Path = CGROUPS) -> None:
        self._calls, self._cgroups = calls, cgroups
        self._at_gate: Path | None = None  # cgroup of a container of the Docker Engine, known at its gate

    def lacks(self, tenancy: Tenancy) -> str:
        """Return why memory cannot be limited by cgroup here; "" if it can.

        A limit on a cgroup that the task's processes never join would be without effect.
        """
        if tenancy.docker and control_ports.is_off(tenancy.own):
            return (
                "the Docker Engine makes a container's cgroup when it starts it, so its limits are set at its gate; "
                f"with {control_ports.SETTING}=off it has no gate"
            )
        return unfit(self._cgroups)

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Return a trace for each card and the cgroup; a container of the Docker Engine gets them at its
        gate.
        """
        return () if tenancy.docker else _traces(tenancy, self._cgroup(tenancy))

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Return no rows: limits belong to the task."""
        return ()

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Set the limits; for the Docker Engine, return a function that sets them at the gate."""
        if tenancy.docker:
            notes = (NO_BURST,) if tenancy.share.memory_max_mib > tenancy.share.memory_mib else ()
            return Given(notes=notes, at_gate=(partial(self._limit_at_gate, tenancy),))
        cgroup = self._cgroup(tenancy)
        if not cgroup.is_dir():
            raise Unavailable(
                f"the task has no cgroup {cgroup} that its memory could be limited by",
                remedy="see how its agent makes cgroups: mesos-gpu doctor",
            )
        enable_dmem(cgroup, self._cgroups)
        self._set(tenancy, cgroup)
        return Given()

    def _limit_at_gate(self, tenancy: Tenancy, cgroup: Path, leave: Callable[[Trace], None]) -> None:
        """Record and set the limits of a container that waits at its gate."""
        for trace in _traces(tenancy, cgroup):
            leave(trace)
        self._at_gate = cgroup
        enable_dmem(cgroup, self._cgroups)
        self._set(tenancy, cgroup)

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Set other limits, as `Measure.resize`; NVML refuses limits below what is in use."""
        cgroup = self._cgroup(tenancy)
        try:
            self._set(tenancy, cgroup)
        except Conflict as error:
            used_mib = max((self._used_mib(tenancy, gpu, cgroup) for gpu in tenancy.gpus), default=0)
            raise MemoryInUse(used_mib, limits_of(tenancy)[1]) from error

    def _used_mib(self, tenancy: Tenancy, gpu: Gpu, cgroup: Path) -> int:
        calls = self._calls or calls_of(tenancy.own)
        limits = calls.ask("limits", uuid=gpu.id, cgroup=str(cgroup))
        return int(limits["used_mib"]) if limits else 0

    def _set(self, tenancy: Tenancy, cgroup: Path) -> None:
        calls = self._calls or calls_of(tenancy.own)
        uuids = [gpu.id for gpu in tenancy.gpus]
        soft_mib, hard_mib = limits_of(tenancy)
        calls.ask("limit", uuids=uuids, cgroup=str(cgroup), soft_mib=soft_mib, hard_mib=hard_mib)

    def _cgroup(self, tenancy: Tenancy) -> Path:
        """Return the cgroup directory of the task: the Docker Engine's if known, else the one of Mesos or our
        own.

        It need not exist yet.
        """
        if self._at_gate is not None:
            return self._at_gate
        if self._cgroups == CGROUPS:
            return cgroup_of(tenancy.container, "cgroup2").path
        return self._cgroups / "mesos_gpu" / tenancy.container


def _traces(tenancy: Tenancy, cgroup: Path) -> tuple[Trace, ...]:
    return tuple(Trace(KIND, f"{gpu.id} {cgroup}") for gpu in tenancy.gpus)


def limits_of(tenancy: Tenancy) -> tuple[int, int]:
    """Return the soft and the hard limit in MiB.

    With a soft limit of 0 no process is ever ended for the sake of others. Only shares that may exceed their
    size while memory is free have another.
    """
    share = tenancy.share
    if share.memory_max_mib > share.memory_mib and not tenancy.docker:
        return share.memory_mib, share.memory_max_mib
    return 0, share.memory_mib


def unfit(cgroups: Path = CGROUPS) -> str:
    """Return why this host's cgroups cannot limit memory of cards; "" if they can."""
    if not (cgroups / "cgroup.controllers").exists():
        return f"cgroup version 2 is not mounted at {cgroups} (Mesos' cgroup isolators before 1.12 need version 1)"
    return ""


def has_dmem(cgroups: Path = CGROUPS) -> bool:
    """Return whether the kernel has the dmem controller, and a driver registered memory with it."""
    try:
        return "nvidia" in (cgroups / "dmem.capacity").read_text()
    except OSError:
        return False


def enable_dmem(cgroup: Path, cgroups: Path = CGROUPS) -> None:
    """Enable the dmem controller in all cgroups from the root to this one; do nothing if the kernel has none.

    Raises:
        Unavailable: A cgroup on the way refuses it.
    """
    if DMEM not in _words(cgroups / "cgroup.controllers"):
        return
    for parent in reversed(cgroup.relative_to(cgroups).parents):
        control = cgroups / parent / "cgroup.subtree_control"
        if DMEM in _words(control):
            continue
        try:
            control.write_text(f"+{DMEM}")
        except OSError as error:
            raise Unavailable(
                f"{control}: cannot enable the controller {DMEM}: {error.strerror}",
                remedy="run agents as root; no process may be in a cgroup that has others below it",
            ) from error


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def undo(trace: Trace, calls: NvmlCalls | None = None) -> None:
    """Remove a task's limits; harmless if they were never set, or the cgroup or the driver is gone.

    Raises:
        MesosGpuError: The driver does not answer, or refuses: the cgroup must not be removed yet.
    """
    uuid, _, path = trace.what.partition(" ")
    if not Path(path).is_dir():
        return
    import os

    calls = calls or calls_of(os.environ)
    try:
        present = calls.ask("limits", uuid=uuid, cgroup=path)
    except MesosGpuError:
        if not Path("/proc/driver/nvidia/version").exists():  # limits end with the driver
            return
        raise
    if present is not None and (present["soft_mib"] or present["hard_mib"] is not None):
        calls.ask("limit", uuids=[uuid], cgroup=path, soft_mib=0, hard_mib=None)
