"""Services: from splits and labels to what HAProxy and Traefik read."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mesos_gpu.model.apps.app import App, PortDefinition
from mesos_gpu.model.apps.split import Backend, Login, Mode, Server, TrafficSplit
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.policy.apps.backends import Address, Serving, labelled, named, without_clashes
from mesos_gpu.wire.export import haproxy, traefik

HAPROXY = shutil.which("haproxy")


def tasks(**numbers: int) -> Serving:
    """So many tasks of each app serve, at ports 1000 and 2000 on."""
    addresses: Mapping[str, Sequence[Address]] = {
        f"/{app}": [(f"{app}.{n}", "10.0.0.1", (1000 + n, 2000 + n)) for n in range(number)]
        for app, number in numbers.items()
    }
    return lambda id: addresses.get(id, ())


def app(id: str, labels: Mapping[str, str] | None = None, instances: int = 1, ports: int = 1) -> App:
    definitions = tuple(PortDefinition(0, f"p{n}") for n in range(ports))
    return App(id, cmd="x", labels=labels or {}, instances=instances, port_definitions=definitions)


def apps(*definitions: App) -> Mapping[str, App]:
    return {each.id: each for each in definitions}


# --- named services


def test_traffic_split_weighs_the_serving_tasks() -> None:
    backend = named(TrafficSplit("web", {"/a": 90, "/b": 10}), apps(app("/a"), app("/b")), tasks(a=2, b=1))
    assert [(each.task_id, each.app_id, each.port) for each in backend.servers] == [
        ("a.0", "/a", 1000),
        ("a.1", "/a", 1001),
        ("b.0", "/b", 1000),
    ]
    total = sum(each.weight for each in backend.servers)
    assert backend.servers[2].weight / total == pytest.approx(0.1, abs=0.005)
    assert (backend.shares, backend.mode, backend.port) == ({"/a": 90, "/b": 10}, Mode.HTTP, None)


def test_traffic_split_gives_the_weight_of_idle_apps_to_the_others() -> None:
    for serving in (tasks(a=1), tasks(a=1, b=0)):
        backend = named(TrafficSplit("web", {"/a": 1, "/b": 99}), apps(app("/a"), app("/b")), serving)
        assert ([each.app_id for each in backend.servers], backend.shares) == (["/a"], {"/a": 1})
    gone = named(TrafficSplit("web", {"/a": 1, "/b": 99}), apps(app("/a")), tasks(a=1, b=1))
    assert gone.shares == {"/a": 1}
    none = named(TrafficSplit("web", {"/a": 1, "/b": 0}), apps(app("/a"), app("/b")), tasks(b=3))
    assert none.servers == ()


def test_traffic_split_uses_a_second_port_if_there_is_one() -> None:
    backend = named(TrafficSplit("web", {"/a": 1}, port_index=1), apps(app("/a")), tasks(a=1))
    assert [each.port for each in backend.servers] == [2000]
    assert named(TrafficSplit("web", {"/a": 1}, port_index=2), apps(app("/a")), tasks(a=1)).servers == ()


def test_service_labels_complete_a_traffic_split() -> None:
    labels = {
        "HAPROXY_0_PORT": "8000",
        "HAPROXY_0_VHOST": "Shop.example, www.example",
        "HAPROXY_0_MODE": "HTTP",
        "HAPROXY_0_BALANCE": "leastconn",
        "HAPROXY_0_STICKY": "true",
        "HAPROXY_1_PORT": "9",
        "HAPROXY_GROUP": "external",
    }
    backend = named(TrafficSplit("web", {"/a": 1, "/b": 1}), apps(app("/a"), app("/b", labels)), tasks(a=1))
    assert (backend.port, backend.hosts) == (8000, ("shop.example", "www.example"))
    assert (backend.mode, backend.balance, backend.sticky, backend.problems) == (
        Mode.HTTP,
        "leastconn",
        True,
        (),
    )
    own = named(
        TrafficSplit("web", {"/b": 1}, 0, 80, ("x.example",), Mode.TCP), apps(app("/b", labels)), tasks()
    )
    assert (own.port, own.hosts, own.mode) == (80, ("x.example",), Mode.TCP)


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "80\n  bind *:22"),
        ("PORT", "9" * 5000),
        ("VHOST", "a.example }\nbackend evil"),
        ("VHOST", "*"),
        ("MODE", "tcp\n  acl x"),
        ("BALANCE", "roundrobin\n  server x 1.2.3.4"),
        ("STICKY", "perhaps"),
    ],
)
def test_service_label_of_another_form_is_omitted_and_named(label: str, value: str) -> None:
    bad = app("/a", {f"HAPROXY_0_{label}": value})
    backend = named(TrafficSplit("web", {"/a": 1}), apps(bad), tasks(a=1))
    (problem,) = backend.problems
    assert problem.startswith(f"/a: HAPROXY_0_{label} ")
    plain = named(TrafficSplit("web", {"/a": 1}), apps(app("/a")), tasks(a=1))
    comment, _, rest = haproxy.render([backend], http_port=80).partition("\n")
    assert comment.startswith("# /a: HAPROXY_0_")
    assert rest.strip() == haproxy.render([plain], http_port=80).strip()


def test_service_label_without_effect_is_named() -> None:
    labels = {"HAPROXY_0_BACKEND_WEIGHT": "3"}
    backend = named(TrafficSplit("web", {"/a": 1}), apps(app("/a", labels)), tasks())
    assert backend.problems == ("/a: HAPROXY_0_BACKEND_WEIGHT has no effect here",)


# --- apps by their labels


def test_apps_of_a_group_are_exposed_as_marathon_lb_does() -> None:
    labels = {"HAPROXY_GROUP": "external, other", "HAPROXY_1_GROUP": "internal", "HAPROXY_1_PORT": "9001"}
    checked = App(
        "/shop/web",
        cmd="x",
        labels=labels,
        port_definitions=(PortDefinition(10001, "a"), PortDefinition(0, "b")),
        health_checks=(HealthCheck(port_index=0),),
    )
    serving: Serving = lambda _: [("t", "h", (31000, 31001))]  # noqa: E731 - one line says it
    (first,) = labelled([checked, app("/no")], serving, ["external"])
    assert (first.name, first.port, first.mode) == ("shop_web_10001", 10001, Mode.HTTP)
    assert [(each.port, each.weight) for each in first.servers] == [(31000, 256)]
    (second,) = labelled([checked], serving, ["internal"])
    assert (second.name, second.mode, second.servers[0].port) == ("shop_web_9001", Mode.TCP, 31001)
    assert len(labelled([checked, app("/no")], serving, ["*"])) == 2  # /no says no port


def colour(id: str, started: str, instances: int, target: int | str = 4) -> App:
    labels = {
        "HAPROXY_GROUP": "x",
        "HAPROXY_0_PORT": "80",
        "HAPROXY_DEPLOYMENT_GROUP": "shop",
        "HAPROXY_DEPLOYMENT_STARTED_AT": started,
        "HAPROXY_DEPLOYMENT_TARGET_INSTANCES": str(target),
    }
    return app(id, labels, instances)


@pytest.mark.parametrize(
    ("blue", "green", "asked", "want"),
    [
        (4, 0, 0, (4, 0)),  # green does not serve yet
        (4, 1, 1, (3, 1)),  # one for one
        (4, 3, 4, (1, 3)),
        (4, 4, 4, (0, 4)),
        (4, 6, 6, (0, 6)),
        (0, 4, 4, (0, 4)),
    ],
)
def test_service_colours_share_traffic_during_a_deployment(
    blue: int, green: int, asked: int, want: tuple[int, int]
) -> None:
    members = [colour("/green", "2026-02", asked), colour("/blue", "2026-01", 4)]
    (backend,) = labelled(members, tasks(blue=blue, green=green), ["x"])
    assert (backend.name, backend.port) == ("shop_80", 80)
    served = [each.app_id for each in backend.servers]
    assert (served.count("/blue"), served.count("/green")) == want
    assert len({each.weight for each in backend.servers}) == 1


@pytest.mark.parametrize("target", ["9" * 5000, "\N{SUPERSCRIPT TWO}", "-1", ""])
def test_service_export_survives_a_malformed_number_of_instances(target: str) -> None:
    """The export has the apps of all users."""
    (backend,) = labelled([colour("/green", "2026-02", 1, target)], tasks(green=1), ["x"])
    assert [each.app_id for each in backend.servers] == ["/green"]


def test_service_port_or_host_serves_one_only() -> None:
    backends = without_clashes(
        [
            Backend("a", port=8000, hosts=("h",)),
            Backend("a", port=1),
            Backend("b", port=8000, hosts=("h", "i")),
            Backend("c", port=80),
        ],
        80,
    )
    assert [(each.name, each.port, each.hosts) for each in backends] == [
        ("a", 8000, ("h",)),
        ("b", None, ("i",)),
        ("c", None, ()),
    ]
    assert backends[1].problems == (
        "8000 is already used by a, and left out",
        "h is already used by a, and left out",
    )
    assert len(backends[2].problems) == 1


# --- for load balancers

WEB = Backend(
    "web",
    port=8000,
    hosts=("shop.example", "www.example"),
    sticky=True,
    servers=(Server("a.1", "/a", "10.0.0.1", 31000, 252), Server("b.1", "/b", "::1", 31001, 28)),
    shares={"/a": 90, "/b": 10},
)
RAW = Backend("raw", Mode.TCP, 9000, servers=(Server("c.1", "/c", "node1", 31000, 256),), shares={"/c": 1})
NOBODY = Backend("nobody", port=8001)


def test_haproxy_export_has_one_backend_or_all() -> None:
    assert haproxy.render([WEB], http_port=80, sections=False) == (
        "backend web from mesos_gpu\n"
        "  mode http\n"
        "  balance roundrobin\n"
        "  option forwardfor\n"
        "  cookie mesos_gpu_server insert indirect nocache httponly\n"
        "  server a.1 10.0.0.1:31000 check weight 252 cookie a.1\n"
        "  server b.1 [::1]:31001 check weight 28 cookie b.1\n"
    )
    text = haproxy.render([WEB, RAW, NOBODY], http_port=8080)
    assert "frontend raw from mesos_gpu\n  bind *:9000\n  mode tcp\n  default_backend raw\n" in text
    assert "bind *:8080" in text
    assert "-m str shop.example www.example }" in text


BAD_HOSTS = (
    "h\n  server evil 10.9.9.9:80",
    "h check",
    "",
    "a" * 254,
    "h;x",
    "fe80::1%\n server",
    "10.0.0.1:80",
    "-h",
)


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_service_host_that_is_malformed_is_omitted_and_named(host: str) -> None:
    bad = Backend(
        "web", servers=(Server("a.1", "/a", host, 31000, 1), Server("b.1", "/a", "node_1", 31001, 1))
    )
    text = haproxy.render([replace(bad, shares={"/a": 1})], http_port=80)
    assert [line for line in text.splitlines() if line.strip().startswith("server")] == [
        "  server b.1 node_1:31001 check weight 1"
    ]
    assert "# a.1: its host" in text
    assert "is neither a name nor an address, and left out" in text
    document = traefik.render([replace(bad, shares={"/a": 1})])
    servers = document["http"]["services"]["web__a"]["loadBalancer"]["servers"]
    assert servers == [{"url": "http://node_1:31001"}]


def test_traffic_split_gives_unproved_addresses_no_share() -> None:
    split = TrafficSplit("web", {"/a": 1, "/b": 1}, port=8000)
    tasks: dict[str, list[Address]] = {
        "/a": [("a.1", "h1", (31000,)), ("a.2", "h2", (None,))],
        "/b": [("b.1", "h\nx", (31000,))],
    }
    web = App("/a", cmd="x")
    backend = named(split, {"/a": web, "/b": replace(web, id="/b")}, lambda id: tasks[id])
    assert [each.task_id for each in backend.servers] == ["a.1"]
    assert backend.shares == {"/a": 1}
    assert [problem.partition(":")[0] for problem in backend.problems] == ["a.2", "b.1"]


@pytest.mark.skipif(HAPROXY is None, reason="no haproxy: apt-get install haproxy")
def test_haproxy_accepts_the_export(tmp_path: Path) -> None:
    file = tmp_path / "haproxy.cfg"
    named_host = Backend("raw", Mode.TCP, 9000, servers=(Server("c.1", "/c", "localhost", 31000, 256),))
    login = Login("Our realm", "ann", "$5$salt$qYlHpTfTnNkVD4Ch2S1hNq3fPp5FYwVVxPB9GvJZ7u0")
    limited = Backend("api", port=9001, hosts=("shop.example",), path="/api", login=login, https_only=True)
    file.write_text(haproxy.render([WEB, named_host, NOBODY, limited], http_port=8080))
    done = subprocess.run([str(HAPROXY), "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ALERT" not in done.stderr
    assert "WARNING" not in done.stderr


def test_traefik_gets_its_dynamic_configuration() -> None:
    document = traefik.render([WEB, RAW, NOBODY])
    assert document["http"]["routers"] == {
        "web": {"rule": "Host(`shop.example`) || Host(`www.example`)", "service": "web"}
    }
    services = document["http"]["services"]
    assert services["web"]["weighted"]["services"] == [
        {"name": "web__a", "weight": 90},
        {"name": "web__b", "weight": 10},
    ]
    assert services["web"]["weighted"]["sticky"] == {"cookie": {"httpOnly": True}}
    assert services["web__b"]["loadBalancer"]["servers"] == [{"url": "http://[::1]:31001"}]
    assert services["nobody"] == {"loadBalancer": {"servers": []}}
    assert document["tcp"]["services"]["raw__c"] == {
        "loadBalancer": {"servers": [{"address": "node1:31000"}]}
    }
    assert traefik.render([]) == {}
