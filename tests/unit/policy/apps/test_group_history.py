"""Groups as they were: shapes, versions, and when each group changed."""

from dataclasses import replace

import pytest

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import GroupShape, RootVersion
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.policy.apps.rollout.history import apps_of, group_versions, restored, shape_of, versions_of

INNER = Group("/g/in", (App("/g/in/c"),))
TREE = Group(
    "/", (App("/a"),), (Group("/g", (App("/g/b"),), (INNER,), ("/a",), enforce_role=True), Group("/go"))
)
VERSIONS = {id: VersionInfo(at, at - 1, at - 2) for id, at in (("/a", 5.0), ("/g/b", 6.0), ("/g/in/c", 7.0))}
SHAPE = GroupShape(
    "/",
    (("/a", 5.0),),
    (
        GroupShape(
            "/g", (("/g/b", 6.0),), (GroupShape("/g/in", (("/g/in/c", 7.0),)),), ("/a",), enforce_role=True
        ),
        GroupShape("/go"),
    ),
)


def test_shape_of_a_group_is_remembered_and_restored() -> None:
    assert shape_of(TREE, VERSIONS) == SHAPE
    apps = {(app.id, VERSIONS[app.id].version): app for app in TREE.all_apps()}
    assert restored(SHAPE, apps) == TREE
    assert list(apps_of(SHAPE)) == [("/a", 5.0), ("/g/b", 6.0), ("/g/in/c", 7.0)]


def test_versions_of_a_group_are_those_when_it_became_another() -> None:
    other = replace(SHAPE, groups=(replace(SHAPE.groups[0], dependencies=()), SHAPE.groups[1]))
    gone = replace(SHAPE, groups=())
    roots = [RootVersion(float(at), root) for at, root in enumerate((SHAPE, SHAPE, other, gone, gone, SHAPE))]

    def when(id: str) -> list[float]:
        return [at for at, _ in versions_of(roots, id)]

    assert (when("/"), when("/g"), when("/g/in"), when("/go")) == ([0, 2, 3, 5], [0, 2, 5], [0, 5], [0, 5])
    assert (when("/none"), when("/g/none"), when("/g/i")) == ([], [], [])
    assert list(versions_of(roots[:1], "/g/in")) == [(0.0, SHAPE.groups[0].groups[0])]


KNOWN = {"/": 1.0, "/g": 2.0, "/go": 3.0}


@pytest.mark.parametrize(
    ("before", "changed", "wanted"),
    [
        (TREE, set(), {"/": 1.0, "/g": 2.0, "/g/in": 0.0, "/go": 3.0}),
        (TREE, {"/a"}, {"/": 9.0, "/g": 2.0, "/g/in": 0.0, "/go": 3.0}),
        (TREE, {"/g/in/c"}, {"/": 9.0, "/g": 9.0, "/g/in": 9.0, "/go": 3.0}),
        (TREE, {"/g/b"}, {"/": 9.0, "/g": 9.0, "/g/in": 0.0, "/go": 3.0}),
        (replace(TREE, groups=TREE.groups[:1]), set(), {"/": 9.0, "/g": 2.0, "/g/in": 0.0, "/go": 9.0}),
        (replace(TREE, apps=()), set(), {"/": 9.0, "/g": 2.0, "/g/in": 0.0, "/go": 3.0}),
        (Group("/"), set(), {"/": 9.0, "/g": 9.0, "/g/in": 9.0, "/go": 9.0}),
    ],
)
def test_group_changes_with_all_that_is_in_it(
    before: Group, changed: set[str], wanted: dict[str, float]
) -> None:
    assert group_versions(before, TREE, changed, KNOWN, 9.0) == wanted
