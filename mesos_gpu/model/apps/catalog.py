"""Apps as the scheduler keeps them: the tree, its versions, and the deployments under way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.rollout import Plan, Progress, VersionInfo


@dataclass(frozen=True, slots=True)
class AppCatalog:
    """All apps, as they are wanted: the tree, and when each app and each group was changed."""

    root: Group = field(default_factory=lambda: Group("/"))
    versions: Mapping[str, VersionInfo] = field(default_factory=dict)  # by app id
    group_versions: Mapping[str, float] = field(
        default_factory=dict
    )  # by group id: when something in it changed


@dataclass(frozen=True, slots=True)
class Deployment:
    """A change of apps under way."""

    id: str
    version: float  # when it was made, seconds since the epoch
    plan: Plan
    before: Mapping[str, VersionInfo] = field(default_factory=dict)  # of the apps of the plan's original
    step: int = 0  # the index of the one in hand
    waiting: Mapping[str, str] = field(default_factory=dict)  # app to why nothing is done for it
    progress: Mapping[str, Progress] = field(
        default_factory=dict
    )  # in this step, by app; of apps with a deadline
    undoes: str = ""  # the id of the deployment that it rolls back; "": none
    steady: Mapping[str, App] = field(
        default_factory=dict
    )  # apps as before unfinished deployments that it has ended


@dataclass(frozen=True, slots=True)
class AppVersion:
    """An app as it was at some time."""

    version: float
    app: App


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A group as it was: its apps by their ids and versions, and what is below it."""

    id: str
    apps: tuple[tuple[str, float], ...] = ()
    groups: tuple["GroupShape", ...] = ()
    dependencies: tuple[str, ...] = ()
    enforce_role: bool | None = None


@dataclass(frozen=True, slots=True)
class RootVersion:
    """The tree of groups as it was at some time."""

    version: float
    root: GroupShape
