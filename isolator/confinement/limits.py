"""Limits of one task on processes, memory, CPUs and I/O, each held by a cgroup controller of version 1 or 2.

Isolators of the agent (cgroups/mem, cgroups/cpu) limit the container of an executor where the agent has them. Elsewhere
the executor limits its task, in a cgroup that holds the task alone. A controller is in one hierarchy at a time, so a
host with both versions has each limit where the controller is.

Sources: the kernel's Documentation/admin-guide/cgroup-v1/{memory,pids}.rst, Documentation/scheduler/sched-bwc.rst and
Documentation/admin-guide/cgroup-v2.rst; setrlimit(2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from isolator.devices import cgroups
from isolator.devices.cgroups import Cgroup, Version
from isolator.gpus.ledger import Trace
from mesos_gpu.errors import BadConfiguration, MesosGpuError, Unavailable

PIDS: Final = "MESOS_GPU_PIDS"
UNLIMITED: Final = "MESOS_GPU_UNLIMITED"
DEFAULT_PIDS: Final = 4096
#: Controllers of version 2; version 1 has the first three under these names.
CONTROLLERS: Final = ("pids", "memory", "cpu", "io")
#: Controllers whose limits an operator can give up.
OPTIONAL: Final = ("memory", "cpu", "io")
_MIN_PIDS: Final = 16  # a shell, a program and its threads
_NAMES: Final = {"pids": "the number of processes", "memory": "memory", "cpu": "CPUs", "io": "I/O"}
#: Files that kernels may lack if they do not account swap, or have no I/O scheduler with weights.
_MAY_LACK: Final = ("memory.swappiness", "memory.swap.max", "io.weight")
_PERIOD_US: Final = 100_000
_MIN_QUOTA_US: Final = 1_000  # smallest quota of the kernel
#: Weight of one CPU in version 2; equals 1024 shares of version 1.
_WEIGHT: Final = 100
_SHARES: Final = 1024
#: Largest weight that the kernel takes, by file. The cgroup above those of all tasks gets it, as it competes
#: with the services of the host like one of them.
_MAX_WEIGHTS: Final = {"cpu.weight": "10000", "cpu.shares": "262144", "io.weight": "default 10000"}

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of a host's resources that one task may use.

    Attributes:
        memory_mib: Memory in MiB; 0 for any amount.
        cpus: CPUs, which weigh the task against others while all CPUs are busy; 0 for no weight.
        cpu_limit: CPUs that the task never exceeds, also while others are idle; 0 for no such limit.
        pids: Processes and threads; 0 for any number.
    """

    memory_mib: int = 0
    cpus: float = 0.0
    cpu_limit: float = 0.0
    pids: int = 0


#: Amounts of a task that no job bounds.
ANY_AMOUNTS: Final = Amounts()


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit that one controller enforces.

    Attributes:
        controller: Name, one of `CONTROLLERS`.
        cgroup: Cgroup that has the limit; None if no hierarchy has the controller.
        settings: Files of the cgroup with the values to write, in order; empty if the agent has set the
            limit.
    """

    controller: str
    cgroup: Cgroup | None
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits of one task, with the cgroups that hold them.

    Attributes:
        amounts: Amounts that the task may use.
        limits: Limits, at most one for each controller.
    """

    amounts: Amounts = ANY_AMOUNTS
    limits: tuple[Limit, ...] = ()

    @property
    def memory(self) -> Cgroup | None:
        """The cgroup that limits memory; None if the memory is not limited."""
        return next((each.cgroup for each in self.limits if each.controller == "memory"), None)

    @property
    def watched(self) -> Cgroup | None:
        """The cgroup in which the kernel ends one process for lack of memory, so that the executor has to end the rest;
        None if the kernel or the agent ends all of the task."""
        memory = self.memory
        return memory if memory is not None and memory.own and memory.version == "cgroup1" else None

    @property
    def user_processes(self) -> int:
        """Processes for RLIMIT_NPROC, which counts those of the user on the host; 0 where a controller counts."""
        uncounted = any(each.controller == "pids" and each.cgroup is None for each in self.limits)
        return self.amounts.pids if uncounted else 0

    def own(self) -> tuple[Cgroup, ...]:
        """Return the cgroups that `set_up` makes for the task, which its processes join."""
        made = (limit.cgroup for limit in self.limits if limit.cgroup is not None and limit.cgroup.own)
        return tuple(dict.fromkeys(made))

    def traces(self) -> tuple[Trace, ...]:
        """Return the traces of `set_up`."""
        return tuple(Trace(each.version, str(each.path)) for each in self.own())

    def set_up(self) -> None:
        """Make the cgroups and set the limits.

        Raises:
            MesosGpuError: The kernel refuses.
        """
        for limit in self.limits:
            if limit.cgroup is None or not limit.settings:
                continue
            path = limit.cgroup.path
            try:
                limit.cgroup.create()
                if limit.cgroup.version == "cgroup2" and not _can_hand_down(limit.controller, path.parent):
                    continue
                for name, value in limit.settings:
                    if (
                        path.parent.name == cgroups.OWN_ROOT
                        and name in _MAX_WEIGHTS
                        and (path.parent / name).exists()
                    ):
                        (path.parent / name).write_text(_MAX_WEIGHTS[name])
                    if name not in _MAY_LACK or (path / name).exists():
                        (path / name).write_text(value)
            except OSError as error:
                raise MesosGpuError(
                    f"{_NAMES[limit.controller]} of the task cannot be limited in {path}: {error}",
                    remedy=_remedy(limit.controller),
                ) from error

    def take(self, pid: int) -> None:
        """Move a process into the cgroups of the task.

        Raises:
            OSError: The kernel refuses.
        """
        for cgroup in self.own():
            (cgroup.path / "cgroup.procs").write_text(str(pid))

    def nested(self, container: str) -> "TaskLimits":
        """Return the limits of a container that the agent nests in a container.

        The agent's isolator cgroups/pids, where the agent has it, counts the processes of both, so that the executor
        has to `leave`.

        Args:
            container: Mesos' id of the executor's container.
        """
        given = _given(container, cgroups.mount_points()).get("pids")
        if given is None:
            return self
        moved = (replace(each, cgroup=given) if each.controller == "pids" else each for each in self.limits)
        return replace(self, limits=tuple(moved))

    def without(self, *controllers: str) -> "TaskLimits":
        """Return the limits but those that the executor makes by some controllers."""
        kept = (each for each in self.limits if each.controller not in controllers or not _is_own(each))
        return replace(self, limits=tuple(kept))

    def leave(self) -> None:
        """Take this process out of a cgroup of the agent that limits the number of processes.

        The threads of an executor must not count as processes of its task.

        Raises:
            OSError: The kernel refuses.
        """
        for limit in self.limits:
            if limit.controller == "pids" and limit.cgroup is not None and not limit.cgroup.own:
                (cgroups.mounted_with("pids") / "cgroup.procs").write_text("0")


