"""Drains of GPUs and nodes by operators, and the stored history of each GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Transition


class Target(Enum):
    """Kind of thing that a drain keeps out of scheduling."""

    GPU = "gpu"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator's order to start nothing new on a GPU or node. Times are seconds since the epoch."""

    target: Target
    name: str  # GPU UUID or host name, as the id of an agent changes when it registers again
    reason: str
    by: str  # author, as the request named it
    since: float
    deadline_at: float | None = None  # when jobs that still run there are ended and requeued; None for never

    def overdue(self, now: float) -> bool:
        """Return whether jobs that still run there must be ended."""
        return self.deadline_at is not None and now >= self.deadline_at

    @property
    def words(self) -> str:
        """Author and reason as text for people."""
        return f"drained{f' by {self.by}' if self.by else ''}: {self.reason}"

    @property
    def words_of_gpu(self) -> str:
        """Text of the drain for a GPU that it affects."""
        return self.words if self.target is Target.GPU else f"its node is {self.words}"


@dataclass(frozen=True, slots=True)
class Reset:
    """A requested reset of a GPU that its node has not answered yet. Times are seconds since the epoch."""

    request: str  # id that the node repeats in its answer; the node executes each id once
    reason: str
    by: str
    since: float
    sent_at: float | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """Health history of a GPU, kept across restarts of the scheduler and of the node's monitor."""

    id: GpuId
    changes: tuple[Transition, ...] = ()  # oldest first; an entry with equal `old` and `new` is only a note
    totals: Mapping[str, int] = field(default_factory=dict)  # number of changes into each health
    reset: Reset | None = None
