"""The environment of an app's tasks, by Marathon's rules."""

import hashlib
from typing import Any

import pytest

from mesos_gpu.model.apps.app import (
    App,
    Container,
    DockerImage,
    EngineType,
    Network,
    NetworkMode,
    PortDefinition,
    PortMapping,
    SecretRef,
)
from mesos_gpu.policy.apps.ports import wishes_of
from mesos_gpu.policy.apps.task_env import app_env, double, launch_env, task_env

VERSION = "2015-02-03T12:30:00.000Z"
ID = "app.instance-b6ff5fa5-7714-11e7-a55c-5ecf1c4671f6._app.1"
BRIDGE = (Network(NetworkMode.BRIDGE),)


def mapped(*mappings: PortMapping) -> App:
    container = Container(EngineType.DOCKER, DockerImage("nginx"), port_mappings=mappings)
    return App("/app", networks=BRIDGE, port_definitions=None, container=container)


def test_env_of_a_plain_app() -> None:
    assert task_env(App("/app"), task_id=ID, version=VERSION, host="n1", ports=(31005,)) == {
        "MARATHON_APP_ID": "/app",
        "MARATHON_APP_VERSION": VERSION,
        "MARATHON_APP_RESOURCE_CPUS": "1.0",
        "MARATHON_APP_RESOURCE_MEM": "128.0",
        "MARATHON_APP_RESOURCE_DISK": "0.0",
        "MARATHON_APP_RESOURCE_GPUS": "0",
        "MARATHON_APP_ENFORCE_GROUP_ROLE": "FALSE",
        "MARATHON_APP_LABELS": "",
        "MESOS_TASK_ID": ID,
        "HOST": "n1",
        "PORT": "31005",
        "PORT0": "31005",
        "PORTS": "31005",
        "PORT_31005": "31005",
        "PORT_DEFAULT": "31005",
    }


PORTS: dict[str, tuple[App, tuple[int | None, ...], dict[str, str]]] = {
    "none": (App("/app", port_definitions=()), (), {}),
    "service ports name the variables of those that were found": (
        App("/app", port_definitions=(PortDefinition(10001, "http"), PortDefinition(10002, "http-admin"))),
        (31000, 31001),
        {
            "PORT0": "31000",
            "PORT1": "31001",
            "PORT_10001": "31000",
            "PORT_10002": "31001",
            "PORT_HTTP": "31000",
            "PORT_HTTP-ADMIN": "31001",
            "PORT": "31000",
            "PORTS": "31000,31001",
        },
    ),
    "container ports name them with mappings": (
        mapped(PortMapping(80, 0, name="web"), PortMapping(0, 0)),
        (31000, 31001),
        {
            "PORT0": "31000",
            "PORT1": "31001",
            "PORT_80": "31000",
            "PORT_31001": "31001",
            "PORT_WEB": "31000",
            "PORT": "31000",
            "PORTS": "31000,31001",
        },
    ),
    "a port of the container only is not among PORTS": (
        mapped(PortMapping(8080, None, name="own"), PortMapping(9090, 0)),
        (None, 31000),
        {
            "PORT0": "8080",
            "PORT1": "31000",
            "PORT_8080": "8080",
            "PORT_9090": "31000",
            "PORT_OWN": "8080",
            "PORT": "31000",
            "PORTS": "31000",
        },
    ),
    "without one of the host there is no PORT": (
        mapped(PortMapping(8080, None)),
        (None,),
        {"PORT0": "8080", "PORT_8080": "8080", "PORTS": ""},
    ),
}


@pytest.mark.parametrize(("app", "ports", "want"), PORTS.values(), ids=PORTS)
def test_env_has_the_variables_of_ports(
    app: App, ports: tuple[int | None, ...], want: dict[str, str]
) -> None:
    assert launch_env(wishes_of(app), app.env, task_id=ID, host="n1", ports=ports) == {**want, "HOST": "n1"}


def test_port_that_is_made_up_comes_after_those_of_the_host() -> None:
    app = mapped(PortMapping(0, None, name="own"), PortMapping(80, 0))
    env = launch_env(wishes_of(app), app.env, task_id=ID, host="n1", ports=(None, 31000))
    own = env["PORT0"]
    assert (env[f"PORT_{own}"], env["PORT_OWN"], env["PORT"]) == (own, own, "31000")
    assert env["PORTS"] == f"31000,{own}"


