"""The access document: rights of names and groups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY

EVERYTHING: Final = "*"
ALL_APPS: Final = "/*"


class Shared(Enum):
    """Details that members of a queue may see of each other's jobs."""

    JOBS = "jobs"  # existence, state and use of jobs
    COMMANDS = "commands"  # commands and messages
    OUTPUT = "output"  # output


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a role on requested jobs and apps. With several roles, the widest value of each field counts.

    Attributes:
        users: Patterns with `*` of permitted Unix users, besides the one mapped to the name.
        images: Patterns with `*` of permitted images.
        volumes: Host directories that may be mounted, with everything below; "*" for all.
        highest_priority: Highest priority that may be requested.
        must_be_preemptible: Whether jobs must be preemptible.
    """

    users: tuple[str, ...] = ()
    images: tuple[str, ...] = (EVERYTHING,)
    volumes: tuple[str, ...] = ()
    highest_priority: int = 0
    must_be_preemptible: bool = False


UNLIMITED: Final = Limits((EVERYTHING,), (EVERYTHING,), (EVERYTHING,), HIGHEST_PRIORITY)


@dataclass(frozen=True, slots=True)
class Role:
    """A named set of rights, with limits on requests of those that have it."""

    name: str
    rights: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Binding:
    """Assignment of roles to names and groups, for some queues and apps.

    Attributes:
        names: Exact names; "*" for everyone with a proved name.
        groups: Exact names of groups.
        roles: Names of roles.
        queues: Patterns of queues, such as "research" or "research/*".
        apps: Patterns of app paths, such as "/shop/*", which includes "/shop".
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    queues: tuple[str, ...] = (EVERYTHING,)
    apps: tuple[str, ...] = (ALL_APPS,)


@dataclass(frozen=True, slots=True)
class AccessDocument:
    """A version of the access document. Built-in roles are not part of it.

    Attributes:
        version: Number that grows by one with each change; 0 if no document was written yet.
        at: Time of the change, seconds since the epoch.
        by: Author of the change.
        comment: Comment of the author.
        roles: Roles defined by operators.
        bindings: Bindings in the order of the document.
        unix_users: Unix users of names, if they differ from the name.
        shares: Details that members of a queue see of each other's jobs, by queue.
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
