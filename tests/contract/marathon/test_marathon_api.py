"""Marathon's interface as its clients meet it: a real server, a real engine, a driver that only notes."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.tasks.status import Status
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import offer

CMD = {"cmd": "sleep 1000", "cpus": 0.1, "mem": 16}
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Marathon(Rig):
    def ask(self, verb: str, path: str, want: int = 200, **more: Any) -> Any:
        self.clock.time += 1.0  # no two changes are of one moment
        response = self.call(verb, path, **more)
        assert response.status_code == want, (response.status_code, response.text)
        return response.json() if response.content else None

    def create(self, id: str, want: int = 201, **fields: Any) -> Any:
        return self.ask("POST", "/v2/apps", want, json={"id": id, **CMD, **fields})

    def shown(self, id: str) -> Any:
        return self.ask("GET", f"/v2/apps{id}")["app"]

    def offers(self) -> None:
        """Room for everything that waits."""
        self.offered = getattr(self, "offered", 0) + 1
        self.daemon.put(ev.OffersArrived((offer(f"a1-{self.offered}", "a1", gpus=0, cpus=16),)))

    def tasks(self, id: str, count: int) -> list[Any]:
        """The app's tasks once there are so many and all of them run."""

        def running() -> list[Any] | None:
            self.offers()
            tasks = self.ask("GET", f"/v2/apps{id}/tasks")["tasks"]
            for task in tasks:
                if task["state"] == "TASK_STAGING":
                    self.status(task["id"], "TASK_RUNNING")
            return tasks if [task["state"] for task in tasks] == ["TASK_RUNNING"] * count else None

        tasks = wait_until(f"{count} tasks of {id}", running)
        assert tasks is not None
        return list(tasks)

    def ends(self, task_id: str) -> None:
        """The task ends once it was told to."""

        def told() -> bool:
            self.clock.time += 0.3
            return any(name == "kill" and call[0] == task_id for name, call in list(self.driver.calls))

        wait_until(f"the end of {task_id}", told)
        self.status(task_id, "TASK_KILLED")

    def settled(self) -> None:
        """Until no deployment is under way."""
        wait_until("no deployment", lambda: not self.ask("GET", "/v2/deployments"))


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def test_an_app_is_created_and_shown(rig: Marathon) -> None:
    response = rig.call("POST", "/v2/apps", json={"id": "shop/db", **CMD, "instances": 2.0})
    made = response.json()
    assert (response.status_code, response.headers["Location"]) == (201, "/v2/apps/shop/db")
    id = response.headers["Marathon-Deployment-Id"]
    assert (made["id"], made["instances"], made["deployments"]) == ("/shop/db", 2, [{"id": id}])
    assert STAMP.fullmatch(made["version"])
    tasks = rig.tasks("/shop/db", 2)
    assert re.fullmatch(r"shop_db\.instance-[0-9a-f-]{36}\._app\.1", tasks[0]["id"])
    assert (tasks[0]["host"], tasks[0]["slaveId"], tasks[0]["servicePorts"]) == ("a1.example", "a1", [10000])
    assert len(tasks[0]["ports"]) == 1
    assert tasks[0]["version"] == made["version"]
    rig.settled()
    app = rig.shown("/shop/db")
    assert (app["tasksRunning"], app["tasksStaged"], len(app["tasks"]), app["deployments"]) == (2, 0, 2, [])


def test_the_paths_of_real_clients(rig: Marathon) -> None:
    rig.create("/demo/mc", instances=0)
    for path in (
        "/v2/apps//demo/mc",
        "/v2/apps/%2Fdemo%2Fmc",
        "/v2/apps/demo/mc/",
        "/v2/apps/demo/mc?plan-format=light",
    ):
        assert rig.ask("GET", path)["app"]["id"] == "/demo/mc"
    assert [each["id"] for each in rig.ask("GET", "/v2/apps/demo/*")["*"]] == ["/demo/mc"]
    assert set(rig.ask("DELETE", "/v2/apps//demo/mc?force=True")) == {"version", "deploymentId"}
    assert rig.ask("GET", "/v2/apps/demo/mc", 404) == {"message": "App '/demo/mc' does not exist"}


