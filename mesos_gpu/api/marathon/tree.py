"""Changes of a tree of groups. Groups on the way that are missing are made. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.wire.marathon.paths import ROOT, parent_of, steps_of


def group_at(root: Group, id: str) -> Group | None:
    """The group `id`."""
    group: Group | None = root
    for path in _ways(id):
        group = next((each for each in group.groups if each.id == path), None) if group else None
    return group


def app_at(root: Group, id: str) -> App | None:
    """The app `id`."""
    group = group_at(root, parent_of(id))
    return next((each for each in group.apps if each.id == id), None) if group else None


def clash(root: Group, ids: Iterable[str]) -> bool:
    """Whether one id, of some ids and those above them, is an app's and a group's at once."""
    both = {app.id for app in root.all_apps()} & set(_ids_of_groups(root))
    return bool(both) and any(path in both for id in ids for path in _ways(id))


def _ids_of_groups(group: Group) -> Iterator[str]:
    yield group.id
    for each in group.groups:
        yield from _ids_of_groups(each)


def with_app(root: Group, app: App) -> Group:
    """The tree with `app` in place of the one of its id, or new."""
    return with_apps(root, [app])


def with_apps(root: Group, apps: Iterable[App]) -> Group:
    """Return the tree with each app in place of the one of its id, or new; each group is made once."""
    of_groups: dict[str, dict[str, App]] = {}
    for app in apps:
        of_groups.setdefault(parent_of(app.id), {})[app.id] = app
    for id, changed in of_groups.items():
        root = _changed(root, id, partial(_with, changed))
    return root


def _with(changed: Mapping[str, App], group: Group) -> Group:
    apps = {**{each.id: each for each in group.apps}, **changed}
    return replace(group, apps=tuple(apps.values()))


def without_app(root: Group, id: str) -> Group:
    """The tree without the app `id`; its group stays."""

    def change(group: Group) -> Group:
        return replace(group, apps=tuple(each for each in group.apps if each.id != id))

    return _changed(root, parent_of(id), change)


def with_group(root: Group, group: Group) -> Group:
    """The tree with `group` in place of the one of its id, or new."""
    return _changed(root, group.id, lambda _: group)


def without_group(root: Group, id: str) -> Group:
    """The tree without the group `id` and all below it; of the root nothing is left."""
    if id == ROOT:
        return Group(ROOT)

    def change(group: Group) -> Group:
        return replace(group, groups=tuple(each for each in group.groups if each.id != id))

    return _changed(root, parent_of(id), change)


def map_apps(group: Group, change: Callable[[App], App]) -> Group:
    """The group with every app below it changed."""
    return replace(
        group,
        apps=tuple(map(change, group.apps)),
        groups=tuple(map_apps(each, change) for each in group.groups),
    )


def _ways(id: str) -> Iterator[str]:
    """The ids on the way from the root, itself included, as "/a", "/a/b"."""
    path = ""
    for step in steps_of(id):
        path += "/" + step
        yield path


def _changed(group: Group, id: str, change: Callable[[Group], Group]) -> Group:
    if group.id == id:
        return change(group)
    child = next(path for path in _ways(id) if len(steps_of(path)) > len(steps_of(group.id)))
    groups = {each.id: each for each in group.groups}
    groups[child] = _changed(groups.get(child) or Group(child), id, change)
    return replace(group, groups=tuple(groups.values()))
