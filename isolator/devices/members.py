"""Which processes of this host are of a task."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from isolator.devices.cgroup_names import CgroupNames
from isolator.gpus.ledger import Holding
from isolator.host import processes

ENGINES: Final = "container"  # kind of a trace: the Docker Engine's id of the task's container


def member_of(holding: Holding) -> Callable[[int], bool]:
    """Tells the owner, all below it, and all in cgroups of its container: Mesos' and ours are named as that, and those
    of the Docker Engine as its id."""
    tree, names, names_in = frozenset(_tree(holding)), _names_of(holding), CgroupNames()
    return lambda pid: pid in tree or bool(names_in.of(pid, names))


def firsts_of_engine(holdings: Sequence[Holding]) -> dict[str, int]:
    """A process of each container of the Docker Engine that has one, by the Mesos container of its holding; found by
    its cgroup, which no process chooses, by one look at those of the host."""
    by_name = {name: each.container for each in holdings for name in _names_of(each) - {each.container}}
    firsts: dict[str, int] = {}
    names_in = CgroupNames()
    for pid in _present() if by_name else ():
        for name in names_in.of(pid, by_name):
            firsts.setdefault(by_name[name], pid)
    return firsts


def cgroup_names(ident: str) -> frozenset[str]:
    """How the Docker Engine names the cgroup of a container with that id: by itself, or by systemd."""
    return frozenset({ident, f"docker-{ident}.scope"})


def _names_of(holding: Holding) -> frozenset[str]:
    """How cgroups are named that only processes of the task are in."""
    engines = (cgroup_names(trace.what) for trace in holding.traces if trace.kind == ENGINES)
    return frozenset({holding.container} if holding.container else ()).union(*engines)


def members_of(holdings: Sequence[Holding]) -> list[frozenset[int]]:
    """All processes of each holding, as `member_of` tells them, by one look at those of the host."""
    members = [_tree(holding) for holding in holdings]
    by_name = {
        name: tree for holding, tree in zip(holdings, members, strict=True) for name in _names_of(holding)
    }
    names_in = CgroupNames()
    for pid in _present() if by_name else ():
        for name in names_in.of(pid, by_name):
            by_name[name].add(pid)
    return [frozenset(each) for each in members]


def _tree(holding: Holding) -> set[int]:
    return {holding.owner.pid, *processes.descendants(holding.owner.pid)}


def _present() -> list[int]:
    """All processes that this one sees."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
