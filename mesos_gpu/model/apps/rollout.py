"""A deployment: from one tree of apps to another, in steps; and what one app needs at this moment."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.apps.app import App, Group, KillSelection, UnreachableStrategy, UpgradeStrategy


class ActionKind(Enum):
    """What a step does to one app, under Marathon's names."""

    START = "StartApplication"  # it is known from now on, and has no instance yet
    SCALE = "ScaleApplication"
    RESTART = "RestartApplication"  # every instance is replaced by one of the new version
    STOP = "StopApplication"


@dataclass(frozen=True, slots=True)
class Action:
    """Done once the app is as `app` says; STOP carries the app that goes."""

    kind: ActionKind
    app: App
    kill: tuple[str, ...] = ()  # instances that the user chose to go; of SCALE only


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps are taken one after the other, the actions of a step side by side. No step is empty."""

    original: Group
    target: Group
    steps: tuple[tuple[Action, ...], ...]
    restarts: frozenset[str] = frozenset()  # apps that start anew although their definition stays

    @property
    def affected(self) -> frozenset[str]:
        """The ids of the apps that it changes: those are locked while it lasts."""
        return frozenset(action.app.id for step in self.steps for action in step)

    @property
    def changed_from(self) -> Iterator[App]:
        """The affected apps as they were."""
        affected = self.affected
        return (app for app in self.original.all_apps() if app.id in affected)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """When an app was changed, as Marathon's `versionInfo`; seconds since the epoch."""

    version: float
    last_scaling_at: float
    last_config_change_at: float  # instances carry this one: a change of scale makes none of them old


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a step of a deployment with one app that has a deadline."""

    count: int  # the most so far of instances that serve by the new definition, less others that are left
    at: float  # when that grew last, in seconds since the epoch
    overdue: bool = False  # the app's deadline has passed since


class InstanceState(Enum):
    """How far an instance is. One that ended is no instance any more."""

    WAITING = "waiting"  # for an offer: it holds nothing yet
    STAGING = "staging"
    STARTING = "starting"
    RUNNING = "running"
    UNREACHABLE = "unreachable"  # its agent is cut off; it may run on


@dataclass(frozen=True, slots=True)
class Instance:
    """A task of an app, or the wish for one. Times are seconds of the engine's clock."""

    id: str
    version: float  # `last_config_change_at` of the app that it was started from
    state: InstanceState
    since: float  # when it came into this state
    started_at: float | None = None  # when it first ran
    checked: bool = False  # its app has health checks; without, running is healthy
    healthy: bool | None = None  # None: no result yet, or none known any more
    ready: bool = True  # its readiness checks passed once, or its app has none
    ending: bool = False  # it was told to end


@dataclass(frozen=True, slots=True)
class Target:
    """What one app shall be."""

    instances: int
    version: float
    began_at: (
        float  # of the deployment: an instance that ran before and is of this version needs not prove itself
    )
    upgrade_strategy: UpgradeStrategy
    kill_selection: KillSelection
    unreachable_strategy: UnreachableStrategy | None  # None: an unreachable instance is never replaced
    in_place: bool = False  # never over capacity: an old instance ends first
    kill: frozenset[str] = frozenset()  # instances that go in any case
    gpus: float = 0  # of each instance; for words only
    apart: tuple[
        str, ...
    ] = ()  # constraints that bound the instances of a value, as "hostname UNIQUE"; for words only


@dataclass(frozen=True, slots=True)
class Moves:
    """What to do for one app now. At most one of `done`, the moves and `waiting` says something."""

    launch: int = 0
    kill: tuple[str, ...] = ()
    done: bool = False
    waiting: str = ""  # why nothing is done
