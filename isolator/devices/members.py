"""Which processes of this host are of a task."""

import os
from collections.abc import Callable, Sequence

from isolator.devices import cgroups
from isolator.gpus.ledger import Holding
from isolator.host import processes


def member_of(holding: Holding) -> Callable[[int], bool]:
    """Tells the owner, all below it, and all in cgroups of its container: Mesos' and ours are named as that."""
    tree = frozenset(_tree(holding))

    def is_member(pid: int) -> bool:
        try:
            paths = cgroups.membership(pid).values()
        except OSError:  # it has ended
            paths = {}.values()
        return pid in tree or any(holding.container in path.split("/") for path in paths if holding.container)

    return is_member


def members_of(holdings: Sequence[Holding]) -> list[frozenset[int]]:
    """All processes of each holding, as `member_of` tells them, by one look at those of the host."""
    by_container: dict[str, set[int]] = {
        holding.container: set() for holding in holdings if holding.container
    }
    for name in os.listdir("/proc") if by_container else ():
        if not name.isdigit():
            continue
        try:
            paths = cgroups.membership(int(name)).values()
        except OSError:  # it has ended
            continue
        for container in by_container.keys() & {part for path in paths for part in path.split("/")}:
            by_container[container].add(int(name))
    return [frozenset(_tree(holding) | by_container.get(holding.container, set())) for holding in holdings]


def _tree(holding: Holding) -> set[int]:
    return {holding.owner.pid, *processes.descendants(holding.owner.pid)}