def test_apps_are_filtered_and_embed_what_was_asked_for(rig: Marathon) -> None:
    rig.create("/a", labels={"tier": "web"}, cmd="java -jar x", instances=0)
    rig.create("/b", instances=0)

    def ids(query: str) -> list[str]:
        return [app["id"] for app in rig.ask("GET", f"/v2/apps?{query}")["apps"]]

    assert (ids(""), ids("cmd=JAVA"), ids("id=B")) == (["/a", "/b"], ["/a"], ["/b"])
    assert (ids("label=tier==web"), ids("label=tier!=web"), ids("label=tier in (web,x)")) == (
        ["/a"],
        [],
        ["/a"],
    )
    rig.ask("GET", "/v2/apps?label===", 422)
    plain = rig.ask("GET", "/v2/apps")["apps"][0]
    assert plain["tasksRunning"] == 0
    assert "tasks" not in plain
    assert "lastTaskFailure" not in plain
    assert "tasks" in rig.ask("GET", "/v2/apps?embed=apps.tasks&embed=apps.failures")["apps"][0]
    assert "tasks" in rig.ask("GET", "/v2/apps?embed=tasks")["apps"][0]


def test_app_refusal_has_marathons_shape(rig: Marathon) -> None:
    response = rig.call("POST", "/v2/apps", data=b"{", headers={"Content-Type": "application/json"})
    body = response.json()
    assert (response.status_code, body["message"]) == (400, "Invalid JSON")
    assert isinstance(body["details"], str)
    body = rig.create("/a", 422, cpus="many")
    assert (body["message"], [each["path"] for each in body["details"]]) == ("Invalid JSON", ["/cpus"])
    strategy = {"minimumHealthCapacity": 2, "maximumOverCapacity": 1}
    body = rig.create("/a", 422, mem=-1, gpus=-1, upgradeStrategy=strategy)
    assert body["message"] == "Object is not valid"
    assert {each["path"] for each in body["details"]} >= {"/upgradeStrategy/minimumHealthCapacity", "/mem"}
    rig.create("/a", instances=0)
    assert rig.create("/a", 409) == {"message": "An app with id [/a] already exists."}
    body = rig.create("/a/b", 422, instances=0)
    assert body["details"][0]["errors"] == ["Groups and Applications may not have the same identifier."]
    assert rig.ask("GET", "/v2/nothing", 404) == {"message": "HTTP 404 Not Found"}
    assert rig.ask("POST", "/v2/apps/a", 405, json={}) == {"message": "HTTP 405 Method Not Allowed"}
    assert rig.call("POST", "/v2/apps/a", json={}).headers["Content-Type"] == "application/json"


def test_app_refusal_lists_all_unsupported_fields(rig: Marathon) -> None:
    docker = {"type": "DOCKER", "docker": {"image": "Bad Image", "privileged": True}}
    body = rig.create("/a", 422, user="root", tty=True, container=docker, gpus=1)
    assert body["message"] == "Object is not valid"
    paths = [each["path"] for each in body["details"]]
    assert paths == ["/container/docker/privileged", "/tty", "/user", "/container/docker/image"]
    body = rig.ask(
        "PUT", "/v2/groups/g", 422, json={"apps": [{"id": "x", **CMD}, {"id": "y", **CMD, "tty": True}]}
    )
    assert [each["path"] for each in body["details"]] == ["/apps(1)/tty"]
    body = rig.ask("PUT", "/v2/apps", 422, json=[{"id": "x", **CMD}, {"id": "y", **CMD, "tty": True}])
    assert [each["path"] for each in body["details"]] == ["(1)/tty"]
    for instances in (20_001, 2**31 - 1):
        assert rig.create("/a", 422, instances=instances)["details"][0]["path"] == "/instances"
    assert rig.ask("GET", "/v2/apps")["apps"] == []


