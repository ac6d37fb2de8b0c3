"""Groups as they were: which apps, in which versions. Pure."""

from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import GroupShape, RootVersion
from mesos_gpu.model.apps.rollout import VersionInfo


def shape_of(group: Group, versions: Mapping[str, VersionInfo]) -> GroupShape:
    """What is to be remembered of a group; `versions` has all of its apps."""
    return GroupShape(
        group.id,
        tuple((app.id, versions[app.id].version) for app in group.apps),
        tuple(shape_of(each, versions) for each in group.groups),
        group.dependencies,
        group.enforce_role,
    )


def restored(shape: GroupShape, apps: Mapping[tuple[str, float], App]) -> Group:
    """The inverse; `apps` has all of them, by id and version."""
    return Group(
        shape.id,
        tuple(apps[each] for each in shape.apps),
        tuple(restored(each, apps) for each in shape.groups),
        shape.dependencies,
        shape.enforce_role,
    )


def versions_of(roots: Sequence[RootVersion], id: str) -> Iterator[tuple[float, GroupShape]]:
    """When the group `id` became another, and what; oldest first, as `roots` are."""
    before: GroupShape | None = None
    for each in roots:
        shape = _at(each.root, id)
        if shape is not None and shape != before:
            yield each.version, shape
        before = shape


def group_versions(
    before: Group, after: Group, changed: Set[str], known: Mapping[str, float], at: float
) -> dict[str, float]:
    """The time of the last change in each group of `after`, seconds since the epoch, by its id.

    Args:
        before: The tree as it was.
        after: As it is now.
        changed: The apps that have another version now.
        known: What held before.
        at: Of this change.
    """
    changed_at: dict[str, float] = {}

    def look(was: Group | None, now: Group) -> bool:
        inner = {group.id: group for group in was.groups} if was else {}
        others = [look(inner.get(each.id), each) for each in now.groups]
        differs = was != now or any(others) or any(app.id in changed for app in now.apps)
        changed_at[now.id] = at if differs else known.get(now.id, 0.0)
        return differs

    look(before, after)
    return changed_at


def made_after(roots: Sequence[RootVersion], app_id: str) -> float:
    """Return when the tree was last without an app, seconds since the epoch; 0.0 if no tree of `roots` is.

    A deletion that was undone does not count: the versions from before it go on.
    """
    oldest = inf
    for each in reversed(roots):
        version = _version_in(each.root, app_id)
        if version is not None:
            oldest = min(oldest, version)
        elif each.version < oldest:
            return each.version
    return 0.0


def _version_in(shape: GroupShape, app_id: str) -> float | None:
    group = _at(shape, app_id.rpartition("/")[0] or "/")
    return dict(group.apps).get(app_id) if group else None


def apps_of(shape: GroupShape) -> Iterator[tuple[str, float]]:
    """All apps below it, with their versions."""
    yield from shape.apps
    for each in shape.groups:
        yield from apps_of(each)


def _at(shape: GroupShape, id: str) -> GroupShape | None:
    if shape.id == id:
        return shape
    way = (each for each in shape.groups if id == each.id or id.startswith(f"{each.id}/"))
    return next((below for each in way if (below := _at(each, id)) is not None), None)