LABELS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "letters become capitals": ({"owner": "a b"}, {"OWNER": "a b"}),
    "what is no letter becomes one _": ({"HAPROXY_0": "x", "a.b--c/é": "y"}, {"HAPROXY_0": "x", "A_B_C_": "y"}),
    "the later of two counts": ({"a-b": "1", "z": "2", "a.b": "3"}, {"A_B": "3", "Z": "2"}),
    "a long key is left out": ({"k" * 492: "1", "k" * 493: "2"}, {"K" * 492: "1"}),
    "a long value is left out": ({"a": "v" * 511, "b": "v" * 512}, {"A": "v" * 511}),
    "beyond 16 bits a character counts twice": ({"a": "😀" * 255, "b": "😀" * 256}, {"A": "😀" * 255}),
    "a label need not have a value": ({"a": ""}, {"A": ""}),
}  # fmt: skip


@pytest.mark.parametrize(("labels", "want"), LABELS.values(), ids=LABELS)
def test_env_has_the_variables_of_labels(labels: dict[str, str], want: dict[str, str]) -> None:
    env = app_env(App("/app", labels=labels), version=VERSION)
    variables = {key: value for key, value in env.items() if key.startswith("MARATHON_APP_LABEL")}
    assert variables == {
        "MARATHON_APP_LABELS": " ".join(want),
        **{f"MARATHON_APP_LABEL_{key}": value for key, value in want.items()},
    }


@pytest.mark.parametrize(("engine", "want"), [(EngineType.DOCKER, "nginx:1"), (EngineType.MESOS, None)])
def test_image_is_named_for_docker_containers_only(engine: EngineType, want: str | None) -> None:
    app = App("/app", container=Container(engine, DockerImage("nginx:1")))
    assert app_env(app, version=VERSION).get("MARATHON_APP_DOCKER_IMAGE") == want


def test_env_set_by_the_app_wins_and_secrets_are_left_out() -> None:
    own: dict[str, Any] = {"PORT": "80", "MARATHON_APP_ID": "mine", "KEY": SecretRef("key"), "HOST": "h"}
    app = App("/app", env=own, gpus=2, cpus=0.5)
    env = task_env(app, task_id=ID, version=VERSION, host="n1", ports=(31005,), enforce_role=True)
    assert (env["PORT"], env["PORT0"], env["HOST"], env["MARATHON_APP_ID"]) == ("80", "31005", "h", "mine")
    assert (env["MARATHON_APP_RESOURCE_GPUS"], env["MARATHON_APP_RESOURCE_CPUS"]) == ("2", "0.5")
    assert env["MARATHON_APP_ENFORCE_GROUP_ROLE"] == "TRUE"
    assert "KEY" not in env
    launch = launch_env(wishes_of(app), app.env, task_id=ID, host="n1", ports=(31005,))
    assert launch.keys() == {"PORT0", "PORTS", "PORT_31005", "PORT_DEFAULT"}


DOUBLES = {
    0: "0.0",
    0.001: "0.001",
    0.1: "0.1",
    1: "1.0",
    32.5: "32.5",
    9999999: "9999999.0",
    10_000_000: "1.0E7",
    12_345_678.5: "1.23456785E7",
    0.0005: "5.0E-4",
    1.25e-5: "1.25E-5",
    1e22: "1.0E22",
}


@pytest.mark.parametrize(("value", "want"), DOUBLES.items())
def test_numbers_are_written_as_java_writes_them(value: float, want: str) -> None:
    assert double(value) == want


@pytest.mark.parametrize("seed", ["a.1", "a.2", "a.3", "b.1", "b.2"])
def test_ports_that_are_made_up_follow_each_other_from_a_place_by_the_task(seed: str) -> None:
    place = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    made_up = [1025 + (place + n) % (65535 - 1025 + 1) for n in range(4)]
    app = mapped(PortMapping(0, None), PortMapping(0, None), PortMapping(0, 0))
    env = launch_env(wishes_of(app), {}, task_id=seed, host="n1", ports=(None, None, made_up[1]))
    numbers = [made_up[0], made_up[2], made_up[1]]
    assert [env[f"PORT{n}"] for n in range(3)] == [str(number) for number in numbers]
    assert env["PORTS"] == f"{made_up[1]},{made_up[0]},{made_up[2]}"
    named = mapped(PortMapping(0, None), PortMapping(made_up[0], 0))
    env = launch_env(wishes_of(named), {}, task_id=seed, host="n1", ports=(None, 31000))
    assert env["PORT0"] == str(made_up[1]), "the first is a number that the app names"