def test_an_update_keeps_what_was_not_sent_and_can_be_rolled_back(rig: Marathon) -> None:
    first = rig.create("/a", instances=0, labels={"x": "1"})["version"]
    rig.settled()
    rig.ask("PUT", "/v2/apps/a", json={"cmd": "true"})
    rig.ask("PATCH", "/v2/apps/a", json={"mem": 32}, params={"force": "true"})
    app = rig.shown("/a")
    assert (app["cmd"], app["mem"], app["labels"]) == ("true", 32, {"x": "1"})
    versions = rig.ask("GET", "/v2/apps/a/versions")["versions"]
    assert len(versions) == 3
    assert versions[-1] == first
    assert versions == sorted(versions, reverse=True)
    assert rig.ask("GET", f"/v2/apps/a/versions/{first}")["cmd"] == "sleep 1000"
    rig.ask("GET", "/v2/apps/a/versions/2001-01-01T00:00:00.000Z", 404)
    rig.ask("GET", "/v2/apps/a/versions/yesterday", 422)
    rig.settled()
    rig.ask("PUT", "/v2/apps/a", json={"id": "/a", "version": first})
    assert rig.shown("/a")["cmd"] == "sleep 1000"
    rig.settled()
    rig.ask("PUT", "/v2/apps/a?partialUpdate=false", json={"cmd": "false", "instances": 0})
    assert rig.shown("/a")["labels"] == {}
    rig.ask("PATCH", "/v2/apps/new", 404, json=CMD)
    response = rig.call("PUT", "/v2/apps/new", json={**CMD, "instances": 0})
    assert (response.status_code, response.headers["Location"]) == (201, "/v2/apps/new")
    rig.ask("PATCH", "/v2/apps", 404, json=[{"id": "a", "mem": 64}, {"id": "nobody"}])
    answer = rig.ask(
        "PUT", "/v2/apps?force=true", json=[{"id": "a", "mem": 64}, {"id": "c", **CMD, "instances": 0}]
    )
    assert set(answer) == {"version", "deploymentId"}
    assert rig.shown("/a")["mem"] == 64


def test_a_deployment_locks_its_apps_and_can_be_undone(rig: Marathon) -> None:
    rig.create("/a", instances=0)
    rig.settled()
    made = rig.ask("PUT", "/v2/apps/a", json={"instances": 1})["deploymentId"]
    (deployment,) = rig.ask("GET", "/v2/deployments")
    assert (
        deployment["id"],
        deployment["affectedApps"],
        deployment["currentStep"],
        deployment["totalSteps"],
    ) == (
        made,
        ["/a"],
        1,
        1,
    )
    assert deployment["steps"] == [{"actions": [{"action": "ScaleApplication", "app": "/a"}]}]
    assert "waiting" not in deployment
    assert rig.ask("GET", "/v2/deployments?embed=waiting")[0]["waiting"]["/a"]
    body = rig.ask("PUT", "/v2/apps/a", 409, json={"instances": 2})
    assert body["deployments"] == [{"id": made}]
    assert "?force=true" in body["message"]
    assert rig.shown("/a")["deployments"] == [{"id": made}]
    undone = rig.call("DELETE", f"/v2/deployments/{made}")
    assert (undone.status_code, set(undone.json())) == (200, {"version", "deploymentId"})
    assert rig.shown("/a")["instances"] == 0
    rig.settled()
    made = rig.ask("PUT", "/v2/apps/a", json={"instances": 1})["deploymentId"]
    response = rig.call("DELETE", f"/v2/deployments/{made}?force=true")
    assert (response.status_code, response.content) == (202, b"")
    body = rig.ask("DELETE", f"/v2/deployments/{made}", 404)
    assert body == {"message": f"DeploymentPlan {made} does not exist"}


def test_an_id_that_climbs_above_the_root_is_refused(rig: Marathon) -> None:
    app = {"cmd": "sleep 1", "instances": 0}
    for verb, path, body in (
        ("POST", "/v2/apps", {"id": "/../../x", **app}),
        ("PUT", "/v2/apps", [{"id": "../x", **app}]),
        ("PUT", "/v2/apps//..%2f..%2fx", app),
        ("PUT", "/v2/apps//%2e%2e/x", app),
        ("POST", "/v2/apps", {"id": "/y", "dependencies": ["../x"], **app}),
        ("POST", "/v2/groups", {"id": "/../g", "apps": [{"id": "x", **app}]}),
        ("PUT", "/v2/groups/g", {"id": "../../h", "apps": []}),
        ("PUT", "/v2/groups/g", {"id": "/g", "apps": [{"id": "../../x", **app}]}),
    ):
        answer = rig.ask(verb, path, 422, json=body)
        assert "is above the root" in str(answer), answer
    assert rig.ask("GET", "/v2/apps")["apps"] == []
    rig.create("/shop/../z", instances=0)
    assert rig.shown("/z")["id"] == "/z", "one that stays inside is as Marathon reads it"


