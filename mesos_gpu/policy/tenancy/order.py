"""Whose turn it is: the line of all jobs that wait, through a tree of queues. Pure.

Each queue sends its best job up, and its parent takes the best of those of its children: by their `Rank`, and of jobs
of one rank that of the child that would have the smallest part of what it is due. Within a leaf, jobs are given in
their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heapreplace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from mesos_gpu.model.tenancy import DEFAULT_POOL, ROOT

J = TypeVar("J")
Key = tuple[int, ...]
Amount = Callable[[str, str], int]  # of a queue in a pool, thousandths of cost
_SCALE: Final = 80  # bits: parts of less than 2**40 thousandths that differ, differ after it


class Rank(IntEnum):
    """What comes before what, whatever queues hold."""

    ROOM_MADE = 0  # others were ended for it
    SEATED = 1  # it has a seat of what its queue, or one above it, is guaranteed
    STARVING = 2  # the first of its leaf, and it has waited too long
    BORROWER = 3
    UNPAID = 4  # it borrows, and a budget that pays for it is empty


class Entry(NamedTuple, Generic[J]):
    """A job that waits.

    Attributes:
        job: It.
        cost_milli: What its start adds to its queue and all above it.
        rank: What it is beside jobs of other queues.
        pool: Where its queue is compared with others.
        since: Of one of rank `ROOM_MADE` or `STARVING`: who has the smaller number is before the other.
        goes: Whether it was ended itself, and goes elsewhere: of one number, it is behind whom it left its GPUs to,
            or it would take them again.
    """

    job: J
    cost_milli: int
    rank: Rank = Rank.BORROWER
    pool: str = DEFAULT_POOL
    since: int = 0
    goes: bool = False


class Holdings(Protocol):
    """Amounts that queues hold."""

    @property
    def revision(self) -> int:
        """Number that grows with each change."""

    def amount(self, queue: str, pool: str, /) -> int:
        """Return what a queue holds of a pool, with all that is below it, in thousandths of cost."""


class Line(Generic[J]):
    """Gives the next job each time it is asked, by what queues hold at that moment.

    What a queue holds may only grow as long as the line is asked: what it holds less is not seen.
    """

    def __init__(
        self,
        children: Mapping[str, Sequence[str]],
        due: Amount,
        held: Holdings,
        jobs: Mapping[str, Sequence[Entry[J]]],
    ) -> None:
        """Look at no job yet.

        Args:
            children: Of each queue that is no leaf, those below it; of "" the top ones.
            due: What a queue is due of a pool now, of `mesos_gpu.policy.tenancy.share`.
            held: What queues hold now.
            jobs: Of each leaf with jobs that wait, in their order.
        """
        self._due, self._held = due, held
        self._leaves = {path: _Leaf(path, entries) for path, entries in jobs.items() if entries}
        self._root = self._branch(ROOT, children)

    def __iter__(self) -> Iterator[J]:
        """Each job once. What became of the one before must be known to `held` when the next is asked for."""
        held = self._held
        while self._root is not None and (leaf := self._best(self._root, held.revision)) is not None:
            entries, path = leaf.entries, leaf.path
            job, cost, rank, pool, since, goes = entries[leaf.at]
            before, revision, end = held.amount(path, pool), held.revision, len(entries)
            while True:
                leaf.at += 1
                yield job
                # As long as nothing starts, jobs that cost the same have the same key.
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
        """Find the keys of a leaf, and of all above it, anew."""
        while node is not None:
            node.known_at = -1
            node = node.parent

    def _branch(self, path: str, children: Mapping[str, Sequence[str]]) -> "_Branch[J] | _Leaf[J] | None":
        below: list[_Branch[J] | _Leaf[J]] = []
        for child in children.get(path, ()):
            node = self._branch(child, children) if child in children else self._leaves.get(child)
            if node is not None:
                below.append(node)
        if not below:
            return None
        if path == ROOT and len(below) == 1:
            return below[0]  # without a sibling it is compared with none
        branch = _Branch(path, below)
        for each in below:
            each.parent = branch
        branch.heap = [(self._key(child.path, self._best(child, -1)), i) for i, child in enumerate(below)]
        heapify(branch.heap)
        return branch

    def _best(self, node: "_Branch[J] | _Leaf[J]", revision: int) -> "_Leaf[J] | None":
        """The leaf whose first job comes first below a queue; None: no job waits there. What was known at the same
        revision is not looked at again."""
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
            # That of the leaf that was asked last may be less, others only grow.
            heapreplace(heap, (now, i))

    def _key(self, path: str, leaf: "_Leaf[J] | None") -> Key:
        """Where a queue stands among its siblings by its best leaf."""
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
    path: str
    entries: Sequence[Entry[J]]
    at: int = 0  # the first that has not been given yet
    parent: "_Branch[J] | None" = None
    known_at: int = -1  # at which revision its key was found; -1: it is to be found anew
    best: "_Leaf[J] | None" = None  # the leaf whose first job came first then; None: no job waits


@dataclass(slots=True)
class _Branch(Generic[J]):
    path: str
    children: Sequence["_Branch[J] | _Leaf[J]"]
    heap: list[tuple[Key, int]] = field(default_factory=list)
    parent: "_Branch[J] | None" = None
    known_at: int = -1  # as of a leaf
    best: "_Leaf[J] | None" = None  # as of a leaf
