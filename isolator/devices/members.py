"""Processes of a task, found by their parents and cgroups."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from isolator.devices.cgroup_names import CgroupNames
from isolator.gpus.ledger import Holding
from isolator.host import processes

ENGINES: Final = "container"  # kind of a trace, which names the Docker Engine's id of the task's container


def member_of(holding: Holding) -> Callable[[int], bool]:
    """Return a function that tells whether a process belongs to a holding's task.

    Members are the owner, all processes below it, and all in cgroups of its container: those of Mesos and
    ours have the container's name, those of the Docker Engine its id.
    """
    tree, names, names_in = frozenset(_tree(holding)), _names_of(holding), CgroupNames()
    return lambda pid: pid in tree or bool(names_in.of(pid, names))


def firsts_of_engine(holdings: Sequence[Holding]) -> dict[str, int]:
    """Return a process of each running container of the Docker Engine, by the Mesos container of its holding.

    It is found by its cgroup, which processes cannot choose, in one pass over the host's processes.
    """
    by_name = {
        name: holding.container for holding in holdings for name in _names_of(holding) - {holding.container}
    }
    firsts: dict[str, int] = {}
    names_in = CgroupNames()
    for pid in _present() if by_name else ():
        for name in names_in.of(pid, by_name):
            firsts.setdefault(by_name[name], pid)
    return firsts


def cgroup_names(ident: str) -> frozenset[str]:
    """Return the names that the Docker Engine may give to the cgroup of a container: its own, or systemd's."""
    return frozenset({ident, f"docker-{ident}.scope"})


def _names_of(holding: Holding) -> frozenset[str]:
    """Return the names of cgroups that contain only processes of the task."""
    engines = (cgroup_names(trace.what) for trace in holding.traces if trace.kind == ENGINES)
    return frozenset({holding.container} if holding.container else ()).union(*engines)


def members_of(holdings: Sequence[Holding]) -> list[frozenset[int]]:
    """Return the processes of each holding, as by `member_of`, in one pass over the host's processes."""
    members = [_tree(holding) for holding in holdings]
    by_name = {
        name: tree for holding, tree in zip(holdings, members, strict=True) for name in _names_of(holding)
    }
    names_in = CgroupNames()
    for pid in _present() if by_name else ():
        for name in names_in.of(pid, by_name):
            by_name[name].add(pid)
    return [frozenset(tree) for tree in members]


def _tree(holding: Holding) -> set[int]:
    return {holding.owner.pid, *processes.descendants(holding.owner.pid)}


def _present() -> list[int]:
    """Return all pids that are visible to this process."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
