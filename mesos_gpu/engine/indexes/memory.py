"""Records that the state remembers of agents, secrets and users, but does not save."""

from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.resources import Resources

NO_FAILURES: Final = (0, 0.0)  # failures in a row, and end of the delay before a launch


@dataclass(slots=True)
class Reconciliation:
    """Run of the task reconciliation algorithm of Mesos (docs/reconciliation.md).

    Attributes:
        started_at: Begin, in seconds since the epoch.
        next_at: Time of the next try, in seconds since the epoch.
        tries: Number of tries so far.
    """

    started_at: float
    next_at: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Highest resources seen of an agent of late: offers plus what launches hold.

    Two spans of time are kept, so that a whole one is known when the next begins.

    Attributes:
        since: Begin of the later span, in seconds since the epoch.
        latest: Highest resources in the later span.
        before: Highest resources in the span before.
    """

    since: float
    latest: Resources
    before: Resources


@dataclass(frozen=True, slots=True)
class Unreserved:
    """Resources reserved for shared GPUs that were unreserved last on an agent.

    Attributes:
        scalars: Resources as offered.
        tries: Number of times in a row that these resources were unreserved.
        until: Earliest time of the next try if they are still offered, in seconds since the epoch.
    """

    scalars: tuple[Scalar, ...]
    tries: int
    until: float


@dataclass(frozen=True, slots=True)
class SecretRead:
    """State of a secret without its value. Times are in seconds since the epoch.

    Attributes:
        asked_at: Time of the latest request to read it; far in the past without one.
        answered: Whether that request was answered.
        read_at: Time of the request that led to the value; None if the last try failed, or without one.
        problem: Reason of the failure of the last try; "" without one.
        failures: Failed tries in a row.
        next_at: Time at which to read it again.
    """

    asked_at: float = -1e12
    answered: bool = False
    read_at: float | None = None
    problem: str = ""
    failures: int = 0
    next_at: float = 0.0


@dataclass(slots=True)
class Use:
    """Use of the scheduler itself by the jobs of a user or queue.

    Attributes:
        size: Stored bytes, also of ended jobs.
    """

    pending: int = 0
    size: int = 0


@dataclass(slots=True)
class Roles:
    """Roles of the scheduler in Mesos.

    Attributes:
        known: Roles by name, as the master described them last.
        asked: Roles whose offers are requested; None for all of them.
        until: Time until which offers of a role are requested, in seconds since the epoch, by role.
    """

    known: dict[str, Role] = field(default_factory=dict)
    asked: tuple[str, ...] | None = None
    until: dict[str, float] = field(default_factory=dict)
