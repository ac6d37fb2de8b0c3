"""The tree that a document describes: parents, leaves, what is inherited, and where two queues meet. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Final

from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, JobSpec
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    MAX_S,
    ROOT,
    OnEmpty,
    QueueDocument,
    QueueSpec,
    Resolved,
    Stop,
)

_INHERITED = tuple(each.name for each in fields(Resolved))
_FLAT_SPEC: Final = QueueSpec(starve_after_s=MAX_S)  # priority alone decides


def parent_of(path: str) -> str:
    """The path of the queue above; of a top queue, the root's."""
    return path.rpartition("/")[0]


@lru_cache(maxsize=4096)
def lineage(path: str) -> tuple[str, ...]:
    """A queue and all above it, itself first, without the root."""
    parts = path.split("/")
    return tuple("/".join(parts[:n]) for n in range(len(parts), 0, -1))


def with_above(leaves: Mapping[str, int]) -> dict[str, int]:
    """What queues have, and of all that are above them the sums."""
    sums: dict[str, int] = {}
    for leaf, amount in leaves.items():
        for path in lineage(leaf):
            sums[path] = sums.get(path, 0) + amount
    return sums


def meeting(path: str, other: str) -> tuple[str, str]:
    """The two siblings that are, or are above, two different leaves: there the leaves are compared."""
    mine, theirs = path.split("/"), other.split("/")
    depth = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    return "/".join(mine[: depth + 1]), "/".join(theirs[: depth + 1])


