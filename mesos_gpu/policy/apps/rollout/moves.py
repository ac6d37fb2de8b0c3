"""What to do for one app now, so that in the end it is as its target says. Pure; asked again after every change.

The bounds are Marathon's (`TaskReplaceActor.computeRestartStrategy`), its rounding too. Two things are stricter: they
are held at every moment, not worked out once when the step begins, and an instance that was told to end counts
until it is gone. Marathon has them for an update only; here they hold whenever the number changes as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, floor
from typing import Final

from mesos_gpu.model.apps.app import KillSelection
from mesos_gpu.model.apps.rollout import Action, ActionKind, Instance, InstanceState, Moves, Target
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.policy.apps.rollout.pace import Fate, fate

IN_PLACE_LABEL: Final = "MESOS_GPU_IN_PLACE"


class _Condition(IntEnum):
    """Where an instance stands: the lower, the sooner it goes. Marathon's order, with what its health says added."""

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
    """Numbers of instances."""

    least: int  # that serve; never undercut by our own doing
    most: int  # that there are, those that wait, start and end among them; never exceeded by our own doing


def bounds(target: Target) -> Bounds:
    """What an update keeps to.

    Where the two would be equal nothing could move: then one more may run, as with Marathon; in place, one less.
    """
    wanted, strategy = target.instances, target.upgrade_strategy
    least = ceil(wanted * strategy.minimum_health_capacity)
    if target.in_place:
        return Bounds(max(0, min(least, wanted - 1)), wanted)
    most = floor(wanted * (1 + strategy.maximum_over_capacity))
    return Bounds(least, most + 1 if 0 < most == least else most)


def target(action: Action, *, version: float, began_at: float, in_place: bool = False) -> Target:
    """What `action` makes of its app. `version` is the app's `last_config_change_at`, `began_at` the deployment's;
    `in_place` its option, by object or label."""
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
        apart=tuple([" ".join(each.as_list()) for each in app.constraints if each.operator in _BOUNDING]),
    )


def serves(instance: Instance) -> bool:
    """Whether it does its work, as far as is known."""
    return _condition(instance) is _Condition.SERVING and not instance.ending


def next_moves(target: Target, instances: Iterable[Instance], *, now: float) -> Moves:
    """What to launch and what to end now. `instances` are all of the app that have not ended.

    Instances of every other version are old. An old one whose health is not known (yet, or after the scheduler was
    away) may well serve: it goes only where enough others do. What is returned must be done before the next question:
    a launch is an instance that waits, a kill one that is ending.
    """
    scene = _Scene.of(target, instances, now)
    surplus = scene.surplus()
    launch = scene.launches(len(surplus))
    kill = (*surplus, *scene.outdated(surplus), *scene.unwanted())
    if launch or kill:
        return Moves(launch, tuple(instance.id for instance in kill))
    if scene.done():
        return Moves(done=True)
    return Moves(waiting=scene.waiting())


def progress(target: Target, instances: Iterable[Instance]) -> int:
    """Return how near an app is to its target: the instances of the version that serve, up to the number wanted, less
    those that are to go."""
    known = list(instances)
    fresh = [each for each in known if each.version == target.version and not each.ending]
    going = len(known) - min(len(fresh), target.instances)
    return min(sum(map(serves, fresh)), target.instances) - going


