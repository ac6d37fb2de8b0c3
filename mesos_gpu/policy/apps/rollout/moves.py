"""Next launches and kills that bring one app to its target. Pure; evaluated again after every change.

The bounds are Marathon's (`TaskReplaceActor.computeRestartStrategy`), with its rounding. Two things are stricter: the
bounds hold at all times instead of being computed once when the step begins, and an instance that is being ended counts
until it is gone. Marathon applies them to updates only; here they also apply whenever the number of instances changes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, floor
from typing import Final

from mesos_gpu.model.apps.app import KillSelection
from mesos_gpu.model.apps.rollout import Action, ActionKind, Instance, InstanceState, NextOperations, Target
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.policy.apps.rollout.pace import Fate, fate

IN_PLACE_LABEL: Final = "MESOS_GPU_IN_PLACE"


class _Condition(IntEnum):
    """Condition of an instance; those with a lower value are ended first. Marathon's order, refined by health."""

    WAITING = 0
    UNREACHABLE = 1
    UNHEALTHY = 2
    STAGING = 3
    STARTING = 4
    NOT_READY = 5
    UNKNOWN = 6
    SERVING = 7


_BOUNDING: Final = (Operator.UNIQUE, Operator.MAX_PER)
_NEVER_RAN = (_Condition.WAITING, _Condition.STAGING, _Condition.STARTING)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and largest number of instances during an update."""

    least: int  # serving instances below which no kill goes
    most: int  # instances, including waiting, starting and ending ones, above which no launch goes


def bounds(target: Target) -> Bounds:
    """Return the bounds of an update.

    Where the two would be equal nothing could move: then one more instance may run, as with Marathon, or with
    `in_place` one less.
    """
    instances, strategy = target.instances, target.upgrade_strategy
    least = ceil(instances * strategy.minimum_health_capacity)
    if target.in_place:
        return Bounds(max(0, min(least, instances - 1)), instances)
    most = floor(instances * (1 + strategy.maximum_over_capacity))
    return Bounds(least, most + 1 if 0 < most == least else most)


def target(action: Action, *, version: float, began_at: float, in_place: bool = False) -> Target:
    """Return the target that an action sets for its app.

    Args:
        action: Action of the deployment.
        version: `last_config_change_at` of the app.
        began_at: Start of the deployment, seconds since the epoch.
        in_place: Whether an old instance ends before a new one starts, as set by option or label.
    """
    app = action.app
    return Target(
        instances=0 if action.kind in (ActionKind.STOP, ActionKind.START) else app.instances,
        version=version,
        began_at=began_at,
        upgrade_strategy=app.upgrade_strategy,
        kill_selection=app.kill_selection,
        unreachable_strategy=app.unreachable_strategy,
        in_place=in_place,
        gpus=number_of(app.gpus * app.part_milli),
        kill=frozenset(action.kill),
        apart=tuple(
            [
                " ".join(constraint.as_list())
                for constraint in app.constraints
                if constraint.operator in _BOUNDING
            ]
        ),
    )


def serves(instance: Instance) -> bool:
    """Return whether an instance does its work, as far as is known."""
    return _condition(instance) is _Condition.SERVING and not instance.ending


def next_moves(target: Target, instances: Iterable[Instance], *, now: float) -> NextOperations:
    """Return which instances to launch and to end now.

    Instances of every other version are old. An old one whose health is unknown (yet, or after the scheduler was away)
    may well serve: it is ended only where enough others serve. The moves must be carried out before the next call: a
    launch is then a waiting instance, a kill an ending one.

    Args:
        target: Target of the app.
        instances: Instances of the app that have not ended.
        now: Seconds since the epoch.
    """
    scene = _Scene.of(target, instances, now)
    surplus = scene.surplus()
    launch = scene.launches(len(surplus))
    kill = (*surplus, *scene.outdated(surplus), *scene.unwanted())
    if launch or kill:
        return NextOperations(launch, tuple(instance.id for instance in kill))
    if scene.done():
        return NextOperations(done=True)
    return NextOperations(waiting=scene.waiting())


def progress(target: Target, instances: Iterable[Instance]) -> int:
    """Return how close an app is to its target.

    That is the number of serving instances of the target version, up to the wanted number, less those that must go.
    """
    all_instances = list(instances)
    fresh = [
        instance for instance in all_instances if instance.version == target.version and not instance.ending
    ]
    going = len(all_instances) - min(len(fresh), target.instances)
    return min(sum(map(serves, fresh)), target.instances) - going


@dataclass(frozen=True, slots=True)
class _Scene:
    """Instances of one app, sorted by what may happen to them."""

    target: Target
    bounds: Bounds
    present: Sequence[Instance]  # all but those given up
    fresh: Sequence[Instance]  # of the target's version and not ending; first to be ended first
    old: Sequence[Instance]  # of other versions and not ending; first to be ended first
    cut_off: Sequence[Instance]  # given up, but not ending yet

    @classmethod
    def of(cls, target: Target, instances: Iterable[Instance], now: float) -> "_Scene":
        """Sort the instances of an app by version and state."""
        ordered = sorted(instances, key=_order(target.kill_selection))
        present = [instance for instance in ordered if _counts(instance, target, now)]
        stay = [instance for instance in present if not instance.ending]
        return cls(
            target,
            bounds(target),
            present,
            [instance for instance in stay if instance.version == target.version],
            [instance for instance in stay if instance.version != target.version],
            [instance for instance in ordered if not instance.ending and not _counts(instance, target, now)],
        )

    def surplus(self) -> list[Instance]:
        """Return instances of the target version to end: chosen by the user, or too many."""
        chosen = [instance for instance in self.fresh if instance.id in self.target.kill]
        rest = [instance for instance in self.fresh if instance.id not in self.target.kill]
        return chosen + rest[: max(0, len(self.fresh) - len(chosen) - self.target.instances)]

    def outdated(self, surplus: Sequence[Instance]) -> list[Instance]:
        """Return old instances to end now.

        Those that never ran and those that the user chose are ended at once. Of the rest as many as leave `least`:
        first those that do not serve, which count as they may recover; then, if `least` are known to serve, the others.
        """
        fresh = sum(map(serves, self.fresh)) - sum(map(serves, surplus))
        at_once = [instance for instance in self.old if self._goes_at_once(instance)]
        rest = [instance for instance in self.old if not self._goes_at_once(instance)]
        spare = max(0, fresh + len(rest) - self.bounds.least)
        if fresh + sum(map(serves, rest)) < self.bounds.least:
            spare = min(spare, sum(_condition(instance) < _Condition.UNKNOWN for instance in rest))
        return at_once + rest[:spare]

    def _goes_at_once(self, old: Instance) -> bool:
        """Return whether an old instance is ended at once: it never ran, or the user chose it."""
        return _condition(old) in _NEVER_RAN or old.id in self.target.kill

    def unwanted(self) -> list[Instance]:
        """Return instances that were given up and are not needed if they come back, or that the user chose to end."""
        return [
            instance
            for instance in self.cut_off
            if instance.version != self.target.version
            or not self.target.instances
            or instance.id in self.target.kill
        ]

    def launches(self, surplus: int) -> int:
        """Return how many instances to launch: those missing, within the upper bound; ending ones still count."""
        missing = self.target.instances - (len(self.fresh) - surplus)
        return max(0, min(missing, self.bounds.most - len(self.present)))

    def done(self) -> bool:
        """Return whether only instances of the target version exist, in the wanted number, and all are settled."""
        return len(self.present) == len(self.fresh) == self.target.instances and all(
            map(self._settled, self.fresh)
        )

    def _settled(self, instance: Instance) -> bool:
        """Return whether an instance serves, or ran before the deployment began and still runs."""
        before = instance.started_at is not None and instance.started_at < self.target.began_at
        return serves(instance) or (before and instance.state is InstanceState.RUNNING)

    def waiting(self) -> str:
        """Return what the deployment of the app waits for, as text."""
        ending = sum(instance.ending for instance in self.present)
        unknown = sum(_condition(instance) is _Condition.UNKNOWN for instance in self.old)
        reasons = [_many(ending, "instance", "to end")] if ending else []
        for condition, what in _REASONS.items():
            count = sum(_condition(instance) is condition for instance in self.fresh)
            reasons += [_many(count, "new instance", what)] if count else []
        reasons += (
            [
                _many(
                    unknown,
                    "old instance",
                    "to show whether they are healthy" if unknown > 1 else "to show whether it is healthy",
                )
            ]
            if unknown
            else []
        )
        return "waits for " + ", for ".join(reasons) + self._hint()

    def _hint(self) -> str:
        """Return a hint at what a new instance needs beside the old ones; "" if they are not in its way."""
        is_stuck = any(_condition(instance) is _Condition.WAITING for instance in self.fresh)
        if not (is_stuck and self.old) or self.target.in_place:
            return ""
        needs = [f"{_many(self.target.gpus, 'free GPU')}"] if self.target.gpus else []
        needs += [f"a node that {constraint} allows" for constraint in self.target.apart]
        if not needs:
            return ""
        return (
            f"; each needs {' and '.join(needs)} beside the old ones, which stay until it runs: with the label "
            f"{IN_PLACE_LABEL}=true an old one ends first"
        )


_REASONS = {
    _Condition.WAITING: "to be placed",
    _Condition.STAGING: "to start",
    _Condition.STARTING: "to run",
    _Condition.UNKNOWN: "to become healthy",
    _Condition.UNHEALTHY: "to become healthy again",
    _Condition.NOT_READY: "to pass the readiness checks",
    _Condition.UNREACHABLE: "to be reachable again",
}


def _many(count: float, noun: str, what: str = "") -> str:
    """Return a count with its noun in the singular or plural."""
    return f"{count} {noun}{'s' * (count != 1)} {what}".rstrip()


def _counts(instance: Instance, target: Target, now: float) -> bool:
    """Return whether an instance counts: an unreachable one does not once it is ending or given up."""
    if instance.state is not InstanceState.UNREACHABLE:
        return True
    return not instance.ending and fate(target.unreachable_strategy, instance.since, now) is Fate.KEEP


def _condition(instance: Instance) -> _Condition:
    """Return the condition of an instance from its state, health and readiness."""
    if instance.state is not InstanceState.RUNNING:
        return _Condition[instance.state.name]
    if instance.healthy is False:
        return _Condition.UNHEALTHY
    if not instance.ready:
        return _Condition.NOT_READY
    return _Condition.UNKNOWN if instance.checked and instance.healthy is None else _Condition.SERVING


def _order(selection: KillSelection) -> Callable[[Instance], tuple[int, float, str]]:
    """Return the sort key by which instances are ended: condition first, then age by the app's kill selection."""
    sign = -1.0 if selection is KillSelection.YOUNGEST_FIRST else 1.0

    def key(instance: Instance) -> tuple[int, float, str]:
        began = instance.since if instance.started_at is None else instance.started_at
        return (_condition(instance), sign * began, instance.id)

    return key
