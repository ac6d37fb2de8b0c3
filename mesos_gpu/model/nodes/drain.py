"""What operators keep out of scheduling, and what is remembered of each card."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Transition


class Target(Enum):
    """What a drain takes out."""

    GPU = "gpu"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator's word that nothing new may start there. Times are seconds since the epoch."""

    target: Target
    name: str  # a GPU's UUID, or a host name: the id of an agent changes when it registers anew
    reason: str
    by: str  # who, as the request said
    since: float
    deadline_at: float | None = None  # what still runs there then is ended and queued again; None: never

    def overdue(self, now: float) -> bool:
        """Whether what still runs there must end."""
        return self.deadline_at is not None and now >= self.deadline_at

    @property
    def words(self) -> str:
        """Who and why, for people."""
        return f"drained{f' by {self.by}' if self.by else ''}: {self.reason}"

    @property
    def words_of_gpu(self) -> str:
        """The words of the drain, said of a GPU there."""
        return self.words if self.target is Target.GPU else f"its node is {self.words}"


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset of a GPU that its node was asked for and has not answered. Times are seconds since the epoch."""

    request: str  # the node names it in its answer, and does one request once
    reason: str
    by: str
    since: float
    sent_at: float | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """What the scheduler remembers of a GPU across restarts: of itself and of its node's monitor."""

    id: GpuId
    changes: tuple[Transition, ...] = ()  # oldest first; one whose `old` is `new` is only a note
    totals: Mapping[str, int] = field(default_factory=dict)  # how often it came into each health
    reset: Reset | None = None
