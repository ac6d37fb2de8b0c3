"""Which processes of this host are of a task."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from isolator.devices import cgroups
from isolator.gpus.ledger import Holding
from isolator.host import processes

ENGINES: Final = "container"  # kind of a trace: the Docker Engine's id of the task's container


def member_of(holding: Holding) -> Callable[[int], bool]:
    """Tells the owner, all below it, and all in cgroups of its container: Mesos' and ours are named as that, and those
    of the Docker Engine as its id."""
    tree, names = frozenset(_tree(holding)), _names_of(holding)
    return lambda pid: pid in tree or not names.isdisjoint(_parts_of(pid))


def firsts_of_engine(holdings: Sequence[Holding]) -> dict[str, int]:
    """A process of each container of the Docker Engine that has one, by the Mesos container of its holding; found by
    its cgroup, which no process chooses, by one look at those of the host."""
    by_name = {name: each.container for each in holdings for name in _names_of(each) - {each.container}}
    firsts: dict[str, int] = {}
    for pid in _present() if by_name else ():
        for name in by_name.keys() & _parts_of(pid):
            firsts.setdefault(by_name[name], pid)
    return firsts


def cgroup_names(ident: str) -> frozenset[str]:
    """How the Docker Engine names the cgroup of a container with that id: by itself, or by systemd."""
    return frozenset({ident, f"docker-{ident}.scope"})


def _names_of(holding: Holding) -> frozenset[str]:
    """How cgroups are named that only processes of the task are in."""
    engines = (cgroup_names(trace.what) for trace in holding.traces if trace.kind == ENGINES)
    return frozenset({holding.container} if holding.container else ()).union(*engines)


def _parts_of(pid: int) -> frozenset[str]:
    """Names of the cgroups that a process is in, and of those above; none: it has ended."""
    try:
        parts = _path_parts(pid)
        if not any(parts) and (thread := processes.living_thread(pid)) != pid:
            parts = _path_parts(thread)
    except OSError:
        return frozenset()
    return parts


def _path_parts(pid: int) -> frozenset[str]:
    return frozenset(part for path in cgroups.membership(pid).values() for part in path.split("/"))


def members_of(holdings: Sequence[Holding]) -> list[frozenset[int]]:
    """All processes of each holding, as `member_of` tells them, by one look at those of the host."""
    members = [_tree(holding) for holding in holdings]
    by_name = {
        name: tree for holding, tree in zip(holdings, members, strict=True) for name in _names_of(holding)
    }
    for pid in _present() if by_name else ():
        for name in by_name.keys() & _parts_of(pid):
            by_name[name].add(pid)
    return [frozenset(each) for each in members]


def _tree(holding: Holding) -> set[int]:
    return {holding.owner.pid, *processes.descendants(holding.owner.pid)}


def _present() -> list[int]:
    """All processes that this one sees."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