def _is_own(limit: Limit) -> bool:
    return limit.cgroup is not None and limit.cgroup.own


#: Limits of a task whose processes another program limits, as the Docker Engine.
NO_LIMITS: Final = TaskLimits()


def pids_of(env: Mapping[str, str]) -> int:
    """Return the number of processes that the operator allows a task; 0 for any number.

    Args:
        env: Environment of the executor.

    Raises:
        BadConfiguration: The setting is not a number, or too small for any task.
    """
    text = env.get(PIDS) or str(DEFAULT_PIDS)
    if not text.isdecimal() or 0 < int(text) < _MIN_PIDS:
        raise BadConfiguration(
            f"{PIDS} is {text!r}", remedy=f"set it to {_MIN_PIDS} or more processes, or to 0 for no limit"
        )
    return int(text)


def unlimited_of(env: Mapping[str, str]) -> frozenset[str]:
    """Return the controllers without which the operator lets tasks start.

    Args:
        env: Environment of the executor.

    Raises:
        BadConfiguration: The setting names something else.
    """
    names = frozenset(name.strip() for name in env.get(UNLIMITED, "").split(",") if name.strip())
    if unknown := sorted(names - {*OPTIONAL}):
        raise BadConfiguration(
            f"{UNLIMITED} names {unknown[0]!r}",
            remedy=f"list some of {', '.join(OPTIONAL)}, separated by commas",
        )
    return names


def limits_for(
    container: str,
    amounts: Amounts,
    env: Mapping[str, str],
    root: Path = Path("/"),
    *,
    isolated: bool = True,
) -> TaskLimits:
    """Return the limits of the task of a container.

    Args:
        container: Mesos' id of the executor's container.
        amounts: Amounts that the task may use, but the number of processes, which is the operator's.
        env: Environment of the executor.
        root: Directory whose /proc is read.
        isolated: False if an operator has turned isolation off: only limits of the agent are in effect.

    Raises:
        BadConfiguration: A setting of the host is wrong.
        Unavailable: The host cannot limit what it must.
    """
    points = cgroups.mount_points(root)
    given = _given(container, points, root)
    if not isolated:
        memory = given.get("memory")
        return TaskLimits(amounts, (Limit("memory", memory),) if memory is not None else ())
    amounts = replace(amounts, pids=pids_of(env))
    unlimited = unlimited_of(env)
    of_version_2 = _controllers(points)
    own: Cgroup | None = None  # cgroup of version 2, which all its controllers share
    limits: list[Limit] = []
    for controller in CONTROLLERS:
        if controller in given and controller != "pids":
            limits.append(_below(given[controller], controller, amounts))
            continue
        if controller in unlimited or not _settings(controller, "cgroup2", amounts):
            continue
        cgroup: Cgroup | None = None
        if controller in points:
            cgroup = Cgroup("cgroup1", points[controller] / cgroups.OWN_ROOT / container, own=True)
        elif controller in of_version_2:
            cgroup = own = own or cgroups.own_cgroup2(container, root)
        elif controller == "io":
            continue
        elif controller in OPTIONAL:
            raise Unavailable(
                f"this host has no cgroup controller {controller}, so {_NAMES[controller]} of a task cannot be limited",
                remedy=_remedy(controller),
            )
        settings = _settings(controller, cgroup.version, amounts) if cgroup is not None else ()
        limits.append(Limit(controller, cgroup, settings))
    return TaskLimits(amounts, tuple(limits))


