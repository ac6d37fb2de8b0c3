"""Records of what the state remembers of agents, secrets and users beside nouns."""

from dataclasses import dataclass

from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.resources import Resources


@dataclass(slots=True)
class Reconciliation:
    """A run of the algorithm in Mesos' docs/reconciliation.md."""

    started_at: float
    next_at: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most of an agent that was seen of late, in its offers and held by our launches.

    Two spans of time, so that one is always whole when the other begins.
    """

    since: float  # when the later span began
    latest: Resources
    before: Resources


@dataclass(frozen=True, slots=True)
class Unreserved:
    """What an agent had reserved for shared cards, given back the last time.

    Attributes:
        scalars: As it was offered.
        tries: How often the same was given back in a row.
        until: When it may be given back again if the same comes still, seconds since the epoch.
    """

    scalars: tuple[Scalar, ...]
    tries: int
    until: float


@dataclass(frozen=True, slots=True)
class SecretRead:
    """What is known of a secret, its value apart. Times in seconds since the epoch."""

    asked_at: float = -1e12  # for it to be read; never
    answered: bool = False  # since then
    read_at: float | None = None  # when that was asked for; None: the last try failed, or there was none
    problem: str = ""  # why that failed
    failures: int = 0  # in a row
    next_at: float = 0.0  # when it is to be read again


@dataclass(slots=True)
class Use:
    """What the jobs of a user or a queue take of the scheduler itself."""

    pending: int = 0
    size: int = 0  # bytes, of ended jobs too
