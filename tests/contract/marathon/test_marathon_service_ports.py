"""Service ports as balancers for Marathon read them."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.settings import SERVICE_PORTS, ApiSettings
from mesos_gpu.engine.settings import Settings
from mesos_gpu.scheduler.daemon import Daemon
from tests.contract.marathon.test_marathon_api import Marathon
from tests.contract.marathon.test_marathon_events import Ears

HAPROXY = shutil.which("haproxy")
BRIDGED: dict[str, Any] = {
    "networks": [{"mode": "container/bridge"}],
    "container": {
        "type": "DOCKER",
        "docker": {"image": "nginx"},
        "portMappings": [{"containerPort": 80}, {}],
    },
}


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def of(rig: Marathon, id: str) -> list[int]:
    return ports(rig.shown(id))


def ports(app: Any) -> list[int]:
    mappings = app.get("container", {}).get("portMappings")
    if mappings:
        return [each["servicePort"] for each in mappings]
    return [each["port"] for each in app["portDefinitions"]]


def test_every_port_that_is_left_open_gets_one_that_no_other_has(rig: Marathon) -> None:
    first = rig.create("/a")
    assert ports(first) == [10000], "of the definition that an app has if nothing is said"
    rig.create("/b", portDefinitions=[{"port": 0, "name": "http"}, {"port": 10001}, {"port": 0}])
    rig.create("/c", **BRIDGED)
    rig.create("/d", ports=[0, 0])
    rig.create("/none", portDefinitions=[])
    assert [of(rig, id) for id in ("/a", "/b", "/c", "/d", "/none")] == [
        [10000],
        [10002, 10001, 10003],
        [10004, 10005],
        [10006, 10007],
        [],
    ]
    rig.create("/theirs", portDefinitions=[{"port": 10000}])
    assert of(rig, "/theirs") == [10000], "what a client names it gets, whoever else has it"
    rig.create("/host", container={"type": "DOCKER", "docker": {"image": "nginx"}})
    assert of(rig, "/host") == [10008]


def test_service_ports_are_kept_over_updates_and_freed_by_deletes(rig: Marathon) -> None:
    rig.create("/a", portDefinitions=[{"port": 0}, {"port": 0}], instances=0)
    rig.create("/b", instances=0)
    rig.settled()
    for verb, query, body in (
        ("PATCH", "", {"env": {"A": "1"}}),
        ("PUT", "", {"portDefinitions": [{"port": 0}, {"port": 0}]}),
        ("PUT", "?partialUpdate=false", {"cmd": "sleep 9", "instances": 0, "ports": [0, 0]}),
        ("PATCH", "", {"portDefinitions": [{"port": 0, "name": "x"}, {"port": 10001}]}),
    ):
        rig.ask(verb, f"/v2/apps/a{query}", json=body)
        rig.settled()
        assert of(rig, "/a") == [10000, 10001], body
    before = rig.shown("/a")["version"]
    rig.ask("PUT", "/v2/apps/a", json={"portDefinitions": [{"port": 0, "name": "x"}, {"port": 0}]})
    assert rig.shown("/a")["version"] == before, "the same ports are no change"
    rig.ask("PATCH", "/v2/apps/a", json={"portDefinitions": [{"port": 0}, {"port": 0}, {"port": 0}]})
    rig.settled()
    assert (of(rig, "/a"), of(rig, "/b")) == ([10000, 10001, 10003], [10002])
    rig.ask("DELETE", "/v2/apps/a")
    rig.settled()
    rig.create("/c")
    assert of(rig, "/c") == [10000]


def test_service_ports_that_a_rollback_may_need_are_not_given_away(rig: Marathon) -> None:
    rig.create("/a")
    rig.tasks("/a", 1)
    rig.settled()
    gone = rig.ask("DELETE", "/v2/apps/a")["deploymentId"]  # its task is not told to end yet
    rig.create("/b")
    rig.ask("DELETE", f"/v2/deployments/{gone}")
    assert (of(rig, "/a"), of(rig, "/b")) == ([10000], [10001])


def test_groups_and_dry_runs(rig: Marathon) -> None:
    apps = [{"id": "a", "cmd": "sleep 9", "instances": 0}, {"id": "b", "cmd": "sleep 9", "instances": 0}]
    body = {"id": "/g", "apps": apps}
    rig.ask("POST", "/v2/groups", 201, json=body)
    rig.settled()
    assert [ports(app) for app in rig.ask("GET", "/v2/groups/g")["apps"]] == [[10000], [10001]]
    rig.ask("PUT", "/v2/groups/g", json=body)
    assert [of(rig, "/g/a"), of(rig, "/g/b")] == [[10000], [10001]]
    preview = rig.ask("PUT", "/v2/groups/g?dryRun=true&embed=changes", json=body)
    assert preview["changes"] == [], "what a file leaves open is no change"


def test_service_ports_are_in_tasks_environment_and_events(rig: Marathon) -> None:
    with closing(Ears(rig.url)) as ears:
        rig.create("/a")
        (task,) = rig.tasks("/a", 1)
        assert task["servicePorts"] == [10000]
        assert ports(ears.wait("api_post_event")["appDefinition"]) == [10000]
    text = rig.call("GET", "/v2/tasks", headers={"Accept": "text/plain"}).text
    assert text.split("\t")[:2] == ["a", "10000"]


@pytest.mark.skipif(HAPROXY is None, reason="no haproxy: apt-get install haproxy")
def test_a_balancer_listens_at_each_of_them(rig: Marathon, tmp_path: Path) -> None:
    """What marathon-lb makes of the answers: for each service port a frontend at it, with the tasks' own behind."""
    rig.create("/web", instances=2)
    rig.create("/shop/api", portDefinitions=[{"port": 0, "name": "a"}, {"port": 0, "name": "b"}])
    rig.create("/bridged", **BRIDGED)
    rig.create("/none", portDefinitions=[])
    for id, count in (("/web", 2), ("/shop/api", 1), ("/bridged", 1), ("/none", 1)):
        rig.tasks(id, count)
    lines = [
        "global",
        "defaults",
        "  mode tcp",
        "  timeout connect 3s",
        "  timeout client 30s",
        "  timeout server 30s",
    ]
    seen = []
    for app in rig.ask("GET", "/v2/apps?embed=apps.tasks")["apps"]:
        for index, port in enumerate(ports(app)):
            name = f"{app['id'].strip('/').replace('/', '_')}_{port}"
            seen.append(port)
            lines += [f"frontend {name}", f"  bind *:{port}", f"  use_backend {name}", f"backend {name}"]
            for i, task in enumerate(app["tasks"]):
                assert task["servicePorts"] == ports(app)
                lines.append(f"  server s{i} 127.0.0.1:{task['ports'][index]}")
    assert sorted(seen) == list(range(10000, 10005)), "each is there, and none twice"
    (tmp_path / "haproxy.cfg").write_text("\n".join(lines) + "\n")
    checked = subprocess.run(
        [str(HAPROXY), "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True, timeout=30
    )
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_app_is_refused_if_all_service_ports_are_in_use(rig: Marathon) -> None:
    serve_anew(rig, range(9000, 9002))
    assert ports(rig.create("/a", ports=[0, 0])) == [9000, 9001]
    refusal = rig.create("/b", 422)
    assert "9000 to 9001" in str(refusal)


def test_service_ports_outlive_the_scheduler(rig: Marathon, tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    restart(rig, path)
    rig.create("/a", instances=0)
    rig.create("/b", instances=0)
    rig.settled()
    rig.ask("DELETE", "/v2/apps/a")
    rig.settled()
    restart(rig, path)
    rig.create("/c", ports=[0, 0], instances=0)
    assert (of(rig, "/b"), of(rig, "/c")) == ([10001], [10000, 10002])


def restart(rig: Marathon, path: Path) -> None:
    """Another scheduler over what is in the file."""
    rig.daemon.stop()
    store = SqliteStore(path)
    rig.daemon = Daemon(store, store.load(), rig.driver, rig.clock, Settings.of("e", "m"))
    rig.daemon.start()
    rig.clock.set_between_turns(rig.daemon.read)
    serve_anew(rig)


def serve_anew(rig: Marathon, numbers: range = SERVICE_PORTS) -> None:
    rig.server.stop()
    settings = ApiSettings("http://w", "0.1.0", service_ports=numbers)
    rig.server = serve(create_app(rig.daemon, settings), "127.0.0.1", 0)
    rig.url = rig.server.url
