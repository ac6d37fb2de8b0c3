"""Plan of a deployment from one tree of apps to another: steps, rollback, and conflicts between deployments. Pure.

The steps are those of Marathon 1.11 (`DeploymentPlan`): removed apps stop, new apps are created, then changed apps
follow, those first on which others depend. Apps whose dependencies have the same depth share a step.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.apps.app import App, Group, same_but_scale
from mesos_gpu.model.apps.rollout import Action, ActionKind, Plan, VersionInfo

_NONE: Final[Mapping[str, float]] = {}


def plan(
    original: Group,
    target: Group,
    *,
    restarts: Collection[str] = (),
    kill: Mapping[str, tuple[str, ...]] | None = None,
) -> Plan:
    """Return the steps from one root group to another.

    Args:
        original: Tree before the change.
        target: Tree to reach.
        restarts: Apps that restart even if their definition is unchanged.
        kill: Instances that the user chose to end, by app.

    Raises:
        BadConfiguration: Apps depend on each other in a circle.
    """
    old = {app.id: app for app in original.all_apps()}
    new = {app.id: app for app in target.all_apps()}
    stop = tuple(Action(ActionKind.STOP, old[id]) for id in sorted(old.keys() - new.keys()))
    start = tuple(Action(ActionKind.START, new[id]) for id in sorted(new.keys() - old.keys()))
    layers: dict[int, list[Action]] = {}
    for id, depth in sorted(_depths(target).items()):
        action = _change(old.get(id), new[id], id in restarts, (kill or {}).get(id, ()))
        if action is not None:
            layers.setdefault(depth, []).append(action)
    steps = (stop, start, *(tuple(layers[depth]) for depth in sorted(layers)))
    return Plan(original, target, tuple(filter(None, steps)), frozenset(restarts) & new.keys())


def _change(old: App | None, new: App, restart: bool, kill: tuple[str, ...]) -> Action | None:
    """Return the action that brings an app to its new definition; None if it need not change."""
    if old is None:
        return Action(ActionKind.SCALE, new)
    if old is new and not (restart or kill):
        return None  # fast path for the many unchanged apps, as comparing definitions is slow
    if restart or not same_but_scale(old, new):
        return Action(ActionKind.RESTART if new.instances else ActionKind.SCALE, new)
    return Action(ActionKind.SCALE, new, kill) if kill or old != new else None


def _depths(root: Group) -> Mapping[str, int]:
    """Return the number of apps in the longest chain of dependencies that ends with an app, by app."""
    needs = _needs(root)
    depths: dict[str, int] = {}
    try:
        for id in TopologicalSorter(needs).static_order():
            depths[id] = 1 + max((depths[other] for other in needs[id]), default=0)
    except CycleError as err:
        circle = " -> ".join(reversed(err.args[1]))
        raise BadConfiguration(
            f"apps depend on each other in a circle: {circle}", remedy="remove one of these dependencies"
        ) from err
    return depths


def _needs(root: Group) -> Mapping[str, set[str]]:
    """Return the apps on which each app depends, directly or through a group; missing apps are ignored."""
    groups = list(_groups(root))
    members = {group.id: {app.id for app in group.all_apps()} for group in groups}
    members |= {app.id: {app.id} for app in root.all_apps()}
    needs: dict[str, set[str]] = {app.id: set() for app in root.all_apps()}
    for group in groups:
        for app in group.apps:
            needs[app.id].update(*(members.get(id, ()) for id in app.dependencies))
        for id in members[group.id]:
            needs[id].update(*(members.get(other, ()) for other in group.dependencies))
    return needs


def _groups(root: Group) -> Iterator[Group]:
    yield root
    for group in root.groups:
        yield from _groups(group)


def smaller(root: Group, by: Mapping[str, int]) -> Group:
    """Return the tree with the size of each app in `by` reduced by the given number of instances."""
    apps = (app for app in root.all_apps() if by.get(app.id))
    return with_apps(
        root, {app.id: replace(app, instances=max(0, app.instances - by[app.id])) for app in apps}
    )


def with_apps(root: Group, apps: Mapping[str, App]) -> Group:
    """Return the tree with other definitions of the given apps, which it contains."""
    if not apps:
        return root
    return replace(
        root,
        apps=tuple(apps.get(app.id, app) for app in root.apps),
        groups=tuple(with_apps(group, apps) for group in root.groups),
    )


def rollback(undone: Plan, current: Group) -> Plan:
    """Return the plan of DELETE /v2/deployments/{id}: from `current` to a tree without the changes of `undone`.

    Later changes by other deployments stay. The apps of `undone` are locked, so the others changed other apps. Groups
    are not locked: a group that `undone` added stays as long as something is in it.
    """
    before, after, now = (_Flat(root) for root in (undone.original, undone.target, current))
    for id in {**before.groups, **after.groups}:
        now.revert_group(id, before.groups.get(id), after.groups.get(id))
    for id in {**before.apps, **after.apps}:
        was = before.apps.get(id)
        if was is None:
            now.apps.pop(id, None)
        elif was != after.apps.get(id):
            now.apps[id] = was
    added = after.groups.keys() - before.groups.keys()
    return plan(
        current, now.tree(order=(*before.order, *now.order), unless_empty=added), restarts=undone.restarts
    )


class _Flat:
    """Tree of groups in flat form: apps, and groups without contents, by id."""

    def __init__(self, root: Group) -> None:
        self.apps = {app.id: app for app in root.all_apps()}
        self.groups = {group.id: replace(group, apps=(), groups=()) for group in _groups(root)}
        self.order = (*self.apps, *self.groups)

    def revert_group(self, id: str, was: Group | None, became: Group | None) -> None:
        """Undo a deployment's change of one group itself, without what is in it."""
        if was == became:
            return
        gone = became.dependencies if became else ()
        back = was.dependencies if was else ()
        now = self.groups.get(id) or was
        if now is None:
            return
        rest = tuple(
            dependency for dependency in now.dependencies if dependency not in gone and dependency not in back
        )
        self.groups[id] = replace(now, dependencies=(*back, *rest), enforce_role=(was or now).enforce_role)

    def tree(self, *, order: Iterable[str], unless_empty: Collection[str]) -> Group:
        """Return the tree again, in this order, without those groups of `unless_empty` that are empty."""
        place = {id: n for n, id in reversed(list(enumerate(order)))}
        for id in [*self.apps, *self.groups]:
            self._make_parents(id)
        inside: dict[str, list[str]] = {}
        for id in sorted(
            [*self.apps, *(self.groups.keys() - {"/"})], key=lambda id: (place.get(id, len(place)), id)
        ):
            inside.setdefault(_parent(id), []).append(id)

        def whole(id: str) -> Group:
            """Return a group with everything below it."""
            groups = [whole(child) for child in inside.get(id, ()) if child in self.groups]
            groups_kept = [
                child for child in groups if child.id not in unless_empty or child != Group(child.id)
            ]
            apps = [self.apps[child] for child in inside.get(id, ()) if child in self.apps]
            return replace(self.groups[id], apps=tuple(apps), groups=tuple(groups_kept))

        return whole("/")

    def _make_parents(self, id: str) -> None:
        """Add empty groups above `id` that are missing."""
        while id != "/":
            id = _parent(id)
            self.groups.setdefault(id, Group(id))


