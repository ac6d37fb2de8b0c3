"""Tree of queues that a queue document describes: parents, leaves, inherited settings, common ancestors. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Final

from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, JobSpec
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    MAX_S,
    ROOT,
    InheritedValues,
    OnEmpty,
    QueueDocument,
    QueueSpec,
    Stop,
)

_INHERITED = tuple(setting.name for setting in fields(InheritedValues))
_FLAT_SPEC: Final = QueueSpec(starve_after_s=MAX_S)  # priority alone decides


def parent_of(path: str) -> str:
    """Return the path of a queue's parent; the root's path for a top queue."""
    return path.rpartition("/")[0]


@lru_cache(maxsize=4096)
def lineage(path: str) -> tuple[str, ...]:
    """Return the paths of a queue and of all its ancestors, the queue first, without the root."""
    parts = path.split("/")
    return tuple("/".join(parts[:n]) for n in range(len(parts), 0, -1))


def with_above(leaves: Mapping[str, int]) -> dict[str, int]:
    """Return amounts per queue with an entry added for each ancestor: the sum of the amounts below it."""
    sums: dict[str, int] = {}
    for leaf, amount in leaves.items():
        for path in lineage(leaf):
            sums[path] = sums.get(path, 0) + amount
    return sums


def meeting(path: str, other: str) -> tuple[str, str]:
    """Return the two siblings below the nearest common ancestor that are, or contain, two different leaves.

    The leaves are compared by the fair shares of these siblings.
    """
    parts, other_parts = path.split("/"), other.split("/")
    depth = next(i for i, (a, b) in enumerate(zip(parts, other_parts, strict=False)) if a != b)
    return "/".join(parts[: depth + 1]), "/".join(other_parts[: depth + 1])


@dataclass(frozen=True)
class Queue:
    """Queue in its tree, with the settings that it inherits."""

    path: str
    spec: QueueSpec
    resolved: InheritedValues
    stop: Stop  # the strictest of the queue's own setting and those of its ancestors
    fence: str  # path of the nearest fenced queue among this one and its ancestors; "" without any
    children: tuple[str, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether the queue takes jobs."""
        return not self.children


@dataclass(frozen=True, slots=True)
class Bound:
    """Largest amount of a pool that a queue may hold, in thousandths of cost."""

    path: str
    pool: str
    milli: int