@dataclass(frozen=True)
class Queue:
    """A queue in its tree, with what it inherits."""

    path: str
    spec: QueueSpec
    resolved: Resolved
    stop: Stop  # the strictest of its own and of those above it
    fence: str  # the nearest queue, itself or above, that is fenced; "": none is
    children: tuple[str, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether it takes jobs."""
        return not self.children


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that a queue may hold of a pool, thousandths of cost."""

    path: str
    pool: str
    milli: int


@dataclass(frozen=True, eq=False)
class Tree:
    """All queues of a document, by path. Immutable, and compared by identity.

    The queue of jobs that name none always exists; if the document lacks it, it has no guarantee and no limit.

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
        """What is written of each queue."""
        default = _FLAT_SPEC if self.is_flat else QueueSpec()
        return {DEFAULT_QUEUE: default, **self.named, **self.document.queues}

    def is_written(self, path: str) -> bool:
        """Return whether the document has a queue; the queue of jobs that name none exists without being written."""
        return path in self.document.queues

    @cached_property
    def queues(self) -> Mapping[str, Queue]:
        """Each queue, those above it first."""
        below: dict[str, list[str]] = {}
        for path in sorted(self.specs):
            below.setdefault(parent_of(path), []).append(path)
        made: dict[str, Queue] = {}
        line = [(path, Resolved(), Stop.NONE, "") for path in below.get(ROOT, ())]
        while line:
            path, above, stop, fence = line.pop()
            spec = self.specs[path]
            own = {name: value for name in _INHERITED if (value := getattr(spec, name)) is not None}
            queue = Queue(
                path, spec, replace(above, **own), _strictest(stop, spec.stop), path if spec.fence else fence,
                tuple(below.get(path, ())),
            )  # fmt: skip
            made[path] = queue
            line += [(child, queue.resolved, queue.stop, queue.fence) for child in queue.children]
        return made

    @cached_property
    def has_budgets(self) -> bool:
        """Whether any queue, or user of one, has a budget."""
        return any(spec.budget or spec.user_budgets for spec in self.document.queues.values())

    @cached_property
    def lets_borrow(self) -> bool:
        """Whether jobs of any budget run as borrowers once it is empty."""
        specs = self.document.queues.values()
        budgets = [each for spec in specs for each in (spec.budget, *spec.user_budgets.values())]
        return any(each is not None and each.on_empty is OnEmpty.BORROW for each in budgets)

    @cached_property
    def top(self) -> tuple[str, ...]:
        """The queues that are below the root alone."""
        return tuple(path for path in sorted(self.queues) if "/" not in path)

    @cached_property
    def is_guaranteed(self) -> bool:
        """Whether any queue is guaranteed anything."""
        return any(owed.milli for spec in self.specs.values() for owed in spec.guarantee_gpus.values())

    @cached_property
    def lenders(self) -> frozenset[str]:
        """The pools of which any queue keeps something idle for itself."""
        return frozenset(pool for spec in self.specs.values() for pool in spec.lend_limit_gpus)

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Name those below each queue that is no leaf; of the root, the top ones."""
        inner = {path: queue.children for path, queue in self.queues.items() if queue.children}
        return {ROOT: self.top, **inner}

    @cached_property
    def bounds(self) -> Mapping[str, tuple[Bound, ...]]:
        """List what each queue and those above it may hold, its own first; what nothing limits is not named."""
        every = (
            (path, tuple(bound for above in lineage(path) for bound in _bounds(self.queues[above])))
            for path in self.queues
        )
        return {path: bounds for path, bounds in every if bounds}

    def has_hours(self, path: str) -> bool:
        """Whether figures of a queue, or of one above it, are others in other hours."""
        return any(self.specs[each].hours for each in lineage(path) if each in self.specs)

    @cached_property
    def shared_pools(self) -> tuple[str, ...]:
        """The pools that queues may use which name none."""
        return tuple(
            sorted({DEFAULT_POOL, *(pool.name for pool in self.document.pools if not pool.dedicated)})
        )

    def pools_of(self, path: str) -> tuple[str, ...]:
        """The pools that jobs of a queue may use: where it, or one above it, names them, the first choice first."""
        queue = self.queues.get(path)
        named = queue.resolved.pools if queue is not None else None
        return self.shared_pools if named is None else named

    def image_secret_of(self, spec: JobSpec) -> str | None:
        """Return the path of the secret with the login for a job's image; None if it has none.

        Args:
            spec: Request of the job; a secret that it names goes before that of its queue.
        """
        if spec.image is None or spec.image_secret is not None:
            return spec.image_secret
        queue = self.queues.get(self.leaf_of(spec.queue))
        return queue.resolved.image_secret if queue is not None else None

    def overflow_after_s(self, path: str) -> float | None:
        """How long a job of a queue waits before it may use the next of its pools; None: they have no order."""
        queue = self.queues.get(path)
        if queue is None or queue.resolved.pools is None:
            return None
        return queue.resolved.overflow_after_s

    def beside(self, named: Mapping[str, QueueSpec]) -> "Tree":
        """Return the tree with top queues that its document lacks."""
        return Tree(self.document, named)

    def leaves(self) -> Iterator[Queue]:
        """The queues that take jobs."""
        return (queue for queue in self.queues.values() if queue.is_leaf)

    def leaf_of(self, queue: str) -> str:
        """The leaf where jobs of a queue wait; of one that takes none any more: that of jobs that name none; "": there
        is no such queue in the tree."""
        if queue in self._leaves and not self.is_flat:
            return queue
        return DEFAULT_QUEUE if DEFAULT_QUEUE in self._leaves else ""

    def charged_queue(self, queue: str) -> str:
        """Return the queue whose limits count what a job holds that names a queue."""
        return queue if self.is_flat else self.leaf_of(queue) or queue

    @cached_property
    def _leaves(self) -> frozenset[str]:
        return frozenset(queue.path for queue in self.leaves())

    def cost_milli(self, model: str, gpu_milli: int) -> int:
        """What so many thousandths of GPUs of a model cost, in thousandths."""
        return gpu_milli * self.document.cost_of(model)

    def inside(self, path: str, fence: str) -> bool:
        """Whether a queue is a fenced one or below it; "": nothing is fenced, so everybody is."""
        return not fence or path == fence or path.startswith(fence + "/")

    def is_fenced(self, queue: Queue, other: Queue) -> bool:
        """Whether a fence is between two queues."""
        return not (self.inside(queue.path, other.fence) and self.inside(other.path, queue.fence))


def _bounds(queue: Queue) -> Iterator[Bound]:
    spec = queue.spec
    for pool in sorted({*spec.limit_gpus, *spec.borrow_limit_gpus}):
        most = [spec.limit_gpus[pool]] if pool in spec.limit_gpus else []
        if pool in spec.borrow_limit_gpus:
            owed = spec.guarantee_gpus[pool].milli if pool in spec.guarantee_gpus else 0
            most.append(owed + spec.borrow_limit_gpus[pool])
        yield Bound(queue.path, pool, min(most))


def _strictest(stop: Stop, other: Stop) -> Stop:
    order = list(Stop)
    return max(stop, other, key=order.index)
