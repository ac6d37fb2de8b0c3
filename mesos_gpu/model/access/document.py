"""The document that says who may do what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY

EVERYTHING: Final = "*"
ALL_APPS: Final = "/*"


class Shared(Enum):
    """What members of a queue see of each other's jobs in it."""

    JOBS = "jobs"  # that they exist, their state and what they use
    COMMANDS = "commands"  # what they run, and its messages
    OUTPUT = "output"  # what they print


@dataclass(frozen=True, slots=True)
class Limits:
    """What those who have a role may ask for in a job or an app. Of several roles, each field's widest counts.

    Attributes:
        users: Unix users that it may run as, beside the one that belongs to the name; patterns with `*`.
        images: Images, as patterns with `*`.
        volumes: Directories of hosts of which (and below which) volumes may be; "*": all.
        highest_priority: The highest that may be asked for.
        must_be_preemptible: Whether jobs have to let themselves be ended for others.
    """

    users: tuple[str, ...] = ()
    images: tuple[str, ...] = (EVERYTHING,)
    volumes: tuple[str, ...] = ()
    highest_priority: int = 0
    must_be_preemptible: bool = False


UNLIMITED: Final = Limits((EVERYTHING,), (EVERYTHING,), (EVERYTHING,), HIGHEST_PRIORITY)


@dataclass(frozen=True, slots=True)
class Role:
    """Rights by a name, and what jobs of who has it may ask for."""

    name: str
    rights: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Binding:
    """Who has which roles, for which queues and apps.

    Attributes:
        names: Exact names; "*": everybody with a proved name.
        groups: Exact groups.
        roles: Names of roles.
        queues: Patterns of queues, as "research" or "research/*".
        apps: Patterns of paths of apps, as "/shop/*" (and "/shop" itself with it).
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    queues: tuple[str, ...] = (EVERYTHING,)
    apps: tuple[str, ...] = (ALL_APPS,)


@dataclass(frozen=True, slots=True)
class AccessDocument:
    """A version of who may do what. The built-in roles are not in it.

    Attributes:
        version: Grows by one with each change; 0: nobody has written one yet.
        at: When it was written, seconds since the epoch.
        by: Who wrote it.
        comment: Why.
        roles: Own roles.
        bindings: In the order in which they were written.
        unix_users: The Unix user of a name, where that is not the name itself.
        shares: By queue, what its members see of each other's jobs.
    """

    version: int = 0
    at: float = 0.0
    by: str = ""
    comment: str = ""
    roles: tuple[Role, ...] = ()
    bindings: tuple[Binding, ...] = ()
    unix_users: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, tuple[Shared, ...]] = field(default_factory=dict)


NO_DOCUMENT: Final = AccessDocument()
