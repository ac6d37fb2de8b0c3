"""Plans of deployments, from one tree of apps to another in steps, and the state of an app during a step."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.apps.app import App, Group, KillSelection, UnreachableStrategy, UpgradeStrategy


class ActionKind(Enum):
    """Change of one app in a step, under the names of Marathon."""

    START = "StartApplication"  # the app is created, without instances yet
    SCALE = "ScaleApplication"
    RESTART = "RestartApplication"  # every instance is replaced by one of the new version
    STOP = "StopApplication"


@dataclass(frozen=True, slots=True)
class Action:
    """Change of one app in a step, complete once the app is as defined by `app`; for STOP, `app` is the deleted app."""

    kind: ActionKind
    app: App
    kill: tuple[str, ...] = ()  # instances that the user selected to be ended; only for SCALE


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of a deployment, taken in order; actions of one step run in parallel. No step is empty."""

    original: Group
    target: Group
    steps: tuple[tuple[Action, ...], ...]
    restarts: frozenset[str] = frozenset()  # apps that are restarted without a changed definition

    @property
    def affected(self) -> frozenset[str]:
        """Ids of the apps that the plan changes, which are locked while it runs."""
        return frozenset(action.app.id for step in self.steps for action in step)

    @property
    def changed_from(self) -> Iterator[App]:
        """Affected apps, as they were before."""
        affected = self.affected
        return (app for app in self.original.all_apps() if app.id in affected)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """Times of an app's changes, as in Marathon's `versionInfo`, in seconds since the epoch."""

    version: float
    last_scaling_at: float
    last_config_change_at: float  # instances are compared by this version, so that scaling outdates none


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one app with a deadline within a step of a deployment."""

    count: int  # highest number so far of serving new instances minus remaining old ones
    at: float  # time of the last increase of `count`, seconds since the epoch
    overdue: bool = False  # whether the app's deadline has passed since then


class InstanceState(Enum):
    """State of an instance. An ended instance is dropped."""

    WAITING = "waiting"  # waits for an offer, and holds nothing yet
    STAGING = "staging"
    STARTING = "starting"
    RUNNING = "running"
    UNREACHABLE = "unreachable"  # its agent is cut off; it may run on


@dataclass(frozen=True, slots=True)
class Instance:
    """A task of an app, or one that is still to be launched. Times are seconds of the engine's clock."""

    id: str
    version: float  # `last_config_change_at` of the definition that it was started from
    state: InstanceState
    since: float  # begin of this state
    started_at: float | None = None  # begin of its first run
    checked: bool = False  # whether its app has health checks; without any, a running instance is healthy
    healthy: bool | None = None  # None without a current result
    ready: bool = True  # whether its readiness checks passed once, or its app has none
    ending: bool = False  # whether it was ordered to end


@dataclass(frozen=True, slots=True)
class Target:
    """Wanted state of one app."""

    instances: int
    version: float
    # Begin of the deployment; instances of this version that ran before it are not checked again.
    began_at: float
    upgrade_strategy: UpgradeStrategy
    kill_selection: KillSelection
    unreachable_strategy: UnreachableStrategy | None  # None if unreachable instances are never replaced
    in_place: bool = False  # whether an old instance is ended first, so that there are never more instances
    kill: frozenset[str] = frozenset()  # instances that are ended in any case
    gpus: float = 0  # GPUs per instance; only for messages
    # Constraints that limit instances per value, such as "hostname UNIQUE"; only for messages.
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextOperations:
    """Next operations for one app. At most one of `done`, the operations and `waiting` is set."""

    launch: int = 0
    kill: tuple[str, ...] = ()
    done: bool = False
    waiting: str = ""  # reason why nothing is done
