"""What clients of Marathon ask for besides apps: groups' versions, roles, plugins, statistics."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.requests import MAX_BODY
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.model.jobs.healthcheck import Checked
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.wire.body import MAX_VALUES
from mesos_gpu.wire.hosts.checked import encode_checked
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import CMD, Marathon
from tests.doubles.builders import gpu


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


def test_roles_of_groups_are_kept_without_effect_and_with_a_warning(rig: Marathon) -> None:
    rig.ask("POST", "/v2/groups", 201, json={"id": "/g", "groups": [{"id": "h"}], "enforceRole": False})
    group = rig.ask("GET", "/v2/groups/g")
    assert group["enforceRole"] is False
    assert "enforceRole" not in group["groups"][0]
    assert "enforceRole" not in rig.ask("GET", "/v2/groups")
    before = version(rig, "/g")
    rig.ask("PUT", "/v2/groups/g", json=group | {"version": None})
    assert rig.ask("PATCH", "/v2/groups/g", json={"enforceRole": False}) is None
    assert version(rig, "/g") == before, "what holds anyway is no change"
    warning = {"path": "/enforceRole", "message": "all apps have the scheduler's role"}
    for verb, path, status, id, body in (
        ("PATCH", "/v2/groups/g", 200, "/g", {"enforceRole": True}),
        ("POST", "/v2/groups", 201, "/new", {"id": "/new", "enforceRole": True}),
        ("PUT", "/v2/groups/other", 200, "/other", {"enforceRole": True}),
    ):
        answer = rig.ask(verb, f"{path}?embed=warnings", status, json=body)
        assert answer["warnings"] == [{"id": id, **warning}]
        assert rig.ask("GET", f"/v2/groups{id}")["enforceRole"] is True
    assert rig.ask("PATCH", "/v2/groups/g", json={"enforceRole": False}) is None
    assert rig.ask("GET", "/v2/groups/g")["enforceRole"] is False
    assert "warnings" not in rig.ask("PUT", "/v2/groups/other", json={"enforceRole": True})
    rig.ask("PATCH", "/v2/groups/nobody", 404, json={})
    rig.ask("PATCH", "/v2/groups/g/h", 422, json={})
    rig.ask("PATCH", "/v2/groups/g", 422, json={"enforceRole": "yes"})


def test_result_of_a_check_is_shown_in_tasks(rig: Marathon) -> None:
    for id, check, said, want in (
        ("/tcp", {"tcp": {"portIndex": 0}}, Checked(True), {"tcp": {"succeeded": True}}),
        ("/http", {"http": {"path": "/up"}}, Checked(False, 503), {"http": {"statusCode": 503}}),
        ("/sh", {"exec": {"command": {"shell": "true"}}}, Checked(True, 0), {"command": {"exitCode": 0}}),
        ("/late", {"exec": {"command": {"argv": ["a"]}}}, Checked(False), {"command": {}}),
    ):
        rig.create(id, check=check)
        (task,) = rig.tasks(id, 1)
        assert "checkResult" not in task
        (data,) = [
            json.loads(base64.b64decode(info["data"]))
            for name, call in list(rig.driver.calls) if name == "accept"
            for info in call[1] if info["task_id"]["value"] == task["id"]
        ]  # fmt: skip
        (made,) = json.loads(data["check"])
        assert (made["max_consecutive_failures"], made["port"]) == (
            0, None if "exec" in check else task["ports"][0]
        )  # fmt: skip
        rig.status(task["id"], "TASK_RUNNING", data=encode_checked(said))
        shown = wait_until("its result", lambda id=id: rig.shown(id)["tasks"][0].get("checkResult"))  # type: ignore[misc]
        assert shown == want
        assert rig.shown(id)["tasks"][0]["healthCheckResults"] == []


def test_an_image_without_a_name_is_refused(rig: Marathon) -> None:
    body = rig.create("/a", 422, container={"type": "DOCKER", "docker": {"image": "/x:latest"}})
    assert (body["details"][0]["path"], "begins with '/'" in str(body)) == ("/container/docker/image", True)


def test_an_update_right_after_the_creation_of_an_app_without_instances_is_accepted(rig: Marathon) -> None:
    rig.create("/a", instances=0)
    rig.ask("PUT", "/v2/apps/a", json={"mem": 17})
    rig.ask("PATCH", "/v2/apps/a", json={"instances": 1})
    rig.ask("PUT", "/v2/apps/a", 409, json={"mem": 18})
    rig.tasks("/a", 1)
    rig.ask("PUT", "/v2/apps/a", json={"instances": 1, "mem": 17})
    assert rig.shown("/a")["mem"] == 17


def fails(rig: Marathon, id: str) -> None:
    """Let the only task of an app fail."""
    (task,) = rig.tasks(id, 1)
    rig.settled()
    rig.status(task["id"], "TASK_FAILED")
    wait_until("its failure", lambda: "lastTaskFailure" in rig.shown(id))


def test_versions_and_the_last_failure_end_with_the_app(rig: Marathon) -> None:
    rig.create("/a")
    fails(rig, "/a")
    rig.ask("PATCH", "/v2/apps/a?force=true", json={"env": {"A": "1"}})
    first = rig.ask("GET", "/v2/apps/a/versions")["versions"]
    assert len(first) == 2
    rig.ask("DELETE", "/v2/apps/a")
    rig.settled()
    made = rig.create("/a", instances=0)["version"]
    assert rig.ask("GET", "/v2/apps/a/versions")["versions"] == [made]
    rig.ask("GET", f"/v2/apps/a/versions/{first[0]}", 404)
    rig.ask("PUT", "/v2/apps/a", 404, json={"version": first[0]})
    assert "lastTaskFailure" not in rig.shown("/a")


def test_versions_go_on_when_the_deletion_of_an_app_is_undone(rig: Marathon) -> None:
    rig.create("/a")
    fails(rig, "/a")
    before = rig.ask("GET", "/v2/apps/a/versions")["versions"]
    gone = rig.ask("DELETE", "/v2/apps/a")["deploymentId"]
    rig.ask("DELETE", f"/v2/deployments/{gone}")
    rig.ask("PATCH", "/v2/apps/a?force=true", json={"instances": 2})
    assert rig.ask("GET", "/v2/apps/a/versions")["versions"][1:] == before
    assert "lastTaskFailure" in rig.shown("/a")


def test_versions_of_a_deleted_app_stay_hidden_when_its_trees_are_forgotten(rig: Marathon) -> None:
    rig.create("/a", instances=0)
    rig.settled()
    rig.ask("DELETE", "/v2/apps/a")
    rig.settled()
    made = rig.create("/a", instances=0)["version"]
    rig.create("/b", instances=0)
    for i in range(30):  # more than versions of the tree are remembered
        rig.ask("PATCH", "/v2/apps/b", json={"env": {"A": str(i)}})
    assert rig.ask("GET", "/v2/apps/a/versions")["versions"] == [made]


def test_info_names_the_features_that_clients_ask_for(rig: Marathon) -> None:
    assert rig.ask("GET", "/v2/info")["marathon_config"]["features"] == ["gpu_resources"]


def test_all_problems_of_a_definition_are_in_one_answer(rig: Marathon) -> None:
    parameters = [("init", "true"), ("cap-add", "ALL"), ("device", "/dev/nvidia0"), ("ulimit", "x")]
    sent: dict[str, Any] = {
        "mem": -1,
        "tty": True,
        "user": "root",
        "cpus": "one",
        "healthChecks": [{"protocol": "HTTP", "portIndex": 7}],
        "container": {
            "type": "DOCKER",
            "docker": {
                "image": "Bad Image",
                "privileged": True,
                "parameters": [{"key": key, "value": value} for key, value in parameters],
            },
            "volumes": [{"containerPath": "/a", "hostPath": "../b", "mode": "RO"}],
        },
    }
    told = {each["path"]: each["errors"] for each in rig.create("/a", 422, **sent)["details"]}
    place = "/container/docker"
    assert told.keys() == {
        "/mem", "/tty", "/user", "/cpus", "/healthChecks(0)", f"{place}/image", f"{place}/privileged",
        f"{place}/parameters(1)", f"{place}/parameters(2)", f"{place}/parameters(3)", "/container/volumes(0)",
    }  # fmt: skip
    assert "set gpus: N" in told[f"{place}/parameters(2)"][0]
    sent["container"]["docker"] = {"image": "nginx"}
    sent["container"]["volumes"] = []
    rights: list[dict[str, Any]] = [
        {"cpus": 1},
        {"mem": 16},
        {"tty": False},
        {"user": None},
        {"healthChecks": []},
    ]
    for right in rights:
        left = rig.create("/a", 422, **sent)["details"]
        sent |= right
        assert {each["path"].partition("(")[0] for each in left} >= {f"/{next(iter(right))}"}
    rig.create("/a", **sent)


def test_fields_without_effect_are_warnings_for_those_who_ask(rig: Marathon) -> None:
    sent: dict[str, Any] = {
        "instances": 0,
        "role": "slave_public",
        "acceptedResourceRoles": ["slave_public"],
        "env": {"NVIDIA_VISIBLE_DEVICES": "all"},
        "executorResources": {"cpus": 0.1, "mem": 32, "disk": 10},
    }
    want = ["/acceptedResourceRoles", "/env/NVIDIA_VISIBLE_DEVICES", "/executorResources", "/role"]
    path = "/v2/apps/a?dryRun=true"
    assert sorted(each["path"] for each in rig.ask("PUT", path, json={**CMD, **sent})["warnings"]) == want
    answer = rig.ask("POST", "/v2/apps?embed=warnings", 201, json={"id": "/a", **CMD, **sent})
    assert sorted(each["path"] for each in answer["warnings"]) == want
    assert {each["id"] for each in answer["warnings"]} == {"/a"}
    rig.settled()
    assert rig.ask("PUT", "/v2/apps/a?embed=warnings", json={"env": {}})["warnings"][0]["path"] != "/env"
    assert "warnings" not in rig.create("/b", **sent)


def test_models_of_apps_that_no_node_has_are_warnings(rig: Marathon) -> None:
    sent = {**CMD, "instances": 0, "gpus": 1, "gpu": {"models": ["H200", "L40S"]}}
    assert rig.ask("POST", "/v2/apps?embed=warnings", 201, json={"id": "/early", **sent})["warnings"] == []
    rig.settled()
    rig.node(gpus=(gpu("g0", model="NVIDIA L40"),))
    wanted = {
        "path": "/gpu/models",
        "message": "its instances wait: no node has a GPU of model H200 or L40S; did you mean NVIDIA L40?",
    }
    assert rig.ask("PUT", "/v2/apps/a?dryRun=true", json=sent)["warnings"] == [{"id": "/a", **wanted}]
    group = {"id": "/g", "apps": [{"id": "one", **sent}, {"id": "two", **sent, "gpu": {"models": ["L40"]}}]}
    made = rig.ask("POST", "/v2/groups?embed=warnings", 201, json=group)
    assert made["warnings"] == [{"id": "/g/one", **wanted}]
    rig.settled()
    labelled = {**CMD, "instances": 0, "gpus": 1, "labels": {"MESOS_GPU_MODELS": "H200,L40S"}}
    made = rig.ask("PUT", "/v2/apps/g/two?embed=warnings&partialUpdate=false", json=labelled)
    assert made["warnings"] == [{"id": "/g/two", **wanted}]


def large_groups() -> list[dict[str, Any]]:
    """Return a group with more bytes, and one with more values, than a body of another route may have."""
    note = "x" * 100_000
    groups: dict[str, list[dict[str, Any]]] = {
        "/heavy": [
            {"id": f"a{n}", **CMD, "labels": {"note": note}} for n in range(MAX_BODY // len(note) + 1)
        ],
        "/long": [{"id": f"a{n}", "args": ["x"] * 9_000} for n in range(MAX_VALUES // 9_000 + 1)],
    }
    return [{"id": id, "apps": [app | {"instances": 0} for app in apps]} for id, apps in groups.items()]


@pytest.mark.parametrize("group", large_groups(), ids=["bytes", "values"])
def test_group_may_be_larger_than_other_documents(rig: Marathon, group: dict[str, Any]) -> None:
    rig.ask("POST", "/v2/groups", 201, json=group)
    rig.settled()
    assert len(rig.ask("GET", f"/v2/groups{group['id']}")["apps"]) == len(group["apps"])
    assert rig.call("POST", "/v1/jobs", json=group).status_code in (400, 413)


def test_app_of_a_container_network_runs_in_that_of_the_host_if_the_operator_says_so(rig: Marathon) -> None:
    sent: dict[str, Any] = {
        "container": {
            "type": "DOCKER",
            "docker": {
                "image": "nginx",
                "network": "USER",
                "portMappings": [{"containerPort": 31005}, {"containerPort": 0, "hostPort": 0}],
            },
        }
    }
    assert [each["path"] for each in rig.create("/a", 422, **sent)["details"]] == ["/networks"]
    named: dict[str, Any] = {**sent, "ipAddress": {"networkName": "dcos"}}
    (detail,) = rig.create("/a", 422, **named)["details"]
    assert "--network-as-host dcos" in detail["errors"][0]
    rig.server.stop()
    settings = ApiSettings("http://w", "0.1.0", permits=Permits(host_networks=("dcos",)))
    rig.server = serve(create_app(rig.daemon, settings), "127.0.0.1", 0)
    rig.url = rig.server.url
    assert rig.create("/a", **sent)["networks"] == [{"mode": "container", "name": "dcos"}]
    rig.create("/b", 422, **sent, ipAddress={"networkName": "other"})
    (task,) = rig.tasks("/a", 1)
    assert (task["ports"][0], len(task["ports"])) == (31005, 2)


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
