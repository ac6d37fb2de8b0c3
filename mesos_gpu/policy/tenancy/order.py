"""Whose turn it is: the line of all jobs that wait, through a tree of queues. Pure.

Each queue sends its best job up, and its parent takes the best of those of its children: first one that room was
made for; then one that keeps its leaf, and all above that, within what they are guaranteed; then that of the child that
would have the smallest part of what it is due. Within a leaf, jobs are given in their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from typing import Final, Generic, TypeVar

J = TypeVar("J")
Key = tuple[int, ...]
_SCALE: Final = 80  # bits: parts of less than 2**40 thousandths that differ, differ after it


@dataclass(frozen=True, slots=True)
class Entry(Generic[J]):
    """A job that waits.

    Attributes:
        job: It.
        cost_milli: What its start adds to its queue and all above it.
        room_made: Whether others were ended for it.
    """

    job: J
    cost_milli: int
    room_made: bool = False

    def is_like(self, other: "Entry[J]") -> bool:
        """Whether both stand at one place beside jobs of other queues."""
        return self.cost_milli == other.cost_milli and self.room_made == other.room_made


@dataclass(frozen=True, slots=True)
class Standing:
    """A queue's figures in one pool, thousandths of cost.

    Attributes:
        guarantee: What it is guaranteed.
        due: What it is due now, of `mesos_gpu.policy.tenancy.share`.
    """

    guarantee: int
    due: int


class Line(Generic[J]):
    """Gives the next job each time it is asked, by what queues hold at that moment.

    What a queue holds may only grow as long as the line is asked: what it holds less is not seen.
    """

    def __init__(
        self,
        children: Mapping[str, Sequence[str]],
        standings: Mapping[str, Standing],
        held: Callable[[str], int],
        jobs: Mapping[str, Sequence[Entry[J]]],
    ) -> None:
        """Look at no job yet.

        Args:
            children: Of each queue that is no leaf, those below it; of "" the top ones.
            standings: Of each queue.
            held: Thousandths of cost that a queue holds now, with all that is below it.
            jobs: Of each leaf with jobs that wait, in their order.
        """
        self._standings, self._held = standings, held
        self._leaves = {path: _Leaf(path, entries) for path, entries in jobs.items() if entries}
        self._root = self._branch("", children)

    def __iter__(self) -> Iterator[J]:
        """Each job once. What became of the one before must be known to `held` when the next is asked for."""
        while self._root is not None and (leaf := self._best(self._root)) is not None:
            held = self._held("")
            while True:
                entry = leaf.entries[leaf.at]
                leaf.at += 1
                yield entry.job
                after = leaf.entries[leaf.at] if leaf.at < len(leaf.entries) else None
                # As long as nothing starts, jobs that cost the same have the same key.
                if after is None or not after.is_like(entry) or self._held("") != held:
                    break

    def _branch(self, path: str, children: Mapping[str, Sequence[str]]) -> "_Branch[J] | None":
        below: list[_Branch[J] | _Leaf[J]] = []
        for child in children.get(path, ()):
            node = self._branch(child, children) if child in children else self._leaves.get(child)
            if node is not None:
                below.append(node)
        if not below:
            return None
        branch = _Branch(path, below)
        branch.heap = [(self._key(node, self._best(node)), i) for i, node in enumerate(below)]
        heapify(branch.heap)
        return branch

    def _best(self, node: "_Branch[J] | _Leaf[J]") -> "_Leaf[J] | None":
        """The leaf whose first job comes first below a queue; None: no job waits there."""
        if isinstance(node, _Leaf):
            return node if node.at < len(node.entries) else None
        while True:
            key, i = node.heap[0]
            leaf = self._best(node.children[i])
            now = self._key(node.children[i], leaf)
            if now == key:
                return leaf
            heapreplace(
                node.heap, (now, i)
            )  # that of the leaf that was asked last may be less, others only grow

    def _key(self, node: "_Branch[J] | _Leaf[J]", leaf: "_Leaf[J] | None") -> Key:
        """Where a queue stands among its siblings by its best leaf."""
        if leaf is None:
            return _NOBODY
        entry = leaf.entries[leaf.at]
        if entry.room_made:
            return (0, 0, 0)
        outside = not self._guaranteed(leaf.path, entry.cost_milli)
        due, held = self._standings[node.path].due, self._held(node.path) + entry.cost_milli
        return (1 + outside, 0, (held << _SCALE) // due) if due else (1 + outside, 1, held)

    def _guaranteed(self, path: str, cost_milli: int) -> bool:
        """Whether a leaf and all above it are within their guarantees with so much more."""
        while path:
            if self._held(path) + cost_milli > self._standings[path].guarantee:
                return False
            path = path.rpartition("/")[0]
        return True


_NOBODY: Final[Key] = (3,)


@dataclass(slots=True)
class _Leaf(Generic[J]):
    path: str
    entries: Sequence[Entry[J]]
    at: int = 0  # the first that has not been given yet


@dataclass(slots=True)
class _Branch(Generic[J]):
    path: str
    children: Sequence["_Branch[J] | _Leaf[J]"]
    heap: list[tuple[Key, int]] = field(default_factory=list)
