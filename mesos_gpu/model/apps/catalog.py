"""The tree of apps, its earlier versions, and running deployments."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.rollout import Plan, Progress, VersionInfo


@dataclass(frozen=True, slots=True)
class AppCatalog:
    """All wanted apps, with the times of the last changes of each app and each group."""

    root: Group = field(default_factory=lambda: Group("/"))
    versions: Mapping[str, VersionInfo] = field(default_factory=dict)  # by app id
    # By group id: time of the last change in the group.
    group_versions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running change of apps."""

    id: str
    version: float  # time of the change, seconds since the epoch
    plan: Plan
    before: Mapping[str, VersionInfo] = field(default_factory=dict)  # versions of the apps before the change
    step: int = 0  # index of the current step
    waiting: Mapping[str, str] = field(default_factory=dict)  # by app: reason why it makes no progress
    # Progress in this step, by app with a deadline.
    progress: Mapping[str, Progress] = field(default_factory=dict)
    undoes: str = ""  # id of the deployment that it rolls back; "" if it is no rollback
    # By app: definition before the unfinished deployments that it replaced.
    steady: Mapping[str, App] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppVersion:
    """A version of an app: its definition at a time."""

    version: float
    app: App


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A version of a group, with its apps by id and version."""

    id: str
    apps: tuple[tuple[str, float], ...] = ()
    groups: tuple["GroupShape", ...] = ()
    dependencies: tuple[str, ...] = ()
    enforce_role: bool | None = None


@dataclass(frozen=True, slots=True)
class RootVersion:
    """A version of the tree of groups: its shape at a time."""

    version: float
    root: GroupShape