def test_a_kill_that_is_sent_again_makes_no_app_smaller(rig: Marathon) -> None:
    rig.create("/a", instances=4)
    one, two, *rest = rig.tasks("/a", 4)
    rig.settled()
    for _ in range(3):
        rig.ask("DELETE", f"/v2/apps//a/tasks/{one['id']}?scale=true&force=true")
    assert rig.shown("/a")["instances"] == 3
    both = {"ids": [one["id"], two["id"], two["id"]]}
    with ThreadPoolExecutor(4) as clients:
        for _ in range(4):
            clients.submit(rig.ask, "POST", "/v2/tasks/delete?scale=true&force=true", json=both)
    assert rig.shown("/a")["instances"] == 2
    for each in (one, two):
        rig.ends(each["id"])
    assert {task["id"] for task in rig.tasks("/a", 2)} == {each["id"] for each in rest}
    rig.settled()
    for _ in range(2):
        rig.ask("DELETE", "/v2/apps//a/tasks?scale=true&force=true")
    assert rig.shown("/a")["instances"] == 0


def test_tasks_are_killed_and_replaced_or_not(rig: Marathon) -> None:
    rig.create("/a", instances=2)
    one, two = rig.tasks("/a", 2)
    rig.settled()
    assert len(rig.ask("GET", "/v2/tasks?status=running")["tasks"]) == 2
    assert rig.ask("GET", "/v2/tasks?status[]=staging")["tasks"] == []
    killed = rig.ask("DELETE", f"/v2/apps/a/tasks/{one['id']}")["task"]
    assert killed["id"] == one["id"]
    rig.ends(one["id"])
    left = {task["id"] for task in rig.tasks("/a", 2)}
    assert two["id"] in left
    assert one["id"] not in left
    answer = rig.ask("DELETE", f"/v2/apps/a/tasks/{two['id']}?scale=true")
    assert set(answer) == {"version", "deploymentId"}
    assert rig.shown("/a")["instances"] == 1
    rig.ends(two["id"])
    (last,) = rig.tasks("/a", 1)
    rig.settled()
    assert last["id"] in left - {two["id"]}
    assert rig.ask("DELETE", "/v2/apps/a/tasks?host=other")["tasks"] == []
    assert len(rig.ask("POST", "/v2/tasks/delete", json={"ids": [last["id"]]})["tasks"]) == 1
    rig.ask("POST", "/v2/tasks/delete", 400, json={"ids": ["nothing"]})
    rig.ask("DELETE", "/v2/apps/a/tasks?scale=true&wipe=true", 400)
    rig.ask("DELETE", f"/v2/apps/a/tasks/{two['id']}", 404)


def test_health_and_the_last_failure_are_shown(rig: Marathon) -> None:
    rig.create("/a", healthChecks=[{"protocol": "COMMAND", "command": {"value": "true"}}])
    (task,) = rig.tasks("/a", 1)
    assert task["healthCheckResults"] == []
    for healthy in (True, False):
        status = Status(TaskId(task["id"]), "TASK_RUNNING", AgentId("a1"), uuid="u", healthy=healthy)
        rig.daemon.put(ev.StatusArrived(status))
        app = rig.shown("/a")
        assert (app["tasksHealthy"], app["tasksUnhealthy"]) == (int(healthy), int(not healthy))
        assert app["tasks"][0]["healthCheckResults"][0]["alive"] is healthy
    assert "lastTaskFailure" not in rig.shown("/a")
    rig.status(task["id"], "TASK_FAILED")
    failure = rig.shown("/a")["lastTaskFailure"]
    assert (failure["taskId"], failure["state"], failure["host"]) == (task["id"], "TASK_FAILED", "a1.example")
    assert STAMP.fullmatch(failure["timestamp"])
    assert "lastTaskFailure" in rig.ask("GET", "/v2/apps?embed=apps.lastTaskFailure")["apps"][0]


def test_the_last_failure_is_an_unhealthy_kill_in_marathons_words(rig: Marathon) -> None:
    rig.create("/a", healthChecks=[{"protocol": "TCP", "port": 1}])
    (task,) = rig.tasks("/a", 1)
    rig.daemon.put(ev.HealthFound(TaskId(task["id"]), False, "TCP check failed 4 times: refused"))
    rig.status(task["id"], "TASK_KILLED")
    failure = rig.shown("/a")["lastTaskFailure"]
    assert (failure["taskId"], failure["state"]) == (task["id"], "TASK_KILLED")
    why = "Task was killed since health check failed. Reason: TCP check failed 4 times: refused"
    assert failure["message"] == why


