"""Which processes of this host are of a task."""

from collections.abc import Callable

from isolator.devices import cgroups
from isolator.gpus.ledger import Holding
from isolator.host import processes


def member_of(holding: Holding) -> Callable[[int], bool]:
    """Tells the owner, all below it, and all in cgroups of its container: Mesos' and ours are named as that."""
    tree = frozenset({holding.owner.pid, *processes.descendants(holding.owner.pid)})

    def is_member(pid: int) -> bool:
        try:
            paths = cgroups.membership(pid).values()
        except OSError:  # it has ended
            paths = {}.values()
        return pid in tree or any(holding.container in path.split("/") for path in paths if holding.container)

    return is_member