def _given(container: str, points: Mapping[str, Path], root: Path = Path("/")) -> dict[str, Cgroup]:
    """Return the cgroups of version 1 that the agent made for a container, by controller."""
    return {
        name: Cgroup("cgroup1", points[name] / path.lstrip("/"), own=False)
        for names, path in cgroups.cgroups_of("self", root).items()
        if names and path.rpartition("/")[2] == container
        for name in names.split(",")
        if name in points
    }


def _below(given: Cgroup, controller: str, amounts: Amounts) -> Limit:
    """Return the limit of a cgroup of the agent, which is enough unless the job asks for a limit of CPUs: the agent
    weighs only."""
    if controller != "cpu" or not amounts.cpu_limit:
        return Limit(controller, given)
    own = Cgroup(given.version, given.path / cgroups.BELOW, own=True)
    return Limit(controller, own, _settings(controller, given.version, amounts))


def _controllers(points: Mapping[str, Path]) -> list[str]:
    """Return the controllers that version 2 has on this host."""
    return (points[""] / "cgroup.controllers").read_text().split() if "" in points else []


def _settings(controller: str, version: Version, amounts: Amounts) -> Settings:
    """Return the files that hold a limit, with their values; empty if the amounts have no such limit.

    `memory.high` is not set: it would slow down a task for seconds before the limit ends the task.
    """
    size, weight = str(amounts.memory_mib << 20), min(max(1, round(amounts.cpus * _WEIGHT)), 100 * _WEIGHT)
    quota, is_old = str(max(_MIN_QUOTA_US, round(amounts.cpu_limit * _PERIOD_US))), version == "cgroup1"
    if controller == "pids":
        return (("pids.max", str(amounts.pids)),) if amounts.pids else ()
    if controller == "memory" and amounts.memory_mib:
        if is_old:  # without swap; of memory.memsw.limit_in_bytes the kernel does not count the failures
            return (("memory.limit_in_bytes", size), ("memory.swappiness", "0"))
        return (("memory.max", size), ("memory.swap.max", "0"), ("memory.oom.group", "1"))
    if controller == "cpu" and amounts.cpus:
        shares = ("cpu.shares", str(max(2, round(amounts.cpus * _SHARES))))
        settings = (shares if is_old else ("cpu.weight", str(weight)),)
        if not amounts.cpu_limit:
            return settings
        if is_old:
            return (*settings, ("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", quota))
        return (*settings, ("cpu.max", f"{quota} {_PERIOD_US}"))
    return (("io.weight", f"default {weight}"),) if controller == "io" and amounts.cpus else ()


def _can_hand_down(controller: str, path: Path) -> bool:
    """Enable a controller as `_hand_down` does; return False if the kernel refuses I/O, which need not be weighed."""
    try:
        _hand_down(controller, path)
    except (MesosGpuError, OSError):
        if controller != "io":
            raise
        return False
    return True


def _hand_down(controller: str, path: Path) -> None:
    """Enable a controller from the root to the children of a cgroup, each of which gets it from the cgroup above.

    Raises:
        MesosGpuError: Processes are in a cgroup on the way, so that the kernel refuses (cgroups(7)). The
            root of the hierarchy may have processes, but not the root of a cgroup namespace, which has `cgroup.type`.
        OSError: The kernel refuses.
    """
    for above in (*reversed(path.parents), path):
        control = above / "cgroup.subtree_control"
        if not control.exists() or controller in control.read_text().split():
            continue
        if (above / "cgroup.type").exists() and (above / "cgroup.procs").read_text().strip():
            raise MesosGpuError(
                f"{_NAMES[controller]} of the task cannot be limited: processes are in {above}, and the kernel gives "
                "controllers only to the children of cgroups without processes",
                remedy="start the agent in a cgroup below: in a container move all processes there first; or let tasks "
                f"of this host run without that limit: {_setting_without(controller)} on the agent",
            )
        control.write_text(f"+{controller}")


def _setting_without(controller: str) -> str:
    return f"{PIDS}=0" if controller == "pids" else f"{UNLIMITED}={controller}"


def _remedy(controller: str) -> str:
    if controller == "pids":
        return f"see what else uses the controller pids; {_setting_without(controller)} on the agent for no limit"
    boot = " and on a kernel with the controller (cgroup_enable=memory)" if controller == "memory" else ""
    return (
        f"run agents as root, where cgroups can be written,{boot or ' and on a kernel with the controller'}; or let "
        f"tasks of this host run without that limit: {_setting_without(controller)} on the agent"
    )
