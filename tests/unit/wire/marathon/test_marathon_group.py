"""Groups: ids within them, all problems at once with their places, and what stays of a group that is updated."""

import json
from typing import Any

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.wire.marathon.group import GroupRollback, Scale, decode_group, group_of, group_to_json
from mesos_gpu.wire.marathon.problems import Problems


def group(**sent: Any) -> Group:
    definition = group_of({"id": "/g", **sent})
    assert isinstance(definition, Group), definition
    return definition


def faults(**sent: Any) -> dict[str, list[str]]:
    problems = group_of({"id": "/g", **sent})
    assert isinstance(problems, Problems), problems
    return {each["path"]: each["errors"] for each in problems.as_json()["details"]}


def one(id: str) -> dict[str, Any]:
    return {"id": id, "cmd": "sleep 1"}


def test_marathon_group_ids_are_resolved_down_the_tree() -> None:
    tree = group(
        dependencies=["../base"],
        apps=[{**one("web"), "dependencies": ["db/main", "/other"]}],
        groups=[{"id": "db", "apps": [one("main"), one("/g/db/copy")]}],
    )
    assert tree.dependencies == ("/base",)
    assert [app.id for app in tree.all_apps()] == ["/g/web", "/g/db/main", "/g/db/copy"]
    assert tree.apps[0].dependencies == ("/g/db/main", "/other")
    assert group_of(json.loads(json.dumps(group_to_json(tree)))) == tree


def test_marathon_group_problems_are_reported_with_their_places() -> None:
    by_place = faults(
        apps=[{**one("a"), "cpus": 0}, one("/elsewhere"), one("x"), one("x")],
        groups=[{"id": "/h"}, {"id": "b", "apps": [{"id": "B"}], "enforceRole": True}, {"id": "x"}],
        pods=[{}],
    )
    assert set(by_place) == {
        "/",
        "/pods(0)",
        "/apps(0)/cpus",
        "/apps(1)/id",
        "/apps(3)/id",
        "/groups(0)/id",
        "/groups(1)/apps(0)",
        "/groups(1)/apps(0)/id",
        "/groups(1)/enforceRole",
    }


def test_marathon_group_with_wrong_types_is_invalid_json() -> None:
    problems = group_of({"id": "/g", "apps": [3, {"cmd": 3}], "groups": [{}]})
    assert isinstance(problems, Problems)
    assert problems.message == "Invalid JSON"
    paths = [each["path"] for each in problems.as_json()["details"]]
    assert paths == ["/apps(0)", "/apps(1)/id", "/apps(1)/cmd", "/groups(0)/id"]
    assert isinstance(group_of([]), Problems)
    assert isinstance(group_of({}), Problems)
    bad = decode_group(b"[")
    assert isinstance(bad, Problems)
    assert bad.status == 400


def test_marathon_group_update_keeps_fields_that_were_not_sent() -> None:
    old = group(apps=[one("a"), one("b")], groups=[{"id": "h", "apps": [one("c")]}], dependencies=["/x"])
    update = {"groups": [{"id": "h", "dependencies": ["/y"]}, {"id": "new"}]}
    updated = group_of(update, id_from_path="/g", current=old)
    assert isinstance(updated, Group)
    assert (updated.apps, updated.dependencies) == (old.apps, old.dependencies)
    assert updated.groups == (
        Group("/g/h", old.groups[0].apps, dependencies=("/y",)),
        Group("/g/new"),
    )
    assert group_of({"apps": []}, id_from_path="/g", current=old) == Group("/g", (), old.groups, ("/x",))


def test_marathon_group_may_be_scaled_or_rolled_back() -> None:
    assert group_of({"scaleBy": 2}, id_from_path="/g") == Scale(2.0)
    assert group_of({"version": "2015-02-11T09:31:50.021Z"}) == GroupRollback("2015-02-11T09:31:50.021Z")
    assert isinstance(group_of({"scaleBy": 2, "apps": []}), Problems)
    assert isinstance(group_of({"scaleBy": -1}), Problems)


def test_marathon_groups_outside_of_the_tree_are_not_entered() -> None:
    deep: dict[str, Any] = {"id": "."}
    for _ in range(400):
        deep = {"id": ".", "groups": [deep]}
    assert "/groups(0)/id" in faults(groups=[deep])
    long: dict[str, Any] = {"id": "a"}
    for _ in range(100):
        long = {"id": "a", "groups": [long]}
    assert len(faults(groups=[long])) == 1


def test_marathon_root_group_has_apps_of_its_own() -> None:
    root = decode_group(b'{"apps": [{"id": "a", "cmd": "true"}]}', id_from_path="/")
    assert isinstance(root, Group)
    assert isinstance(root.apps[0], App)
    assert (root.id, root.apps[0].id) == ("/", "/a")