@dataclass(frozen=True, eq=False)
class Tree:
    """All queues of a document, by path. Immutable, and compared by identity.

    The default queue, for jobs that name no queue, always exists; without an entry in the document it has no guarantee
    and no limit.

    Attributes:
        document: Document of the queues.
        named: Top queues of the scheduler's command line; the document's queues of these names replace them.
    """

    document: QueueDocument
    named: Mapping[str, QueueSpec] = field(default_factory=dict)

    @cached_property
    def is_flat(self) -> bool:
        """Whether the document is empty.

        All jobs then wait in one leaf, by priority, and a job may name any queue: the name counts for the limits of the
        command line only.
        """
        return self.document.is_empty

    @cached_property
    def specs(self) -> Mapping[str, QueueSpec]:
        """Written settings of each queue, by path, with those of the default queue."""
        default = _FLAT_SPEC if self.is_flat else QueueSpec()
        return {DEFAULT_QUEUE: default, **self.named, **self.document.queues}

    def is_written(self, path: str) -> bool:
        """Return whether the document has an entry for a queue; the default queue exists without one."""
        return path in self.document.queues

    @cached_property
    def queues(self) -> Mapping[str, Queue]:
        """All queues by path, parents before their children."""
        below: dict[str, list[str]] = {}
        for path in sorted(self.specs):
            below.setdefault(parent_of(path), []).append(path)
        queues: dict[str, Queue] = {}
        pending = [(path, InheritedValues(), Stop.NONE, "") for path in below.get(ROOT, ())]
        while pending:
            path, above, stop, fence = pending.pop()
            spec = self.specs[path]
            own = {name: value for name in _INHERITED if (value := getattr(spec, name)) is not None}
            queue = Queue(
                path, spec, replace(above, **own), _strictest(stop, spec.stop), path if spec.fence else fence,
                tuple(below.get(path, ())),
            )  # fmt: skip
            queues[path] = queue
            pending += [(child, queue.resolved, queue.stop, queue.fence) for child in queue.children]
        return queues

    @cached_property
    def has_budgets(self) -> bool:
        """Whether any queue, or any user of a queue, has a budget."""
        return any(spec.budget or spec.user_budgets for spec in self.document.queues.values())

    @cached_property
    def lets_borrow(self) -> bool:
        """Whether any budget lets jobs continue as borrowers once it is used up."""
        specs = self.document.queues.values()
        budgets = [budget for spec in specs for budget in (spec.budget, *spec.user_budgets.values())]
        return any(budget is not None and budget.on_empty is OnEmpty.BORROW for budget in budgets)

    @cached_property
    def top(self) -> tuple[str, ...]:
        """Paths of the queues directly below the root."""
        return tuple(path for path in sorted(self.queues) if "/" not in path)

    @cached_property
    def is_guaranteed(self) -> bool:
        """Whether any queue has a guarantee."""
        return any(
            guarantee.milli for spec in self.specs.values() for guarantee in spec.guarantee_gpus.values()
        )

    @cached_property
    def lenders(self) -> frozenset[str]:
        """Pools in which any queue limits how much of its idle guarantee others may borrow."""
        return frozenset(pool for spec in self.specs.values() for pool in spec.lend_limit_gpus)

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Paths of the children of each queue that has any, and of the root."""
        inner = {path: queue.children for path, queue in self.queues.items() if queue.children}
        return {ROOT: self.top, **inner}

    @cached_property
    def bounds(self) -> Mapping[str, tuple[Bound, ...]]:
        """Limits that apply to each queue: its own first, then its ancestors'. Queues without any are left out."""
        by_path = (
            (path, tuple(bound for above in lineage(path) for bound in _bounds(self.queues[above])))
            for path in self.queues
        )
        return {path: bounds for path, bounds in by_path if bounds}

    def has_hours(self, path: str) -> bool:
        """Return whether a queue or one of its ancestors has settings that depend on the time of day."""
        return any(self.specs[ancestor].hours for ancestor in lineage(path) if ancestor in self.specs)

    @cached_property
    def shared_pools(self) -> tuple[str, ...]:
        """Pools that a queue may use that names no pools."""
        return tuple(
            sorted({DEFAULT_POOL, *(pool.name for pool in self.document.pools if not pool.dedicated)})
        )

    def pools_of(self, path: str) -> tuple[str, ...]:
        """Return the pools that jobs of a queue may use, the preferred one first, as named by it or an ancestor."""
        queue = self.queues.get(path)
        named = queue.resolved.pools if queue is not None else None
        return self.shared_pools if named is None else named

    def image_secret_of(self, spec: JobSpec) -> str | None:
        """Return the path of the secret with the registry login for a job's image; None if the job has none.

        Args:
            spec: Request of the job; a secret that it names takes precedence over that of its queue.
        """
        if spec.image is None or spec.image_secret is not None:
            return spec.image_secret
        queue = self.queues.get(self.leaf_of(spec.queue))
        return queue.resolved.image_secret if queue is not None else None

    def overflow_after_s(self, path: str) -> float | None:
        """Return the seconds that a job of a queue waits before it may use the next of its pools.

        None if no pools are named for the queue, so that they have no order.
        """
        queue = self.queues.get(path)
        if queue is None or queue.resolved.pools is None:
            return None
        return queue.resolved.overflow_after_s

    def beside(self, named: Mapping[str, QueueSpec]) -> "Tree":
        """Return a tree of this document with other top queues from the command line.

        Args:
            named: Settings of the top queues by path; used where the document lacks the queue.
        """
        return Tree(self.document, named)

    def leaves(self) -> Iterator[Queue]:
        """Iterate over the queues that take jobs."""
        return (queue for queue in self.queues.values() if queue.is_leaf)

    def leaf_of(self, queue: str) -> str:
        """Return the leaf in which jobs of a queue wait.

        A queue that takes no jobs any more is replaced by the default queue. "" if the tree does not have that either.
        """
        if queue in self._leaves and not self.is_flat:
            return queue
        return DEFAULT_QUEUE if DEFAULT_QUEUE in self._leaves else ""

    def charged_queue(self, queue: str) -> str:
        """Return the queue whose limits count the resources of a job that names `queue`."""
        return queue if self.is_flat else self.leaf_of(queue) or queue

    @cached_property
    def _leaves(self) -> frozenset[str]:
        return frozenset(queue.path for queue in self.leaves())

    def cost_milli(self, model: str, gpu_milli: int) -> int:
        """Return the cost, in thousandths, of GPUs of a model; `gpu_milli` is in thousandths of a GPU."""
        return gpu_milli * self.document.cost_of(model)

    def inside(self, path: str, fence: str) -> bool:
        """Return whether a queue is the fenced queue `fence` or below it; always true if `fence` is "" (no fence)."""
        return not fence or path == fence or path.startswith(fence + "/")

    def is_fenced(self, queue: Queue, other: Queue) -> bool:
        """Return whether a fence lies between two queues, so that neither may preempt the other's jobs."""
        return not (self.inside(queue.path, other.fence) and self.inside(other.path, queue.fence))


def _bounds(queue: Queue) -> Iterator[Bound]:
    """Yield the limits of a queue by pool: its limit, or its guarantee with its borrow limit if that is lower."""
    spec = queue.spec
    for pool in sorted({*spec.limit_gpus, *spec.borrow_limit_gpus}):
        limits = [spec.limit_gpus[pool]] if pool in spec.limit_gpus else []
        if pool in spec.borrow_limit_gpus:
            guarantee = spec.guarantee_gpus[pool].milli if pool in spec.guarantee_gpus else 0
            limits.append(guarantee + spec.borrow_limit_gpus[pool])
        yield Bound(queue.path, pool, min(limits))


def _strictest(stop: Stop, other: Stop) -> Stop:
    """Return the stricter of two settings."""
    order = list(Stop)
    return max(stop, other, key=order.index)
