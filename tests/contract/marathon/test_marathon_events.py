"""Marathon's events as their listeners hear them: a real server, a real engine, a driver that only notes."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from mesos_gpu.api.marathon import events as listening
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.healthcheck import CheckHealth
from mesos_gpu.model.tasks.status import Status
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import STAMP, Marathon

Event = dict[str, Any]


class Ears:
    """Listens on a thread until `close`."""

    def __init__(self, url: str, query: str = "") -> None:
        self.heard: list[Event] = []
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        self.connection.request("GET", f"/v2/events{query}", headers={"Accept": "text/event-stream"})
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.headers["Content-Type"].startswith("text/event-stream")
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()
        if not query:
            self.wait("event_stream_attached")

    def _listen(self) -> None:
        kind = ""
        with contextlib.suppress(OSError, http.client.HTTPException):  # it was closed
            for line in self.response:
                name, _, text = line.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = text
                elif name == "data":
                    event = json.loads(text)
                    assert event["eventType"] == kind
                    assert STAMP.fullmatch(event["timestamp"])
                    self.heard.append(event)

    def all(self, kind: str) -> list[Event]:
        return [event for event in list(self.heard) if event["eventType"] == kind]

    def wait(self, kind: str, count: int = 1) -> Event:
        wait_until(f"{count} times {kind}", lambda: len(self.all(kind)) >= count)
        return self.all(kind)[count - 1]

    def close(self) -> None:
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(60)
        self.connection.close()


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


@pytest.fixture
def ears(rig: Marathon) -> Iterator[Ears]:
    with closing(Ears(rig.url)) as ears:
        yield ears


def kinds(events: list[Event]) -> list[str]:
    return [event["eventType"] for event in events]


def test_an_apps_life(rig: Marathon, ears: Ears) -> None:
    made = rig.create("/shop/web", labels={"a": "b"})
    (task,) = rig.tasks("/shop/web", 1)
    rig.settled()
    posted = ears.wait("api_post_event")
    assert (posted["clientIp"], posted["uri"]) == ("127.0.0.1", "/v2/apps")
    assert (posted["appDefinition"]["id"], posted["appDefinition"]["version"]) == (
        "/shop/web",
        made["version"],
    )
    assert ears.wait("group_change_success")["groupId"] == "/shop"
    begun = ears.wait("deployment_info")
    assert begun["currentStep"] == {"actions": [{"action": "StartApplication", "app": "/shop/web"}]}
    assert ears.wait("deployment_info", 2)["currentStep"]["actions"][0]["action"] == "ScaleApplication"
    (id,) = made["deployments"]
    done = ears.wait("deployment_success")
    assert (done["id"], done["plan"]["id"], len(done["plan"]["steps"])) == (id["id"], id["id"], 2)
    assert set(done["plan"]) == {"id", "version", "steps", "original", "target"}
    assert len(ears.all("deployment_step_success")) == 2

    instance = task["id"].removesuffix("._app.1")
    conditions = [each["condition"] for each in ears.all("instance_changed_event")]
    assert conditions == ["Scheduled", "Provisioned", "Running"]
    changed = ears.all("instance_changed_event")
    assert [each["agentId"] for each in changed] == [None, "a1", "a1"]
    assert (changed[2]["instanceId"], changed[2]["runSpecId"], changed[2]["runSpecVersion"]) == (
        instance,
        "/shop/web",
        made["version"],
    )
    (status,) = ears.all("status_update_event")
    assert status | {"timestamp": ""} == {
        "appId": "/shop/web",
        "taskId": task["id"],
        "taskStatus": "TASK_RUNNING",
        "message": "",
        "slaveId": "a1",
        "host": "a1.example",
        "ports": task["ports"],
        "ipAddresses": [],
        "version": made["version"],
        "eventType": "status_update_event",
        "timestamp": "",
    }

    rig.ask("DELETE", "/v2/apps/shop/web")
    rig.ends(task["id"])
    rig.settled()
    assert ears.wait("app_terminated_event")["appId"] == "/shop/web"
    ears.wait("deployment_success", 2)
    assert [each["condition"] for each in ears.all("instance_changed_event")][3:] == ["Killing", "Killed"]
    assert ears.all("status_update_event")[1]["taskStatus"] == "TASK_KILLED"
    told = kinds(ears.heard)
    assert told.index("app_terminated_event") < len(told) - told[::-1].index("deployment_success")


def test_marathon_events_at_once_are_in_marathons_order(rig: Marathon, ears: Ears) -> None:
    rig.create("/checked", healthChecks=[{"protocol": "TCP"}], instances=0)
    rig.settled()
    rig.create("/web")
    rig.tasks("/web", 1)
    rig.settled()
    ears.wait("deployment_success", 2)
    told = kinds(ears.heard)
    first = [told.index(kind) for kind in ("deployment_info", "add_health_check_event", "group_change_success",
                                           "api_post_event")]  # fmt: skip
    assert first == sorted(first), told
    update = told.index("status_update_event")
    assert told[update : update + 2] == ["status_update_event", "instance_changed_event"]
    undone = rig.ask("PATCH", "/v2/apps/web", json={"cmd": "sleep 9"})["deploymentId"]
    rig.ask("PATCH", "/v2/apps/web?force=true", json={"cmd": "sleep 8"})
    assert ears.wait("deployment_failed")["id"] == undone
    latest = [(event["eventType"], event["plan"]["id"]) for event in ears.heard if "plan" in event][-3:]
    assert [kind for kind, _ in latest] == ["deployment_step_failure", "deployment_failed", "deployment_info"]


def test_a_deployment_that_fails_and_one_that_is_refused(rig: Marathon, ears: Ears) -> None:
    rig.create("/a/x", gpus=1)
    rig.ask("PUT", "/v2/apps/a/x", 409, json={"instances": 2})
    failed = ears.wait("group_change_failed")
    assert (failed["groupId"], "lock" in failed["reason"]) == ("/a", True)
    (deployment,) = wait_until(
        "it scales", lambda: [d for d in rig.ask("GET", "/v2/deployments") if d["currentStep"] == 2]
    )
    rig.ask("DELETE", f"/v2/deployments/{deployment['id']}?force=true", 202)
    assert ears.wait("deployment_failed")["id"] == deployment["id"]
    step = ears.wait("deployment_step_failure")["currentStep"]
    assert step == {"actions": [{"action": "ScaleApplication", "app": "/a/x"}]}
    assert len(ears.all("deployment_step_success")) == 1


def test_events_tell_of_health_checks_and_of_a_kill_by_them(rig: Marathon, ears: Ears) -> None:
    check = {"protocol": "TCP", "port": 1, "maxConsecutiveFailures": 1}
    version = rig.create("/a", healthChecks=[check])["version"]
    added = ears.wait("add_health_check_event")
    assert (added["appId"], added["version"], added["healthCheck"]["protocol"]) == ("/a", version, "TCP")
    (task,) = rig.tasks("/a", 1)
    for healthy, failures, kill in ((True, 0, ""), (False, 1, ""), (False, 2, "TCP check failed 2 times")):
        results = (CheckHealth(consecutive_failures=failures, last_success_s=1.0),)
        rig.daemon.put(ev.HealthFound(TaskId(task["id"]), healthy, kill, results))
    instance = task["id"].removesuffix("._app.1")
    killed = ears.wait("unhealthy_instance_kill_event")
    assert (killed["taskId"], killed["instanceId"], killed["reason"]) == (
        task["id"],
        instance,
        "TCP check failed 2 times",
    )
    assert (killed["host"], killed["slaveId"], killed["version"]) == ("a1.example", "a1", version)
    assert [each["alive"] for each in ears.all("health_status_changed_event")] == [True, False]
    assert [each["healthy"] for each in ears.all("instance_health_changed_event")] == [True, False]
    failed = ears.all("failed_health_check_event")
    assert [(each["taskId"], each["healthCheck"]["port"]) for each in failed] == [(task["id"], 1)] * 2
    rig.ask("PUT", "/v2/apps/a?force=true", json={"healthChecks": []})
    assert ears.wait("remove_health_check_event")["appId"] == "/a"


def test_health_by_the_executor(rig: Marathon, ears: Ears) -> None:
    rig.create("/a", healthChecks=[{"protocol": "COMMAND", "command": {"value": "true"}}])
    (task,) = rig.tasks("/a", 1)
    for healthy in (True, False, False):
        status = Status(TaskId(task["id"]), "TASK_RUNNING", AgentId("a1"), uuid="u", healthy=healthy)
        rig.daemon.put(ev.StatusArrived(status))
    assert ears.wait("failed_health_check_event")["healthCheck"]["command"] == {"value": "true"}
    assert [each["alive"] for each in ears.all("health_status_changed_event")] == [True, False]


def test_the_scheduler_and_strangers(rig: Marathon, ears: Ears) -> None:
    rig.daemon.put(ev.Disconnected())
    assert set(ears.wait("scheduler_disconnected_event")) == {"eventType", "timestamp"}
    rig.daemon.put(ev.Registered("fw", "http://master2"))
    assert ears.wait("scheduler_reregistered_event")["master"] == "http://master2"
    rig.daemon.put(ev.Registered("other", "http://master"))
    wait_until(
        "the other framework",
        lambda: "other" in [each["frameworkId"] for each in ears.all("scheduler_registered_event")],
    )
    stranger = "shop_db.instance-00000000-0000-0000-0000-000000000001._app.1"
    for task in ("a job.1", stranger):
        rig.status(task, "TASK_LOST")
    gone = ears.wait("unknown_instance_terminated_event")
    assert (gone["instanceId"], gone["runSpecId"], gone["condition"]) == (
        stranger.removesuffix("._app.1"),
        "/shop/db",
        "Dropped",
    )


def test_filters_and_plans_with_all_of_their_apps(rig: Marathon) -> None:
    query = "?event_type=deployment_info&event_type=deployment_success"
    with closing(Ears(rig.url, query)) as some, closing(Ears(rig.url, "?plan-format=light")) as light:
        rig.create("/a", instances=0, labels={"a": "b"})
        rig.settled()
        plan = some.wait("deployment_success")["plan"]
        assert (plan["original"]["apps"], plan["target"]["apps"][0]["labels"]) == ([], {"a": "b"})
        assert set(kinds(some.heard)) == {"deployment_info", "deployment_success"}
        assert set(light.wait("deployment_success")["plan"]) == {"id", "version", "steps"}
    assert rig.call("GET", "/v2/events").status_code == 405
    assert rig.call("HEAD", "/v2/events", headers={"Accept": "text/event-stream"}).status_code == 200


def _of_apps(ears: Ears) -> list[Event]:
    """What was heard since the apps were made: who listens first may hear the scheduler register."""
    others = ("event_stream", "scheduler_registered")
    return [event for event in ears.heard if not event["eventType"].startswith(others)]


def test_marathon_event_listeners_hear_everything_in_order(rig: Marathon) -> None:
    with ThreadPoolExecutor(25) as pool:
        listeners = list(pool.map(Ears, [rig.url] * 20))
    watcher = Ears(rig.url)
    try:
        for i in range(10):
            rig.create(f"/a{i}", instances=0)
        rig.settled()
        watcher.wait("deployment_success", 10)
        for ears in listeners:
            ears.wait("deployment_success", 10)
            assert _of_apps(ears) == _of_apps(watcher)
    finally:
        with ThreadPoolExecutor(25) as pool:
            list(pool.map(Ears.close, [*listeners, watcher]))
    events = rig.app.state.events
    wait_until("all have gone", lambda: not events.heard)
    assert not rig.daemon._listeners._of_apps


def test_marathon_event_listener_that_does_not_read_is_cut_off(
    rig: Marathon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_WAITING", 1 << 16)
    query = "?event_type=event_stream_attached&event_type=event_stream_detached"
    with closing(Ears(rig.url, query)) as ears, socket.socket() as deaf:
        ears.wait("event_stream_attached")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", rig.server.port))
        head = b"Host: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        deaf.sendall(b"GET /v2/events?plan-format=full HTTP/1.1\r\n" + head)
        ears.wait("event_stream_attached", 2)
        rig.create(
            "/big", env={"A": "x" * 120_000}, labels={f"l{i}": "x" * 100_000 for i in range(2)}, instances=0
        )

        def gone() -> bool:
            rig.ask("POST", "/v2/apps/big/restart?force=true")
            return bool(ears.all("event_stream_detached"))

        wait_until("it is cut off", gone)
        deaf.settimeout(10)
        end = b""
        while not end.endswith(b"0\r\n\r\n"):
            chunk = deaf.recv(1 << 20)
            assert chunk
            end = end[-5:] + chunk


def test_a_change_of_nothing_is_done_at_once(rig: Marathon, ears: Ears) -> None:
    rig.create("/a", instances=0)
    rig.settled()
    id = rig.ask("PUT", "/v2/apps/a", json={"instances": 0})["deploymentId"]
    done = ears.wait("deployment_success", 2)
    assert (done["id"], done["plan"]["steps"]) == (id, [])


def test_listeners_are_let_go_when_the_server_stops(rig: Marathon, ears: Ears) -> None:
    rig.server.stop()
    ears.thread.join(60)
    assert not ears.thread.is_alive()
