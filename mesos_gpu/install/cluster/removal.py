"""Removal of files, services and programs from hosts that left the file, or lost a role. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.install.cluster.description import Cluster, Host, Role
from mesos_gpu.install.cluster.plan import HostPlan, brought
from mesos_gpu.install.cluster.record import AppliedHost, Record
from mesos_gpu.install.cluster.survey import Survey
from mesos_gpu.model.words import counted

AGENT_UNIT: Final = "mesos-gpu-agent.service"
MASTER_UNIT: Final = "mesos-gpu-master.service"
ZOOKEEPER_UNIT: Final = "mesos-gpu-zookeeper.service"
#: Order in which units are stopped: a service before the services that it needs.
_ORDER: Final = (
    AGENT_UNIT, "mesos-gpu-scheduler.service", MASTER_UNIT, ZOOKEEPER_UNIT, "mesos-gpu-firewall.service",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Removal:
    """Files, services and programs to remove from one host.

    Attributes:
        host: Host as it was applied.
        is_whole: Whether nothing of this program stays there.
        units: Units to stop and disable, in this order.
        files: Paths to remove.
        program: Package to remove, "deb" or "wheel"; "" if the program stays.
        remains: Record entry of what the host keeps; None if it keeps nothing.
    """

    host: Host
    is_whole: bool
    units: tuple[str, ...]
    files: tuple[str, ...]
    program: str
    remains: AppliedHost | None = None

    def __bool__(self) -> bool:
        """Return whether there is anything to remove."""
        return bool(self.units or self.files or self.program)

    @property
    def drains(self) -> bool:
        """Whether an agent is removed, whose tasks have to move first."""
        return AGENT_UNIT in self.units

    def lines(self) -> Iterator[str]:
        """Yield a description of each step."""
        if self.drains:
            yield "drain it: its tasks are moved"
        yield from (f"stop and disable {unit}" for unit in self.units)
        if MASTER_UNIT in self.units:
            yield "remove its copy of the registry: the other masters have it"
        if ZOOKEEPER_UNIT in self.units:
            yield "remove its copy of ZooKeeper's data"
        yield from (f"remove {path}" for path in self.files)
        if self.program:
            yield "remove mesos_gpu"


def remembered(plan: HostPlan, cluster: Cluster) -> AppliedHost:
    """Return the record entry of a host that matches its plan."""
    host = plan.host
    way = "deb" if cluster.package.deb else "wheel"
    return AppliedHost(
        Host(host.name, host.address, host.roles, host.ssh),
        tuple(file.path for file in plan.files),
        tuple(service.name for service in plan.services),
        way if plan.program else "",
        plan.number,
    )


def removals(record: Record, cluster: Cluster, plans: Sequence[HostPlan]) -> list[Removal]:
    """Return what was applied to hosts and is not planned any more: agents first, ZooKeeper servers last."""
    planned = {plan.host.name: remembered(plan, cluster) for plan in plans}
    removals = []
    for name, had in record.hosts.items():
        has = planned.get(name)
        units, files = {*had.units}, list(had.files)
        if has is not None:
            units -= {*has.units}
            remaining = {*has.files} | brought(cluster.package, has.host)
            files = [path for path in files if path not in remaining]
        removal = Removal(
            had.host,
            has is None,
            tuple(unit for unit in _ORDER if unit in units),
            tuple(files),
            had.program if has is None or not has.program else "",
            has,
        )
        if removal or removal.is_whole:
            removals.append(removal)
    return sorted(
        removals,
        key=lambda removal: (_ORDER.index(removal.units[0]) if removal.units else 0, removal.host.name),
    )


def still_there(removal: Removal, seen: Survey) -> Removal:
    """Return the part of a removal that its host still has.

    If any of the files or services are left, all services are removed: one that was stopped by hand leaves data too.
    """
    files = tuple(path for path in removal.files if path in seen.files)
    left = files or {*removal.units} & (seen.active | seen.enabled)
    return replace(
        removal,
        units=removal.units if left else (),
        files=files,
        program=removal.program if seen.facts.get("version") else "",
    )


def leaving(record: Record, cluster: Cluster, role: Role) -> tuple[list[str], list[str]]:
    """Return the names of hosts that lose a role, and of hosts that keep it."""
    has = {host.name for host in cluster.of(role)}
    had = record.with_role(role)
    return [name for name in had if name not in has], [name for name in had if name in has]


def see_quorums(record: Record, cluster: Cluster, running: Collection[tuple[str, Role]]) -> None:
    """Check that hosts that stay have all state that masters, ZooKeeper servers and schedulers agreed on.

    Args:
        record: Record of the last apply.
        cluster: Cluster as it will be.
        running: Host names with a role that runs there now, of hosts that stay.

    Raises:
        BadConfiguration: The state might be lost.
    """
    for role in (Role.ZOOKEEPER, Role.MASTER):
        gone, stay = leaving(record, cluster, role)
        if not gone or not any(cluster.of(role)):
            continue
        total = len(gone) + len(stay)
        most = total // 2  # every agreement is by a majority, so at least one host that stays has it
        if not stay or len(gone) > most:
            raise BadConfiguration(
                f"{counted(len(gone), 'host')} of {total} with the role {role} would leave at once "
                f"({', '.join(gone)}), and {total - most} of them must stay: the latest of what they have agreed on "
                "may be nowhere else",
                remedy=_fewer(most, role),
            )
        if down := [name for name in stay if (name, role) not in running]:
            raise BadConfiguration(
                f"{', '.join(gone)} would leave with the role {role} while it does not run on {', '.join(down)}: "
                "what they have agreed on may be nowhere else",
                remedy=f"start it on {', '.join(down)} first",
            )
    gone, stay = leaving(record, cluster, Role.SCHEDULER)
    if gone and not stay and any(cluster.of(Role.SCHEDULER)):
        raise BadConfiguration(
            f"the scheduler's state is on {', '.join(gone)}, which would leave, and on no host that stays",
            remedy="run both schedulers for a while, the new one with a copy of the state: docs/high-availability.md",
        )


def _fewer(most: int, role: Role) -> str:
    if most:
        return f"let at most {counted(most, 'host')} leave, apply, and then the next"
    return f"a single {role} cannot be replaced: use three, apply, and then let it leave"
