"""Protection of running jobs from jobs of other queues: fences (reclaim boundaries), `reclaim`, minimum run times."""

from mesos_gpu.model.tenancy import MAX_S
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.tenancy.tree import Queue, Tree, meeting


class Protection:
    """Protection of running jobs that a tree of queues gives."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._borrowers_s: dict[tuple[str, str, bool], float] = {}

    def forbids(self, queue: Queue, other: Queue) -> bool:
        """Return whether no job of another queue may be ended or moved for a job of a queue."""
        return queue.resolved.reclaim is Whose.NEVER or self._tree.is_fenced(queue, other)

    def min_runtime_s(self, queue: Queue, other: Queue, *, seated: bool) -> float:
        """Return the seconds for which jobs of another queue run before they may be ended for a job of a queue.

        The least run time of the ancestor of the other queue that is a sibling of an ancestor of the queue counts.

        Args:
            queue: Queue of the waiting job.
            other: Queue of the running jobs.
            seated: Whether the waiting job has a seat.
        """
        path = other.path if queue.path == other.path else meeting(queue.path, other.path)[1]
        least = self._tree.queues[path].resolved.min_runtime_s
        return least.reclaim_s if seated else least.rebalance_s

    def borrowers_s(self, leaf: str, other: str, *, seated: bool) -> float:
        """Return the seconds for which borrowers of a leaf run before they may be ended; `MAX_S` for never.

        Args:
            leaf: Path of the leaf of the waiting job.
            other: Path of the leaf of the running jobs.
            seated: Whether the waiting job has a seat; without one it takes nothing from its own leaf by this rule.
        """
        key = leaf, other, seated
        seconds = self._borrowers_s.get(key)
        if seconds is None:
            queues = self._tree.queues[leaf], self._tree.queues[other]
            barred = self.forbids(*queues) or (leaf == other and not seated)
            seconds = self._borrowers_s[key] = MAX_S if barred else self.min_runtime_s(*queues, seated=seated)
        return seconds