def _parent(id: str) -> str:
    return id.rpartition("/")[0] or "/"


def versions_after(
    plan: Plan,
    versions: Mapping[str, VersionInfo],
    *,
    at: float,
    known: Mapping[str, VersionInfo] | None = None,
    running: Mapping[str, float] = _NONE,
) -> Mapping[str, VersionInfo]:
    """Return the versions of all apps in the plan's target, as Marathon assigns them.

    Args:
        plan: Plan of the deployment.
        versions: Versions of the apps before.
        at: Time of the deployment, seconds since the epoch.
        known: Earlier versions that a rollback takes up again, so that instances still running from them are not old.
        running: `last_config_change_at` of the instances, for apps whose instances already run the new definition.
    """
    after = {app.id: versions[app.id] for app in plan.target.all_apps() if app.id in versions}
    old = {app.id: app for app in plan.original.all_apps()}
    for action in (action for step in plan.steps for action in step):
        id = action.app.id
        if action.kind is ActionKind.STOP:
            continue
        if known is not None and id in known:
            after[id] = known[id]
        elif id not in old or not same_but_scale(old[id], action.app):
            after[id] = VersionInfo(at, at, running.get(id, at))
        elif id in plan.restarts:
            after[id] = replace(versions[id], version=at, last_config_change_at=at)
        else:
            after[id] = replace(versions[id], version=at, last_scaling_at=at)
    return after


def locks(deployments: Mapping[str, Collection[str]], affected: Collection[str]) -> tuple[str, ...]:
    """Return the deployments that change one of the `affected` apps; `deployments` has the apps of each.

    A change is refused because of these (409), or ends them first with `force`.
    """
    return tuple(sorted(id for id, apps in deployments.items() if not set(apps).isdisjoint(affected)))
