"""What clients of Marathon ask for besides apps: groups' versions, roles, plugins, statistics."""

from collections.abc import Iterator

import pytest

from tests.contract.marathon.test_marathon_api import Marathon


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def version(rig: Marathon, group: str) -> str:
    return str(rig.ask("GET", f"/v2/groups{group}")["version"])


def test_the_version_of_a_group_never_goes_back(rig: Marathon) -> None:
    seen = [version(rig, "/")]
    rig.ask("POST", "/v2/groups", 201, json={"id": "/g"})
    seen.append(version(rig, "/g"))
    assert version(rig, "/") == seen[-1]
    rig.create("/g/a", instances=0)
    rig.settled()
    seen.append(version(rig, "/g"))
    rig.create("/g/b", instances=0)
    rig.settled()
    seen.append(version(rig, "/g"))
    rig.create("/other", instances=0)
    rig.settled()
    assert version(rig, "/g") == seen[-1] < version(rig, "/"), "only the root has changed"
    for app in ("/g/b", "/g/a"):
        rig.ask("DELETE", f"/v2/apps{app}")
        rig.settled()
        seen.append(version(rig, "/g"))
    for i in range(30):  # more than versions of the tree are remembered
        rig.ask("PATCH", "/v2/apps/other", json={"env": {"A": str(i)}})
        rig.settled()
    assert version(rig, "/g") == seen[-1]
    seen.append(version(rig, "/"))
    rig.ask("DELETE", "/v2/apps/other")
    rig.settled()
    seen.append(version(rig, "/"))
    assert seen == sorted(set(seen))


def test_roles_of_groups_are_not_enforced_and_that_is_said(rig: Marathon) -> None:
    rig.ask("POST", "/v2/groups", 201, json={"id": "/g", "groups": [{"id": "h"}], "enforceRole": False})
    group = rig.ask("GET", "/v2/groups/g")
    assert group["enforceRole"] is False
    assert "enforceRole" not in group["groups"][0]
    assert "enforceRole" not in rig.ask("GET", "/v2/groups")
    before = version(rig, "/g")
    rig.ask("PUT", "/v2/groups/g", json=group | {"version": None})
    assert rig.ask("PATCH", "/v2/groups/g", json={"enforceRole": False}) is None
    assert version(rig, "/g") == before, "what holds anyway is no change"
    for verb, path, body in (
        ("PATCH", "/v2/groups/g", {"enforceRole": True}),
        ("PUT", "/v2/groups/g", {"enforceRole": True}),
        ("POST", "/v2/groups", {"id": "/g", "enforceRole": True}),  # and not 409: what is wrong comes first
        ("POST", "/v2/groups", {"id": "/new", "enforceRole": True}),
    ):
        (detail,) = rig.ask(verb, path, 422, json=body)["details"]
        assert detail["path"] == "/enforceRole"
        assert "--role" in detail["errors"][0]
    (detail,) = rig.ask("PUT", "/v2/groups", 422, json={"groups": [{"id": "a", "enforceRole": True}]})[
        "details"
    ]
    assert detail["path"] == "/groups(0)/enforceRole"
    rig.ask("PATCH", "/v2/groups/nobody", 404, json={})
    rig.ask("PATCH", "/v2/groups/g/h", 422, json={})
    rig.ask("PATCH", "/v2/groups/g", 422, json={"enforceRole": "yes"})


def test_a_check_without_effect_and_an_image_without_a_name_are_refused(rig: Marathon) -> None:
    body = rig.create("/a", 422, check={"tcp": {"portIndex": 0}})
    assert (body["details"][0]["path"], "healthChecks" in str(body)) == ("/check", True)
    body = rig.create("/a", 422, container={"type": "DOCKER", "docker": {"image": "/x:latest"}})
    assert (body["details"][0]["path"], "begins with '/'" in str(body)) == ("/container/docker/image", True)


def test_marathon_leader_plugins_and_page_are_answered(rig: Marathon) -> None:
    for verb, path in (
        ("GET", "/ping"),
        ("GET", "/v2/apps"),
        ("GET", "/v2/apps/no"),
        ("DELETE", "/v2/leader"),
    ):
        assert rig.call(verb, path).headers["X-Marathon-Leader"] == "http://w"
    assert rig.ask("GET", "/v2/plugins") == {"plugins": []}
    for path in ("/ui", "/ui/", "/ui/apps"):
        answer = rig.call("GET", path, allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (302, "/")


def test_statistics_of_tasks_by_version(rig: Marathon) -> None:
    rig.create("/a", instances=2)
    (first, _) = rig.tasks("/a", 2)
    rig.settled()
    stats = rig.ask("GET", "/v2/apps?embed=apps.taskStats")["apps"][0]["taskStats"]
    counts = {"staged": 0, "running": 2, "healthy": 0, "unhealthy": 0}
    assert set(stats) == {"startedAfterLastScaling", "withLatestConfig", "totalSummary"}
    assert all(each["stats"]["counts"] == counts for each in stats.values())
    assert stats["totalSummary"]["stats"]["lifeTime"]["averageSeconds"] > 0
    rig.ask("PATCH", "/v2/apps/a", json={"cmd": "sleep 9"})
    stats = rig.ask("GET", "/v2/apps/a?embed=app.taskStats")["app"]["taskStats"]
    assert stats["withOutdatedConfig"]["stats"]["counts"]["running"] == 2
    assert "taskStats" not in rig.shown("/a")
    assert first["id"]
