"""History of groups: apps and versions of earlier trees. Pure."""

from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import GroupShape, RootVersion
from mesos_gpu.model.apps.rollout import VersionInfo


def shape_of(group: Group, versions: Mapping[str, VersionInfo]) -> GroupShape:
    """Return the record of a group with the versions of its apps; `versions` has all of them."""
    return GroupShape(
        group.id,
        tuple((app.id, versions[app.id].version) for app in group.apps),
        tuple(shape_of(child, versions) for child in group.groups),
        group.dependencies,
        group.enforce_role,
    )


def restored(shape: GroupShape, apps: Mapping[tuple[str, float], App]) -> Group:
    """Rebuild a group from its record; `apps` has all of its apps, by id and version."""
    return Group(
        shape.id,
        tuple(apps[item] for item in shape.apps),
        tuple(restored(item, apps) for item in shape.groups),
        shape.dependencies,
        shape.enforce_role,
    )


def versions_of(roots: Sequence[RootVersion], id: str) -> Iterator[tuple[float, GroupShape]]:
    """Yield each version of the group `id` with its time, oldest first, as `roots` are ordered."""
    before: GroupShape | None = None
    for root in roots:
        shape = _at(root.root, id)
        if shape is not None and shape != before:
            yield root.version, shape
        before = shape


def group_versions(
    before: Group, after: Group, changed: Set[str], known: Mapping[str, float], at: float
) -> dict[str, float]:
    """Return the time of the last change in each group of `after`, seconds since the epoch, by its id.

    Args:
        before: Tree before the change.
        after: Tree after the change.
        changed: Apps that have a new version.
        known: Times of the last changes before.
        at: Time of this change.
    """
    changed_at: dict[str, float] = {}

    def look(was: Group | None, now: Group) -> bool:
        """Record the time of a group and its subgroups; return whether it changed."""
        inner = {group.id: group for group in was.groups} if was else {}
        inner_changes = [look(inner.get(child.id), child) for child in now.groups]
        differs = was != now or any(inner_changes) or any(app.id in changed for app in now.apps)
        changed_at[now.id] = at if differs else known.get(now.id, 0.0)
        return differs

    look(before, after)
    return changed_at


def made_after(roots: Sequence[RootVersion], app_id: str) -> float:
    """Return when the tree was last without an app, seconds since the epoch; 0.0 if no tree of `roots` is.

    A deletion that was undone does not count: the versions from before it go on.
    """
    oldest = inf
    for root in reversed(roots):
        version = _version_in(root.root, app_id)
        if version is not None:
            oldest = min(oldest, version)
        elif root.version < oldest:
            return root.version
    return 0.0


def _version_in(shape: GroupShape, app_id: str) -> float | None:
    """Return the version of an app in a tree; None if the tree lacks it."""
    group = _at(shape, app_id.rpartition("/")[0] or "/")
    return dict(group.apps).get(app_id) if group else None


def apps_of(shape: GroupShape) -> Iterator[tuple[str, float]]:
    """Yield all apps below a group, with their versions."""
    yield from shape.apps
    for child in shape.groups:
        yield from apps_of(child)


def _at(shape: GroupShape, id: str) -> GroupShape | None:
    """Return the group `id` within a tree; None if it lacks the group."""
    if shape.id == id:
        return shape
    way = (child for child in shape.groups if id == child.id or id.startswith(f"{child.id}/"))
    return next((below for child in way if (below := _at(child, id)) is not None), None)