def test_a_restart_replaces_every_instance(rig: Marathon) -> None:
    rig.create("/a")
    (old,) = rig.tasks("/a", 1)
    rig.settled()
    rig.ask("POST", "/v2/apps/a/restart")
    rig.ask("POST", "/v2/apps/a/restart", 409)
    (new,) = (task for task in rig.tasks("/a", 2) if task["id"] != old["id"])

    rig.ends(old["id"])
    rig.settled()
    assert [task["id"] for task in rig.shown("/a")["tasks"]] == [new["id"]]
    rig.ask("POST", "/v2/apps/b/restart", 404)


def test_a_dry_run_says_what_would_change(rig: Marathon) -> None:
    rig.create("/a", instances=0)
    before = rig.ask("GET", "/v2/groups")
    body = [{"id": "/a", "mem": 17}, {"id": "/b", **CMD}]
    dry = rig.ask("PUT", "/v2/apps?dryRun=true", json=body)
    (a, b) = dry["changes"]
    assert (a["id"], a["before"]["mem"], a["after"]["mem"]) == ("/a", 16, 17)
    assert (b["id"], b["before"], b["after"]["instances"]) == ("/b", None, 1)
    assert [step["actions"][0]["action"] for step in dry["steps"]] == ["StartApplication", "ScaleApplication"]
    rig.ask("PATCH", "/v2/apps/b?dryRun=true", 404, json={"mem": 1})
    same = rig.ask("PUT", "/v2/apps/a?dryRun=true", json={"mem": 16})
    assert same == {"steps": [], "changes": [], "warnings": []}
    rig.ask("PUT", "/v2/apps/a?dryRun=true", 422, json={"mem": -1})
    rig.ask("PUT", "/v2/apps/a?dryRun=true", 422, json={"instances": 20_001})
    dry = rig.ask("PUT", "/v2/groups/?dryRun=true&embed=changes", json={"apps": []})
    assert [each["after"] for each in dry["changes"]] == [None]
    assert rig.ask("GET", "/v2/groups") == before


def test_versions_of_groups(rig: Marathon) -> None:
    rig.ask("GET", "/v2/groups/shop/versions", 404)
    rig.ask("PUT", "/v2/groups/shop", json={"apps": [{"id": "web", **CMD, "instances": 0}]})
    rig.settled()
    rig.ask("POST", "/v2/apps", 201, json={"id": "/other", **CMD, "instances": 0})
    rig.settled()
    more = {"apps": [{"id": "web", **CMD, "instances": 0, "mem": 64}, {"id": "db", **CMD, "instances": 0}]}
    rig.ask("PUT", "/v2/groups/shop", json=more)
    rig.settled()
    latest, first = rig.ask("GET", "/v2/groups/shop/versions")
    assert latest > first
    assert len(rig.ask("GET", "/v2/groups/versions")) == 3
    was = rig.ask("GET", f"/v2/groups/shop/versions/{first}")
    assert [(app["id"], app["mem"]) for app in was["apps"]] == [("/shop/web", 16)]
    assert [group["id"] for group in rig.ask("GET", f"/v2/groups/versions/{first}")["groups"]] == ["/shop"]
    rig.ask("GET", "/v2/groups/shop/versions/2015-02-03T12:30:00.000Z", 404)
    rig.ask("PUT", "/v2/groups/shop", 404, json={"version": "2015-02-03T12:30:00.000Z"})

    back = rig.ask("PUT", "/v2/groups/shop?dryRun=true", json={"version": first})
    assert {each["action"] for step in back["steps"] for each in step["actions"]} == {
        "StopApplication",
        "ScaleApplication",
    }
    rig.ask("PUT", "/v2/groups/shop", json={"version": first})
    rig.settled()
    assert [(app["id"], app["mem"]) for app in rig.ask("GET", "/v2/groups/shop")["apps"]] == [
        ("/shop/web", 16)
    ]
    assert rig.ask("GET", "/v2/apps/other")
    assert len(rig.ask("GET", "/v2/groups/shop/versions")) == 3


