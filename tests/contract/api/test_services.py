"""Services as clients meet them: REST, command line, and the file for a load balancer."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.cli.apps import service_export
from mesos_gpu.cli.apps.splits import Services
from mesos_gpu.cli.client import Client
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import TaskId
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import Marathon

CHECKED: dict[str, Any] = {"healthChecks": [{"protocol": "HTTP", "portIndex": 0}]}


class Rig(Marathon):
    def run(self, *words: str | Path, code: int = 0) -> Result:
        done = CliRunner().invoke(
            main, ["--url", self.url, "service", *map(str, words)], prog_name="mesos-gpu"
        )
        assert done.exit_code == code, done.output
        return done

    def put(self, name: str, want: int = 200, **body: Any) -> Any:
        return self.ask("PUT", f"/v1/services/{name}", want, json=body)

    def serving(self, name: str = "web") -> dict[str, int]:
        service = self.ask("GET", f"/v1/services/{name}")
        return {app["id"]: app["serving"] for app in service["apps"]}


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture
def web(rig: Rig) -> Rig:
    """Two apps with a task each, and a service over both."""
    for id in ("/a", "/b"):
        rig.create(id)
        rig.tasks(id, 1)
    rig.put("web", apps={"/a": 90, "/b": 10}, port=8000, hosts=["shop.example"])
    return rig


def test_a_service_is_made_shown_and_forgotten(web: Rig) -> None:
    service = web.ask("GET", "/v1/services/web")
    assert service["apps"] == [
        {"id": "/a", "weight": 90, "share": 0.9, "exists": True, "instances": 1, "serving": 1},
        {"id": "/b", "weight": 10, "share": 0.1, "exists": True, "instances": 1, "serving": 1},
    ]
    assert [(each["app"], each["host"]) for each in service["servers"]] == [("/a", "a1"), ("/b", "a1")]
    assert service["asked"] == {
        "apps": {"/a": 90, "/b": 10},
        "port_index": 0,
        "port": 8000,
        "hosts": ["shop.example"],
        "mode": None,
    }
    assert (service["port"], service["mode"], service["hosts"]) == (8000, "http", ["shop.example"])
    assert web.put("web", apps={"b": 1})["asked"]["apps"] == {"/b": 1}
    assert web.ask("GET", "/v1/services/web")["port"] == 10001, "PUT replaces all at once: /b's own"
    assert [each["name"] for each in web.ask("GET", "/v1/services")["services"]] == ["web"]
    assert web.ask("DELETE", "/v1/services/web")["name"] == "web"
    assert web.ask("GET", "/v1/services") == {"services": []}
    for verb in ("GET", "DELETE"):
        assert web.ask(verb, "/v1/services/web", 404)["error"]["message"] == "there is no service web"


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "/apps"),
    ({"apps": {}}, "/apps"),
    ({"apps": ["/a"]}, "/apps"),
    ({"apps": {"/a": 0}}, "/apps"),
    ({"apps": {"/a": -1}}, "/apps/~1a"),
    ({"apps": {"/a": 1001}}, "/apps/~1a"),
    ({"apps": {"/a": 0.5}}, "/apps/~1a"),
    ({"apps": {"/a": True}}, "/apps/~1a"),
    ({"apps": {"/A!": 1}}, "/apps/~1A!"),
    ({"apps": {"/": 1}}, "/apps/~1"),
    ({"apps": {"/a": 1, "a": 1}}, "/apps/a"),
    ({"apps": {"/nowhere": 1}}, "/apps/~1nowhere"),
    ({"apps": {"/a": 1}, "port": 0}, "/port"),
    ({"apps": {"/a": 1}, "port_index": -1}, "/port_index"),
    ({"apps": {"/a": 1}, "hosts": "x"}, "/hosts"),
    ({"apps": {"/a": 1}, "hosts": ["x y"]}, "/hosts/0"),
    ({"apps": {"/a": 1}, "hosts": [7]}, "/hosts/0"),
    ({"apps": {"/a": 1}, "mode": "udp"}, "/mode"),
    ({"apps": {"/a": 1}, "weights": {}}, "/weights"),
)


def test_service_refusal_names_what_is_wrong(rig: Rig) -> None:
    rig.create("/a", instances=0)
    for body, path in WRONG:
        error = rig.put("web", 422, **body)["error"]
        assert [problem["path"] for problem in error["problems"]] == [path], body
    assert rig.ask("GET", "/v1/services") == {"services": []}


def test_bad_names_bodies_and_formats_are_refused(rig: Rig) -> None:
    rig.create("/a", instances=0)
    assert rig.put("Web", 422, apps={"/a": 1})["error"]["problems"][0]["path"] == "/name"
    headers = {"Content-Type": "application/json"}
    assert rig.ask("PUT", "/v1/services/web", 400, data=b"{", headers=headers)["error"]["code"] == "bad-json"
    for query in ("format=xml", "http_port=0"):
        rig.ask("GET", f"/v1/services?{query}", 422)
    rig.ask("POST", "/v1/services/web", 405, json={})


def test_service_has_only_healthy_tasks_that_may_stay(rig: Rig) -> None:
    rig.create("/a", **CHECKED, instances=2)
    rig.put("web", apps={"/a": 1})
    one, two = (task["id"] for task in rig.tasks("/a", 2))
    assert rig.serving() == {"/a": 0}, "nothing is known of their health"
    for task in (one, two):
        rig.daemon.put(ev.HealthFound(TaskId(task), True))
    wait_until("both serve", lambda: rig.serving() == {"/a": 2})
    rig.daemon.put(ev.HealthFound(TaskId(one), False))
    wait_until("one serves", lambda: rig.serving() == {"/a": 1})
    rig.ask("DELETE", f"/v2/apps/a/tasks/{two}")
    assert rig.serving() == {"/a": 0}, "it was told to end"


def test_an_app_that_was_deleted_counts_nothing(web: Rig) -> None:
    (task,) = web.tasks("/b", 1)
    web.ask("DELETE", "/v2/apps/b")
    web.ends(task["id"])
    web.settled()
    service = web.ask("GET", "/v1/services/web")
    assert [(app["exists"], app["share"]) for app in service["apps"]] == [(True, 1.0), (False, 0.0)]
    assert "does not exist" in web.run("show", "web").output


def test_load_balancers_get_their_own_formats(web: Rig) -> None:
    answer = web.call("GET", "/v1/services?format=haproxy")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert "frontend web from mesos_gpu\n  bind *:8000\n" in answer.text
    one = web.call("GET", "/v1/services/web?format=haproxy").text
    assert one.startswith("backend web ")
    assert one in answer.text
    traefik = web.ask("GET", "/v1/services?format=traefik")
    assert traefik["http"]["routers"]["web"]["rule"] == "Host(`shop.example`)"
    assert traefik == web.ask("GET", "/v1/services/web?format=traefik")


def test_labels_are_followed_if_asked_for(rig: Rig) -> None:
    rig.create("/a", labels={"HAPROXY_GROUP": "external", "HAPROXY_0_PORT": "9000"})
    rig.tasks("/a", 1)
    assert rig.ask("GET", "/v1/services") == {"services": []}
    (service,) = rig.ask("GET", "/v1/services?group=external")["services"]
    assert (service["name"], service["port"], service["asked"]) == ("a_9000", 9000, None)
    assert "a_9000" in rig.run("list", "--group", "*").output


def test_metrics_show_the_weights_and_who_serves(web: Rig) -> None:
    web.create("/c", instances=1)
    web.put("web", apps={"/a": 3, "/c": 1})
    lines = web.call("GET", "/metrics/prometheus").text.splitlines()
    assert 'mesos_gpu_service_weight{service="web",app="/a"} 3' in lines
    assert 'mesos_gpu_service_serving{service="web",app="/a"} 1' in lines
    assert 'mesos_gpu_service_serving{service="web",app="/c"} 0' in lines


# --- the command line


def test_the_commands_make_change_list_and_show_services(web: Rig) -> None:
    assert "no service" in web.run("show", "api", code=66).output
    made = json.loads(web.run("split", "api", "/a=1", "b=3", "--port", "9000", "--json").output)
    assert (made["asked"]["apps"], made["port"]) == ({"/a": 1, "/b": 3}, 9000)
    again = json.loads(web.run("split", "api", "/b=1", "--json").output)
    assert (again["asked"]["apps"], again["port"]) == ({"/b": 1}, 9000)
    listed = web.run("list").output
    assert [line.split()[0] for line in listed.splitlines()] == ["NAME", "api", "web"]
    shown = web.run("show", "web").output
    assert "90.0%" in shown
    assert "shop.example" in shown
    assert json.loads(web.run("unsplit", "api", "--json").output)["name"] == "api"
    assert web.run("unsplit", "api", code=66).output
    assert "there is no app /nowhere" in web.run("split", "web", "/nowhere=1", code=65).output
    for wrong in ("/a", "/a=x", "/A!=1"):
        web.run("split", "web", wrong, code=2)
    web.run("split", "Web", "/a=1", code=2)


def test_a_service_is_shifted_step_by_step(web: Rig) -> None:
    words = ("shift", "web", "--from", "/a", "--to", "/b", "--step", "40", "--interval", "0.01s")
    assert web.run(*words).output.splitlines() == ["/a=50 /b=50", "/a=10 /b=90", "/a=0 /b=100"]
    assert web.ask("GET", "/v1/services/web")["asked"]["port"] == 8000
    assert "/a has no weight" in web.run(*words, code=73).output
    web.run("shift", "web", "--from", "/a", "--to", "/a", code=2)


def test_a_shift_stops_when_the_new_app_does_not_serve(web: Rig) -> None:
    (task,) = web.tasks("/b", 1)
    web.ask("DELETE", f"/v2/apps/b/tasks/{task['id']}")
    done = web.run("shift", "web", "--from", "/a", "--to", "/b", "--interval", "0.01s", code=1)
    assert "0 of 1 instances of /b serve" in done.output
    assert "split web /a=100 /b=0" in done.output
    assert web.ask("GET", "/v1/services/web")["asked"]["apps"] == {"/a": 90, "/b": 10}


def test_a_file_is_written_only_when_something_has_changed(web: Rig, tmp_path: Path) -> None:
    out, told = tmp_path / "lb.cfg", tmp_path / "told"
    words = ("export", "--format", "haproxy", "--out", out, "--exec", f"echo x >>{told}")
    web.run(*words)
    first = out.stat()
    assert "bind *:8000" in out.read_text()
    assert first.st_mode & 0o777 == 0o644
    web.run(*words)
    assert (out.stat().st_ino, told.read_text()) == (first.st_ino, "x\n")
    web.put("web", apps={"/a": 1})
    out.chmod(0o600)
    web.run(*words)
    assert (out.stat().st_mode & 0o777, told.read_text()) == (0o600, "x\nx\n")
    assert (
        "exit code of 'exit 3': 3"
        in web.run("export", "--format", "json", "--out", tmp_path / "x", "--exec", "exit 3", code=1).output
    )
    assert json.loads(web.run("export", "web", "--format", "json").output)["name"] == "web"
    web.run("export", "--format", "json", "--follow", code=2)


class Enough(Exception):
    """The end of a loop that has none."""


def test_following_outlives_the_scheduler_and_commands_that_fail(
    web: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, told, fit = tmp_path / "lb.json", tmp_path / "told", tmp_path / "fit"
    turns = count(1)

    def between() -> None:
        turn = next(turns)
        if turn == 1:
            assert (out.exists(), told.exists()) == (True, False), "the command has failed"
            fit.touch()
        elif turn == 2:
            assert told.read_text() == "x\n", "and is run again"
            web.server.stop()
        elif turn == 3:
            assert json.loads(out.read_text())["services"][0]["name"] == "web"
            raise Enough

    with Client(web.url) as client:
        services = Services(client)
        with pytest.raises(Enough):
            service_export._follow(
                lambda: services.text("json", None, (), 80), out, f"test -e {fit} && echo x >>{told}", between
            )
    said = capsys.readouterr().err.splitlines()
    assert "exit code" in said[0]
    assert said[1] == "mesos-gpu: the service export works again"
    assert "does not answer" in said[2]


def test_following_what_was_never_there_ends_at_once(web: Rig, tmp_path: Path) -> None:
    words = ("export", "nothing", "--format", "json", "--out", tmp_path / "x", "--follow")
    assert "there is no service nothing" in web.run(*words, code=66).output
