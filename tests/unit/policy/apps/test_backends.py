"""Services for load balancers: each as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from mesos_gpu.model.apps.app import App, PortDefinition
from mesos_gpu.model.apps.split import Backend, Login, Mode, Server, TrafficSplit
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.policy.apps.backends import Address, Serving, labelled, named, without_clashes
from mesos_gpu.wire.export import haproxy, traefik

GROUP = {"HAPROXY_GROUP": "x"}


def serving(**addresses: Sequence[Address]) -> Serving:
    return lambda id: addresses.get(id.strip("/"), ())


def task(name: str, *ports: int | None) -> Address:
    return name, "h1", ports


def app(id: str, labels: Mapping[str, str], *service_ports: int, **fields: object) -> App:
    definitions = tuple(PortDefinition(port) for port in service_ports or (0,))
    return App(id, cmd="x", labels=labels, port_definitions=definitions, **fields)  # type: ignore[arg-type]


def test_first_wish_of_any_app_completes_a_split() -> None:
    first = app("/a", {"HAPROXY_0_BALANCE": "source", "HAPROXY_0_BACKEND_WEIGHT": "3"})
    second = app("/b", {"HAPROXY_0_PORT": "8000", "HAPROXY_0_VHOST": "b.example", "HAPROXY_0_MODE": "tcp",
                        "HAPROXY_0_BALANCE": "first", "HAPROXY_0_STICKY": "TRUE"})  # fmt: skip
    third = app("/c", {"HAPROXY_0_PORT": "9000", "HAPROXY_0_VHOST": "c.example", "HAPROXY_0_STICKY": "false"})
    apps = {each.id: each for each in (first, second, third)}
    split = TrafficSplit("web", {"/a": 1, "/gone": 5, "/b": 1, "/c": 0})
    serve = serving(a=[task("a.1", 1000)], b=[task("b.1", None), task("b.2", 1001)], gone=[task("g.1", 1)])
    assert named(split, apps, serve) == Backend(
        "web", Mode.TCP, 8000, ("b.example",), "source", sticky=True,
        servers=(Server("a.1", "/a", "h1", 1000, 256), Server("b.2", "/b", "h1", 1001, 256)),
        shares={"/a": 1, "/b": 1},
        problems=(
            "/a: HAPROXY_0_BACKEND_WEIGHT has no effect here",
            "b.1: nothing that listens at its port is proved to be the task, and it is left out",
        ),
    )  # fmt: skip
    own = replace(split, mode=Mode.HTTP, port=1, hosts=("own.example",))
    made = named(own, apps, serve)
    assert (made.mode, made.port, made.hosts) == (Mode.HTTP, 1, ("own.example",))


@pytest.mark.parametrize(
    ("labels", "effect"),
    [
        ({"OTHER": "x"}, []),
        ({"HAPROXY_0_PORT": "1", "HAPROXY_9_MODE": "tcp"}, []),
        ({"HAPROXY_DEPLOYMENT_GROUP": "", "HAPROXY_DEPLOYMENT_ALT_PORT": "1", "HAPROXY_9_AUTH": "x"}, []),
        ({"HAPROXY_APP_ID": "x", "HAPROXY_0_USE_HSTS": "true"}, ["HAPROXY_0_USE_HSTS"]),
        ({"HAPROXY_AUTH": "x"}, ["HAPROXY_AUTH"]),
        ({"HAPROXY_HTTP_FRONTEND_HEAD": "x", "HAPROXY_1_GROUP": "x"}, ["HAPROXY_HTTP_FRONTEND_HEAD"]),
    ],
)  # fmt: skip
def test_labels_of_no_effect_are_named(labels: dict[str, str], effect: list[str]) -> None:
    made = named(TrafficSplit("web", {"/a": 1}), {"/a": app("/a", labels)}, serving())
    assert list(made.problems) == [f"/a: {label} has no effect here" for label in effect]


@pytest.mark.parametrize(
    ("port", "good"),
    [("0", False), ("1", True), ("65535", True), ("65536", False), ("x", False), (" 80 ", True)],
)
def test_port_of_a_label_is_one_of_tcp(port: str, good: bool) -> None:
    made = named(TrafficSplit("web", {"/a": 1}), {"/a": app("/a", {"HAPROXY_0_PORT": port})}, serving())
    assert made.port == (int(port) if good else None)
    assert bool(made.problems) is not good


CHECK = HealthCheck(port_index=0)


@pytest.mark.parametrize(
    ("labels", "service_ports", "checks", "wanted"),
    [
        ({}, (0,), (), []),
        ({}, (10001,), (), [("a_b_10001", Mode.TCP, 10001, ())]),
        ({}, (10001,), (CHECK,), [("a_b_10001", Mode.HTTP, 10001, ())]),
        ({}, (10001,), (HealthCheck(Protocol.TCP, port_index=0),), [("a_b_10001", Mode.TCP, 10001, ())]),
        ({}, (10001, 10002), (replace(CHECK, port_index=1),),
         [("a_b_10001", Mode.TCP, 10001, ()), ("a_b_10002", Mode.HTTP, 10002, ())]),
        ({"HAPROXY_0_VHOST": "a.example"}, (0,), (), [("a_b_0", Mode.HTTP, None, ("a.example",))]),
        ({"HAPROXY_0_VHOST": "a.example", "HAPROXY_0_MODE": "TCP"}, (0,), (),
         [("a_b_0", Mode.TCP, None, ("a.example",))]),
        ({"HAPROXY_1_VHOST": "A.example,, b.example"}, (0, 0), (), []),
        ({"HAPROXY_1_VHOST": "A.example, b.example"}, (0, 0), (),
         [("a_b_1", Mode.HTTP, None, ("a.example", "b.example"))]),
        ({"HAPROXY_0_PORT": "8000"}, (10001,), (), [("a_b_8000", Mode.TCP, 8000, ())]),
        ({"HAPROXY_0_GROUP": "y"}, (10001, 10002), (), [("a_b_10002", Mode.TCP, 10002, ())]),
        ({"HAPROXY_0_GROUP": "y, x"}, (10001,), (), [("a_b_10001", Mode.TCP, 10001, ())]),
        ({"HAPROXY_GROUP": ""}, (10001,), (), []),
        ({"HAPROXY_GROUP": ","}, (10001,), (), []),
    ],
)  # fmt: skip
def test_ports_of_an_app_in_a_group_are_exposed(
    labels: dict[str, str],
    service_ports: tuple[int, ...],
    checks: tuple[HealthCheck, ...],
    wanted: list[object],
) -> None:
    made = labelled(
        [app("/a:b", GROUP | labels, *service_ports, health_checks=checks)], serving(), ["x", "z"]
    )
    assert [(each.name, each.mode, each.port, each.hosts) for each in made] == wanted


def test_every_group_has_all_apps_and_no_group_has_none() -> None:
    apps = [app("/a", {}, 10001)]
    assert len(labelled(apps, serving(), ["*"])) == 1
    assert (
        labelled(apps, serving(), ["x"])
        == labelled(apps, serving(), [""])
        == labelled(apps, serving(), [])
        == []
    )


def test_service_of_labels_has_servers_of_equal_weight() -> None:
    labels = GROUP | {"HAPROXY_1_PORT": "80", "HAPROXY_1_BALANCE": "random", "HAPROXY_1_STICKY": "true"}
    serve = serving(a=[task("a.1", 1, 2), task("a.2", 3), task("a.3", 4, None)])
    (made,) = labelled([app("/a", labels, 0, 0)], serve, ["x"])
    assert made == Backend(
        "a_80", Mode.TCP, 80, (), "random", sticky=True, servers=(Server("a.1", "/a", "h1", 2, 256),),
        shares={"/a": 1},
        problems=("a.3: nothing that listens at its port is proved to be the task, and it is left out",),
    )  # fmt: skip


def colour(id: str, started: str, instances: int, **more: str) -> App:
    labels = {**GROUP, "HAPROXY_0_PORT": "80", "HAPROXY_DEPLOYMENT_GROUP": "/shop/",
              "HAPROXY_DEPLOYMENT_STARTED_AT": started}  # fmt: skip
    labels |= {f"HAPROXY_DEPLOYMENT_{name}": value for name, value in more.items()}
    return app(id, labels, 0, instances=instances)


@pytest.mark.parametrize(
    ("ports", "left"),
    [
        ([(1,), (2,)], 2),
        ([(1,), (None,)], 3),
        ([(None,), (None,)], 4),
        ([(1,), ()], 2),
        ([(), ()], 2),
        ([(1, None), (None, 1)], 2),
    ],
)
def test_old_tasks_go_one_for_one_with_new_ones_that_serve(
    ports: list[tuple[int | None, ...]], left: int
) -> None:
    old = [task(f"o.{n}", 10 + n) for n in range(4)]
    new = [task(f"n.{n}", *each) for n, each in enumerate(ports)]
    apps = [colour("/new", "2", 2, TARGET_INSTANCES="2"), colour("/old", "1", 4)]
    (made,) = labelled(apps, serving(new=new, old=old), ["x"])
    served = [each.task_id for each in made.servers if each.app_id == "/old"]
    assert served == [f"o.{n}" for n in range(4 - left if left < 4 else 0, 4)]


@pytest.mark.parametrize(
    ("target", "left"), [("6", 4), ("5", 3), ("4", 2), ("3", 2), ("0", 2), ("", 2), ("9", 4)]
)
def test_old_tasks_stay_until_the_new_ones_are_as_many_as_shall_be(target: str, left: int) -> None:
    old = [task(f"o.{n}", 10 + n) for n in range(4)]
    new = [task("n.1", 1), task("n.2", 2)]
    apps = [colour("/old", "1", 4), colour("/new", "2", 2, TARGET_INSTANCES=target)]
    (made,) = labelled(apps, serving(new=new, old=old), ["x"])
    assert sum(each.app_id == "/old" for each in made.servers) == left
    assert made.name == "shop_80"


def test_new_one_of_a_group_is_by_its_start_and_then_its_name() -> None:
    for first, second in (("", "1"), ("1", "1"), ("1", "2")):
        apps = [colour("/b", second, 1), colour("/a", first, 1)]
        (made,) = labelled(apps, serving(a=[task("a.1", 1)], b=[task("b.1", 2)]), ["x"])
        assert [each.app_id for each in made.servers] == ["/b"]


@pytest.mark.parametrize(
    ("backends", "wanted"),
    [
        ([Backend("a", port=80)], [Backend("a", port=80)]),
        (
            [Backend("a", port=80), Backend("b", hosts=("h",))],
            [
                Backend(
                    "a",
                    problems=(
                        "80 is already used by the frontend that routes requests by host, and left out",
                    ),
                ),
                Backend("b", hosts=("h",)),
            ],
        ),
        (
            [
                Backend("a", port=1, problems=("p",)),
                Backend("b", port=1, problems=("q",)),
                Backend("c", port=2),
            ],
            [
                Backend("a", port=1, problems=("p",)),
                Backend("b", problems=("q", "1 is already used by a, and left out")),
                Backend("c", port=2),
            ],
        ),
        (
            [Backend("a", hosts=("h",)), Backend("b", port=2, hosts=("i", "h")), Backend("a", port=3)],
            [
                Backend("a", hosts=("h",)),
                Backend("b", port=2, hosts=("i",), problems=("h is already used by a, and left out",)),
            ],
        ),
        ([Backend("a"), Backend("b")], [Backend("a"), Backend("b")]),
    ],
)
def test_clash_of_services_is_said_to_the_later_one(backends: list[Backend], wanted: list[Backend]) -> None:
    assert without_clashes(backends, 80) == wanted


# --- who may use a service

HASH = "$5$salt$qYlHpTfTnNkVD4Ch2S1hNq3fPp5FYwVVxPB9GvJZ7u0"
LOGIN = Login("Our realm", "ann", HASH)


def limited(*labels: dict[str, str], mode: Mode | None = None) -> Backend:
    """A service of apps with these labels of their first port, each with a task."""
    apps = {
        f"/{n}": app(f"/{n}", {f"HAPROXY_0_{name}": value for name, value in each.items()})
        for n, each in enumerate(labels)
    }
    serve = serving(**{str(n): [task(f"{n}.1", 1000 + n)] for n in range(len(labels))})
    return named(TrafficSplit("web", dict.fromkeys(apps, 1), mode=mode), apps, serve)


def test_limits_of_a_service_are_those_of_its_labels() -> None:
    made = limited({"PATH": "/api", "REDIRECT_TO_HTTPS": "true", "AUTH": f"Our realm:ann:{HASH}"})
    assert (made.path, made.https_only, made.login, made.left_out) == ("/api", True, LOGIN, "")
    assert made.problems == ()
    open_to_all = limited({"PATH": "/", "REDIRECT_TO_HTTPS": "false", "ENABLED": "true", "AUTH": ""})
    assert open_to_all == replace(limited({}), name="web")
    one_of_two = limited({}, {"AUTH": f"Our realm:ann:{HASH}"})
    assert (one_of_two.login, one_of_two.left_out) == (LOGIN, ""), "the tasks of both are behind it"


@pytest.mark.parametrize(
    "labels",
    [
        {"BACKEND_NETWORK_ALLOWED_ACL": "10.0.0.0/8"},
        {"TCP_BACKEND_ACL_ALLOW_DENY": "x"},
        {"BACKEND_HEAD": "backend x"},
        {"SSL_CERT": "/etc/a.pem"},
        {"BIND_ADDR": "127.0.0.1"},
        {"AUTH": "ann:secret"},
        {"AUTH": "r:ann:plain"},
        {"AUTH": f"r:ann:{HASH}\n  acl x"},
        {"PATH": "api"},
        {"PATH": "/a } or TRUE"},
        {"ENABLED": "no"},
        {"REDIRECT_TO_HTTPS": "1"},
        {"ENABLED": "false"},
        {"MODE": "tcp", "AUTH": f"r:ann:{HASH}"},
        {"MODE": "tcp", "PATH": "/api"},
        {"MODE": "tcp", "REDIRECT_TO_HTTPS": "true"},
    ],
)
def test_service_with_a_limit_that_cannot_be_kept_is_in_no_export(labels: dict[str, str]) -> None:
    made = limited(labels)
    assert made.left_out
    assert "HAPROXY_" in made.left_out
    text = haproxy.render([made], http_port=80)
    assert text.startswith(f"# web is left out: {made.left_out}".splitlines()[0][:40])
    assert not [line for line in text.splitlines() if line.startswith(("frontend", "backend"))]
    assert traefik.render([made]) == {}


def test_service_of_apps_with_different_limits_is_in_no_export() -> None:
    assert "several paths" in limited({"PATH": "/a"}, {"PATH": "/b"}).left_out
    other = {"AUTH": f"Our realm:bob:{HASH}"}
    assert "several values" in limited({"AUTH": f"Our realm:ann:{HASH}"}, other).left_out
    assert "mode http" in limited({"PATH": "/a"}, mode=Mode.TCP).left_out


def test_app_that_is_not_enabled_gives_its_share_to_the_others() -> None:
    made = limited({"ENABLED": "false"}, {})
    assert ([each.app_id for each in made.servers], made.left_out) == (["/1"], "")
    assert made.problems == ("/0: its HAPROXY_0_ENABLED is false, so its tasks do not serve",)


def test_limits_of_one_app_of_a_deployment_group_hold_for_all() -> None:
    new, old = colour("/new", "2", 1), colour("/old", "1", 1)
    new = replace(new, labels={**new.labels, "HAPROXY_0_AUTH": f"Our realm:ann:{HASH}"})
    (made,) = labelled([old, new], serving(new=[task("n", 1)], old=[task("o", 2)]), ["x"])
    assert (made.login, made.mode, made.left_out) == (LOGIN, Mode.HTTP, "")
    off = replace(new, labels={**new.labels, "HAPROXY_0_ENABLED": "false"})
    (made,) = labelled([old, off], serving(new=[task("n", 1)], old=[task("o", 2)]), ["x"])
    assert [each.app_id for each in made.servers] == []


def test_services_may_share_a_host_if_their_paths_differ() -> None:
    made = without_clashes(
        [
            Backend("a", hosts=("h",), path="/a"),
            Backend("b", hosts=("h",)),
            Backend("c", hosts=("h",), path="/a"),
            Backend("d", port=1, hosts=("i",), left_out="why"),
            Backend("e", port=1, hosts=("i",)),
        ],
        80,
    )
    assert [each.hosts for each in made] == [("h",), ("h",), (), ("i",), ("i",)]
    assert made[2].problems == ("h/a is already used by a, and left out",)
    rules = [line for line in haproxy.render(made, http_port=80).splitlines() if "use_backend" in line]
    assert [rule.split()[1] for rule in rules] == ["a", "b", "e"], "the longest path first"


def test_traefik_limits_who_uses_a_service_or_does_not_get_it() -> None:
    bcrypt = Login("r", "ann", "$2y$05$abcdefghijklmnopqrstuv")
    made = Backend("web", hosts=("h", "i"), path="/api", https_only=True, login=bcrypt)
    http = traefik.render([made])["http"]
    assert http["routers"]["web"] == {
        "rule": "(Host(`h`) || Host(`i`)) && PathPrefix(`/api`)",
        "service": "web",
        "middlewares": ["web__https", "web__login"],
    }
    assert http["middlewares"]["web__login"]["basicAuth"]["users"] == [f"ann:{bcrypt.password}"]
    for changed in ({"hosts": ()}, {"login": LOGIN}):
        lacks = replace(made, **changed)
        assert traefik.render([lacks]) == {}
        assert "Traefik" in traefik.why_left_out(lacks)