def test_a_group_is_made_changed_and_deleted(rig: Marathon) -> None:
    apps = [{"id": "db", **CMD, "instances": 0}, {"id": "web", **CMD, "instances": 0, "dependencies": ["db"]}]
    assert rig.ask("GET", "/v2/groups")["apps"] == []
    dry = rig.ask("PUT", "/v2/groups/shop?dryRun=true", json={"apps": apps})
    assert [step["actions"][0]["app"] for step in dry["steps"]] == ["/shop/db", "/shop/db", "/shop/web"]
    response = rig.call("POST", "/v2/groups", json={"id": "shop", "apps": apps})
    assert (response.status_code, response.headers["Location"]) == (201, "/v2/groups/shop")
    assert set(response.json()) == {"version", "deploymentId"}
    rig.settled()
    body = rig.ask("POST", "/v2/groups", 409, json={"id": "shop"})
    assert body == {"message": "Group /shop is already created. Use PUT to change this group."}
    root = rig.ask("GET", "/v2/groups")
    assert [group["id"] for group in root["groups"]] == ["/shop"]
    assert STAMP.fullmatch(root["version"])
    shop = rig.ask("GET", "/v2/groups/shop?embed=group.apps&embed=group.apps.counts")
    assert [app["tasksRunning"] for app in shop["apps"]] == [0, 0]
    assert "groups" not in shop
    rig.ask("PUT", "/v2/groups/shop", 422, json={"apps": [{**apps[0], "dependencies": ["web"]}, apps[1]]})
    rig.ask("PUT", "/v2/groups", json={"id": "shop", "apps": apps[:1]})
    assert [app["id"] for app in rig.ask("GET", "/v2/apps")["apps"]] == ["/shop/db"]
    rig.settled()
    rig.ask("PUT", "/v2/groups/shop", json={"scaleBy": 2})
    rig.ask("PUT", "/v2/groups/none", 404, json={"scaleBy": 2})
    rig.ask("DELETE", "/v2/groups/shop")
    assert rig.ask("GET", "/v2/groups/shop", 404) == {"message": "Group '/shop' does not exist"}


def test_a_group_is_no_app(rig: Marathon) -> None:
    rig.create("/a", instances=0)
    assert "already exists" in rig.ask("POST", "/v2/groups", 409, json={"id": "a"})["message"]
    rig.ask("PUT", "/v2/groups/a", 422, json={"apps": []})
    rig.ask("PUT", "/v2/groups/a/b", 422, json={"apps": [{"id": "c", **CMD}]})
    rig.ask("PUT", "/v2/groups" + "/x" * 2000, 422, json={"apps": []})
    rig.ask("PUT", "/v2/groups", 422, json={"scaleBy": 1e308, "id": 7})


def test_changes_at_once_are_all_made(rig: Marathon) -> None:
    ids = [f"/many/a{i}" for i in range(24)]

    def create(id: str) -> int:
        body = {"id": id, **CMD, "instances": 0}
        return requests.post(f"{rig.url}/v2/apps", json=body, timeout=60).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(create, ids)) == {201}
    assert {app["id"] for app in rig.ask("GET", "/v2/apps")["apps"]} == set(ids)


def test_the_queue_says_why_an_app_waits(rig: Marathon) -> None:
    rig.create("/a", gpus=1, instances=2)
    rig.offers()

    def waits() -> Any:
        return rig.ask("GET", "/v2/queue")["queue"]

    (entry,) = wait_until("a queue", waits)
    assert (entry["app"]["id"], entry["count"], entry["delay"]["overdue"]) == ("/a", 2, True)
    assert entry["processedOffersSummary"]["why"]
    assert entry["processedOffersSummary"]["rejectSummaryLastOffers"]


def test_ping_info_and_leader_are_answered_and_pods_are_not(rig: Marathon) -> None:
    pong = rig.call("GET", "/ping", headers={"Accept": "application/json"})
    assert pong.text == '"pong"'
    assert rig.call("GET", "/ping", headers={"Accept": "*/*"}).text == "pong"
    assert rig.ask("GET", "/v2/leader") == {"leader": "w"}
    info = rig.ask("GET", "/v2/info")
    assert (info["frameworkId"], info["marathon_config"]["master"]) == ("fw", "http://master")
    for verb, path in (("GET", "/v2/pods"), ("POST", "/v2/pods"), ("GET", "/v2/pods/a::status")):
        assert "pods are not supported" in rig.ask(verb, path, 404)["message"]
    assert rig.call("HEAD", "/v2/pods").status_code == 404
    assert rig.call("HEAD", "/v2/apps").status_code == 200
