"""Order of all waiting jobs across the tree of queues. Pure.

Each queue offers its best job to its parent, which chooses among its children's offers: first by `Rank`, and between
jobs of one rank the job of the child that would have the smallest part of its fair share. Within a leaf, jobs keep the
given order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heapreplace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from mesos_gpu.model.tenancy import DEFAULT_POOL, ROOT

J = TypeVar("J")
Key = tuple[int, ...]
Amount = Callable[[str, str], int]  # (queue, pool) -> thousandths of cost
_SCALE: Final = 80  # fraction bits: keeps different ratios of numbers below 2**40 different


class Rank(IntEnum):
    """Class of a waiting job in the queue order; lower ones go first, whatever their queues hold."""

    ROOM_MADE = 0  # other jobs were preempted for it
    SEATED = 1  # it has a seat: a place within the guarantee of its queue or of an ancestor
    STARVING = 2  # the first job of its leaf, after waiting longer than `starve_after_s`
    BORROWER = 3  # it would run beyond the guarantee
    UNPAID = 4  # it borrows, and a budget that it is charged to is used up


class Entry(NamedTuple, Generic[J]):
    """Waiting job with the values that decide its place in the queue order.

    Attributes:
        job: The waiting job.
        cost_milli: Cost, in thousandths, that its start adds to its queue and all ancestors.
        rank: Class of the job, compared before shares.
        pool: Pool by whose shares its queue is compared with others.
        since: Order among jobs of rank `ROOM_MADE` or `STARVING`; the smaller number goes first.
        goes: Whether the job was itself preempted and is to start elsewhere. With equal `since` it goes after the job
            that got its GPUs; otherwise it would take them again.
    """

    job: J
    cost_milli: int
    rank: Rank = Rank.BORROWER
    pool: str = DEFAULT_POOL
    since: int = 0
    goes: bool = False


class Holdings(Protocol):
    """Amounts of pools that queues hold now."""

    @property
    def revision(self) -> int:
        """Number that grows with each change."""

    def amount(self, queue: str, pool: str, /) -> int:
        """Return the usage of a pool by a queue and all queues below it, in thousandths of cost."""


class Line(Generic[J]):
    """Iterator over the waiting jobs of all queues, ordered by what queues hold when the next job is requested.

    During the iteration a queue's holdings may only grow; a decrease is not noticed.

    Args:
        children: Child paths of each queue that is not a leaf; the key "" has the top queues.
        due: Function that returns the fair share of a queue in a pool (see `mesos_gpu.policy.tenancy.share`).
        held: Amounts that queues hold now.
        jobs: Waiting jobs of each leaf, in their order.
    """

    def __init__(
        self,
        children: Mapping[str, Sequence[str]],
        due: Amount,
        held: Holdings,
        jobs: Mapping[str, Sequence[Entry[J]]],
    ) -> None:
        self._due, self._held = due, held
        self._leaves = {path: _Leaf(path, entries) for path, entries in jobs.items() if entries}
        self._root = self._branch(ROOT, children)

    def __iter__(self) -> Iterator[J]:
        """Yield each job once. Before the next job is requested, `held` must include the previous one if it started."""
        held = self._held
        while self._root is not None and (leaf := self._best(self._root, held.revision)) is not None:
            entries, path = leaf.entries, leaf.path
            job, cost, rank, pool, since, goes = entries[leaf.at]
            before, revision, end = held.amount(path, pool), held.revision, len(entries)
            while True:
                leaf.at += 1
                yield job
                # As long as nothing starts, equal entries have the same key: skip the tree for them.
                if leaf.at == end or (held.revision != revision and held.amount(path, pool) != before):
                    break
                job, next_cost, next_rank, next_pool, next_since, next_goes = entries[leaf.at]
                if next_cost != cost or next_rank is not rank or next_pool != pool:
                    break
                if next_since != since or next_goes is not goes:
                    break
            self._forget(leaf)

    @staticmethod
    def _forget(node: "_Branch[J] | _Leaf[J] | None") -> None:
        """Mark the cached keys of a leaf and its ancestors as outdated."""
        while node is not None:
            node.known_at = -1
            node = node.parent

    def _branch(self, path: str, children: Mapping[str, Sequence[str]]) -> "_Branch[J] | _Leaf[J] | None":
        """Build the node of a queue from those of its children that have jobs; None if none have."""
        below: list[_Branch[J] | _Leaf[J]] = []
        for child in children.get(path, ()):
            node = self._branch(child, children) if child in children else self._leaves.get(child)
            if node is not None:
                below.append(node)
        if not below:
            return None
        if path == ROOT and len(below) == 1:
            return below[0]  # a single top queue needs no comparison
        branch = _Branch(path, below)
        for member in below:
            member.parent = branch
        branch.heap = [(self._key(child.path, self._best(child, -1)), i) for i, child in enumerate(below)]
        heapify(branch.heap)
        return branch

    def _best(self, node: "_Branch[J] | _Leaf[J]", revision: int) -> "_Leaf[J] | None":
        """Return the leaf whose first job goes first below a queue; None if no job waits there.

        Results that were cached at the same revision are reused.
        """
        if isinstance(node, _Leaf):
            return node if node.at < len(node.entries) else None
        heap, children = node.heap, node.children
        while True:
            key, i = heap[0]
            child = children[i]
            if child.known_at == revision >= 0:
                return child.best
            leaf = child.best = self._best(child, revision)
            now, child.known_at = self._key(child.path, leaf), revision
            if now == key:
                return leaf
            # Only the key of the leaf that gave the last job can have fallen; all other keys only grow.
            heapreplace(heap, (now, i))

    def _key(self, path: str, leaf: "_Leaf[J] | None") -> Key:
        """Return the sort key of a queue among its siblings, from its best leaf."""
        if leaf is None:
            return _NOBODY
        _, cost_milli, rank, pool, since, goes = leaf.entries[leaf.at]
        if rank in _BY_TIME:
            return rank, since, int(goes)
        due, held = self._due(path, pool), self._held.amount(path, pool) + cost_milli
        return (rank, 0, (held << _SCALE) // due) if due else (rank, 1, held)


_BY_TIME: Final = (Rank.ROOM_MADE, Rank.STARVING)
_NOBODY: Final[Key] = (max(Rank) + 1,)


@dataclass(slots=True)
class _Leaf(Generic[J]):
    """A leaf queue in the queue order, with its jobs."""

    path: str
    entries: Sequence[Entry[J]]
    at: int = 0  # index of the first job that was not yielded yet
    parent: "_Branch[J] | None" = None
    known_at: int = -1  # revision at which the key was computed; -1 if it must be computed again
    best: "_Leaf[J] | None" = None  # leaf with the best first job at that revision; None if no job waits


@dataclass(slots=True)
class _Branch(Generic[J]):
    """A queue with queues below it, as a heap by the best first job of each."""

    path: str
    children: Sequence["_Branch[J] | _Leaf[J]"]
    heap: list[tuple[Key, int]] = field(default_factory=list)
    parent: "_Branch[J] | None" = None
    known_at: int = -1  # revision at which the key was computed; -1 if it must be computed again
    best: "_Leaf[J] | None" = None  # leaf with the best first job at that revision; None if no job waits
