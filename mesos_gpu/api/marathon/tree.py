"""Changes of a tree of groups; missing groups on the way are created."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.wire.marathon.paths import ROOT, parent_of, steps_of


def group_at(root: Group, id: str) -> Group | None:
    """Return the group `id`; None if it does not exist."""
    group: Group | None = root
    for path in _ancestors(id):
        group = next((child for child in group.groups if child.id == path), None) if group else None
    return group


def app_at(root: Group, id: str) -> App | None:
    """Return the app `id`; None if it does not exist."""
    group = group_at(root, parent_of(id))
    return next((app for app in group.apps if app.id == id), None) if group else None


def clash(root: Group, ids: Iterable[str]) -> bool:
    """Return whether one of the ids or of their ancestors belongs to an app and a group at once."""
    both = {app.id for app in root.all_apps()} & set(_ids_of_groups(root))
    return bool(both) and any(path in both for id in ids for path in _ancestors(id))


def _ids_of_groups(group: Group) -> Iterator[str]:
    yield group.id
    for child in group.groups:
        yield from _ids_of_groups(child)


def with_app(root: Group, app: App) -> Group:
    """Return the tree with `app` added, or replaced if its id exists."""
    return with_apps(root, [app])


def with_apps(root: Group, apps: Iterable[App]) -> Group:
    """Return the tree with apps added, or replaced where their ids exist; each group is rebuilt once."""
    of_groups: dict[str, dict[str, App]] = {}
    for app in apps:
        of_groups.setdefault(parent_of(app.id), {})[app.id] = app
    for id, changed in of_groups.items():
        root = _changed(root, id, partial(_with, changed))
    return root


def _with(changed: Mapping[str, App], group: Group) -> Group:
    apps = {**{app.id: app for app in group.apps}, **changed}
    return replace(group, apps=tuple(apps.values()))


def without_app(root: Group, id: str) -> Group:
    """Return the tree without the app `id`; its group stays."""

    def change(group: Group) -> Group:
        return replace(group, apps=tuple(app for app in group.apps if app.id != id))

    return _changed(root, parent_of(id), change)


def with_group(root: Group, group: Group) -> Group:
    """Return the tree with `group` added, or replaced if its id exists."""
    return _changed(root, group.id, lambda _: group)


def without_group(root: Group, id: str) -> Group:
    """Return the tree without the group `id` and all below it; an empty root for the root."""
    if id == ROOT:
        return Group(ROOT)

    def change(group: Group) -> Group:
        return replace(group, groups=tuple(child for child in group.groups if child.id != id))

    return _changed(root, parent_of(id), change)


def map_apps(group: Group, change: Callable[[App], App]) -> Group:
    """Return the group with `change` applied to every app below it."""
    return replace(
        group,
        apps=tuple(map(change, group.apps)),
        groups=tuple(map_apps(child, change) for child in group.groups),
    )


def _ancestors(id: str) -> Iterator[str]:
    """Yield the ids on the way from the root to `id`, itself included, as "/a", "/a/b"."""
    path = ""
    for step in steps_of(id):
        path += "/" + step
        yield path


def _changed(group: Group, id: str, change: Callable[[Group], Group]) -> Group:
    """Return the tree with `change` applied to the group `id`, which is created if it is missing."""
    if group.id == id:
        return change(group)
    child = next(path for path in _ancestors(id) if len(steps_of(path)) > len(steps_of(group.id)))
    groups = {child_group.id: child_group for child_group in group.groups}
    groups[child] = _changed(groups.get(child) or Group(child), id, change)
    return replace(group, groups=tuple(groups.values()))
