"""Records of what the state remembers of agents, secrets and users beside nouns."""

from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.resources import Resources

NO_FAILURES: Final = (0, 0.0)  # how many in a row, and until when nothing is launched


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


@dataclass(slots=True)
class Roles:
    """What is known of the scheduler's roles of Mesos.

    Attributes:
        known: By name, as the master said last.
        asked: Of several roles those whose offers are asked for; None: all are, or there is one.
        until: Until when each of several is asked for, seconds since the epoch.
    """

    known: dict[str, Role] = field(default_factory=dict)
    asked: tuple[str, ...] | None = None
    until: dict[str, float] = field(default_factory=dict)