@dataclass(frozen=True, slots=True)
class _Scene:
    """The instances of one app, sorted."""

    target: Target
    bounds: Bounds
    present: Sequence[Instance]  # that count: not those given up
    fresh: Sequence[Instance]  # of the target's version, that stay; the first goes first
    old: Sequence[Instance]  # of other versions, that stay; the first goes first
    cut_off: Sequence[Instance]  # given up, but not told to end yet

    @classmethod
    def of(cls, target: Target, instances: Iterable[Instance], now: float) -> "_Scene":
        known = sorted(instances, key=_order(target.kill_selection))
        present = [each for each in known if _counts(each, target, now)]
        stay = [each for each in present if not each.ending]
        return cls(
            target,
            bounds(target),
            present,
            [each for each in stay if each.version == target.version],
            [each for each in stay if each.version != target.version],
            [each for each in known if not each.ending and not _counts(each, target, now)],
        )

    def surplus(self) -> list[Instance]:
        """Instances of the right version that go: chosen by the user, or too many."""
        chosen = [each for each in self.fresh if each.id in self.target.kill]
        rest = [each for each in self.fresh if each.id not in self.target.kill]
        return chosen + rest[: max(0, len(self.fresh) - len(chosen) - self.target.instances)]

    def outdated(self, surplus: Sequence[Instance]) -> list[Instance]:
        """Old ones that go now.

        Those that never ran and those that the user chose go at once. Of the rest as many as leave `least`: first
        those that do not serve, which are counted because they may recover; then, if `least` are known to serve, the
        others.
        """
        fresh = sum(map(serves, self.fresh)) - sum(map(serves, surplus))
        at_once = [each for each in self.old if self._goes_at_once(each)]
        rest = [each for each in self.old if not self._goes_at_once(each)]
        spare = max(0, fresh + len(rest) - self.bounds.least)
        if fresh + sum(map(serves, rest)) < self.bounds.least:
            spare = min(spare, sum(_condition(each) < _Condition.UNKNOWN for each in rest))
        return at_once + rest[:spare]

    def _goes_at_once(self, old: Instance) -> bool:
        return _condition(old) in _NEVER_RAN or old.id in self.target.kill

    def unwanted(self) -> list[Instance]:
        """Instances that were given up and not needed if they come back, or that the user chose to kill."""
        return [
            each
            for each in self.cut_off
            if each.version != self.target.version or not self.target.instances or each.id in self.target.kill
        ]

    def launches(self, surplus: int) -> int:
        """How many are missing, as far as there may be more; what ends now still has its place."""
        missing = self.target.instances - (len(self.fresh) - surplus)
        return max(0, min(missing, self.bounds.most - len(self.present)))

    def done(self) -> bool:
        return len(self.present) == len(self.fresh) == self.target.instances and all(
            map(self._settled, self.fresh)
        )

    def _settled(self, instance: Instance) -> bool:
        before = instance.started_at is not None and instance.started_at < self.target.began_at
        return serves(instance) or (before and instance.state is InstanceState.RUNNING)

    def waiting(self) -> str:
        ending = sum(each.ending for each in self.present)
        unknown = sum(_condition(each) is _Condition.UNKNOWN for each in self.old)
        reasons = [_many(ending, "instance", "to end")] if ending else []
        for condition, what in _REASONS.items():
            count = sum(_condition(each) is condition for each in self.fresh)
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
        """Return what a new instance needs beside the old ones; "" if it needs nothing that they have."""
        stuck = any(_condition(each) is _Condition.WAITING for each in self.fresh)
        if not (stuck and self.old) or self.target.in_place:
            return ""
        needs = [f"{_many(self.target.gpus, 'free GPU')}"] if self.target.gpus else []
        needs += [f"a place that {each} leaves it" for each in self.target.apart]
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
    return f"{count} {noun}{'s' * (count != 1)} {what}".rstrip()


def _counts(instance: Instance, target: Target, now: float) -> bool:
    """A task whose agent is cut off is gone for a deployment when it was told to end, or was given up."""
    if instance.state is not InstanceState.UNREACHABLE:
        return True
    return not instance.ending and fate(target.unreachable_strategy, instance.since, now) is Fate.KEEP


def _condition(instance: Instance) -> _Condition:
    if instance.state is not InstanceState.RUNNING:
        return _Condition[instance.state.name]
    if instance.healthy is False:
        return _Condition.UNHEALTHY
    if not instance.ready:
        return _Condition.NOT_READY
    return _Condition.UNKNOWN if instance.checked and instance.healthy is None else _Condition.SERVING


def _order(selection: KillSelection) -> Callable[[Instance], tuple[int, float, str]]:
    sign = -1.0 if selection is KillSelection.YOUNGEST_FIRST else 1.0

    def key(instance: Instance) -> tuple[int, float, str]:
        began = instance.since if instance.started_at is None else instance.started_at
        return (_condition(instance), sign * began, instance.id)

    return key
