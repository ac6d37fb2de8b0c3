"""Apps: what was sent is what is meant, all that is wrong is said at once, and an update changes what it names."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.model.apps.app import (
    App,
    Container,
    EngineType,
    GpuOptions,
    Network,
    NetworkMode,
    PortDefinition,
    UnreachableStrategy,
    UpgradeStrategy,
    same_but_scale,
)
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.job import OnGpuFailure, Placement
from mesos_gpu.wire.marathon.app import (
    Rollback,
    app_of,
    app_to_json,
    decode_app,
    is_pod,
    update,
    updated,
)
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.marathon.problems import Problems
from mesos_gpu.wire.marathon.rules import Allowed


def app(**sent: Any) -> App:
    definition = app_of({"id": "/a", "cmd": "sleep 1", **sent})
    assert isinstance(definition, App), definition
    return definition


def wrong(sent: object, allowed: Allowed = Allowed()) -> dict[str, list[str]]:  # noqa: B008 - frozen
    problems = app_of(sent, allowed=allowed)
    assert isinstance(problems, Problems), problems
    assert problems.status == 422
    return {each["path"]: each["errors"] for each in problems.as_json()["details"]}


def faults(**sent: Any) -> dict[str, list[str]]:
    return wrong({"id": "/a", "cmd": "sleep 1", **sent})


def test_marathon_app_defaults_are_those_of_marathon() -> None:
    assert app_to_json(app()) == {
        "id": "/a",
        "cmd": "sleep 1",
        "backoffFactor": 1.15,
        "backoffSeconds": 1,
        "cpus": 1,
        "disk": 0,
        "executor": "",
        "gpus": 0,
        "instances": 1,
        "killSelection": "YOUNGEST_FIRST",
        "labels": {},
        "maxLaunchDelaySeconds": 300,
        "mem": 128,
        "networks": [{"mode": "host"}],
        "portDefinitions": [{"port": 0, "name": "default", "protocol": "tcp", "labels": {}}],
        "requirePorts": False,
        "role": "*",
        "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
        "upgradeStrategy": {"maximumOverCapacity": 1, "minimumHealthCapacity": 1},
    }


def test_marathon_app_takes_integral_floats_and_prints_ints() -> None:
    definition = decode_app(b'{"id": "a", "cmd": "true", "instances": 3.000000, "mem": 64.0, "cpus": 0.5}')
    assert isinstance(definition, App)
    printed = json.dumps(app_to_json(definition))
    assert definition.id == "/a"
    assert '"instances": 3,' in printed
    assert '"mem": 64,' in printed
    assert '"cpus": 0.5,' in printed


def test_marathon_app_with_wrong_syntax_is_400_and_types_422() -> None:
    problems = decode_app(b'{"id": ')
    assert isinstance(problems, Problems)
    assert (problems.status, problems.as_json()["message"]) == (400, "Invalid JSON")
    assert isinstance(problems.as_json()["details"], str)
    problems = decode_app(
        b'{"id": 1, "cmd": true, "cpus": "1", "instances": 1.5, "args": {}, "labels": [],'
        b' "requirePorts": 1, "killSelection": "NONE", "healthChecks": [{}, {"path": 1}], "env": {"A": 1}}'
    )
    assert isinstance(problems, Problems)
    assert problems.status == 422
    assert problems.as_json() == {
        "message": "Invalid JSON",
        "details": [
            {"path": "/id", "errors": ["error.expected.jsstring"]},
            {"path": "/args", "errors": ["error.expected.jsarray"]},
            {"path": "/cmd", "errors": ["error.expected.jsstring"]},
            {"path": "/cpus", "errors": ["error.expected.jsnumber"]},
            {"path": "/env/A", "errors": ["error.expected.jsobject"]},
            {"path": "/healthChecks(1)/path", "errors": ["error.expected.jsstring"]},
            {"path": "/instances", "errors": ["error.expected.int"]},
            {"path": "/labels", "errors": ["error.expected.jsobject"]},
            {"path": "/requirePorts", "errors": ["error.expected.jsboolean"]},
            {"path": "/killSelection", "errors": ["error.unknown.enum.literal"]},
        ],
    }
    assert wrong([]) == {"/": ["error.expected.jsobject"]}
    assert wrong({"cmd": "true"}) == {"/id": ["error.path.missing"]}


def test_marathon_app_ranges_and_rules_are_reported_together() -> None:
    sent = {
        "id": "/A/tasks",
        "upgradeStrategy": {"minimumHealthCapacity": 1.5, "maximumOverCapacity": 0},
        "cpus": 0,
        "constraints": [["rack", "NEAR"]],
    }
    problems = app_of(sent)
    assert isinstance(problems, Problems)
    assert problems.message == "Object is not valid"
    paths = {each["path"]: each["errors"] for each in problems.as_json()["details"]}
    assert paths["/upgradeStrategy/minimumHealthCapacity"] == ["is greater than 1"]
    assert paths["/cpus"] == ["is less than 0.001"]
    assert set(paths) == {"/upgradeStrategy/minimumHealthCapacity", "/cpus", "/constraints(0)", "/id", "/"}


INVALID = {
    "neither cmd nor args": ({"cmd": None}, "/"),
    "both": ({"args": ["a"]}, "/"),
    "a cmd of one character": ({"cmd": "a"}, "/"),
    "an id that is the root": ({"id": "/"}, "/id"),
    "a reserved id": ({"id": "/a/versions"}, "/id"),
    "an id with an underscore": ({"id": "/a_b"}, "/id"),
    "a NUL": ({"cmd": "a\0b"}, "/cmd"),
    "a NUL in a name": ({"labels": {"a\0": ""}}, "/labels/a\0"),
    "a variable without name": ({"env": {"": "a"}}, "/env/"),
    "two ports of a name": ({"portDefinitions": [{"name": "a"}, {"name": "a"}]}, "/portDefinitions"),
    "a port twice": ({"portDefinitions": [{"port": 80}, {"port": 80}]}, "/portDefinitions"),
    "the same of the old field": ({"ports": [80, 80]}, "/portDefinitions"),
    "other ports in the old field": ({"ports": [80], "portDefinitions": [{"port": 81}]}, "/"),
    "no port at all": ({"portDefinitions": [{"port": 65536}]}, "/portDefinitions(0)/port"),
    "uris and fetch": ({"uris": ["a"], "fetch": [{"uri": "b"}]}, "/uris"),
    "neither a URI": ({"fetch": [{"uri": "a b"}]}, "/fetch(0)"),
    "an address and networks": ({"ipAddress": {}, "networks": [{"mode": "host"}]}, "/"),
    "an address and ports": ({"ipAddress": {"networkName": "n"}, "ports": [1]}, "/"),
    "a network without name": ({"networks": [{"mode": "container"}]}, "/networks"),
    "a host network with one": ({"networks": [{"mode": "host", "name": "a"}]}, "/networks"),
    "a bridge with one": ({"networks": [{"mode": "container/bridge", "name": "a"}]}, "/networks"),
    "networks of two kinds": (
        {"networks": [{"mode": "host"}, {"mode": "container", "name": "a"}]},
        "/networks",
    ),
    "a network twice": ({"networks": [{"name": "a"}, {"name": "a"}]}, "/networks"),
    "Docker without image": ({"container": {}}, "/container/docker"),
    "an image without name": ({"container": {"docker": {"image": ""}}}, "/container/docker/image"),
    "no network": ({"container": {"docker": {"image": "i", "network": "NONE"}}}, "/container/docker/network"),
    "parameters for Mesos": (
        {
            "container": {
                "type": "MESOS",
                "docker": {"image": "i", "parameters": [{"key": "a", "value": "b"}]},
            }
        },
        "/container/docker/parameters",
    ),
    "an index beyond the ports": ({"healthChecks": [{"portIndex": 1}]}, "/healthChecks(0)"),
    "a command of another protocol": (
        {"healthChecks": [{"command": {"value": "true"}}]},
        "/healthChecks(0)/command",
    ),
    "COMMAND without command": ({"healthChecks": [{"protocol": "COMMAND"}]}, "/healthChecks(0)/command"),
    "two checks of Mesos": ({"healthChecks": [{"protocol": "MESOS_HTTP"}, {"protocol": "MESOS_TCP"}]}, "/"),
    "IPv6 on the host": (
        {"healthChecks": [{"protocol": "MESOS_TCP", "ipProtocol": "IPv6"}]},
        "/healthChecks(0)",
    ),
    "a readiness check as often as its default timeout": (
        {"readinessChecks": [{"portName": "default", "intervalSeconds": 1}]},
        "/readinessChecks(0)/intervalSeconds",
    ),
    "an unknown port's readiness": ({"readinessChecks": [{}]}, "/readinessChecks(0)/portName"),
    "readiness slower than its interval": (
        {"readinessChecks": [{"portName": "default", "timeoutSeconds": 30}]},
        "/readinessChecks(0)/timeoutSeconds",
    ),
    "two readiness checks": (
        {"readinessChecks": [{"portName": "default"}, {"portName": "default", "path": "/b"}]},
        "/readinessChecks",
    ),
    "a check of two kinds": ({"check": {"tcp": {}, "http": {}}}, "/check"),
    "inactive after it is gone": (
        {"unreachableStrategy": {"inactiveAfterSeconds": 2, "expungeAfterSeconds": 1}},
        "/unreachableStrategy/inactiveAfterSeconds",
    ),
    "no strategy": ({"unreachableStrategy": "never"}, "/unreachableStrategy"),
    "two of one": (
        {
            "instances": 2,
            "labels": {"MARATHON_SINGLE_INSTANCE_APP": "true"},
            "upgradeStrategy": {"minimumHealthCapacity": 0, "maximumOverCapacity": 0},
        },
        "/",
    ),
    "no name of a role": ({"role": "a/b"}, "/role"),
    "offers of no role": ({"acceptedResourceRoles": ["*", "-a"]}, "/acceptedResourceRoles(1)"),
    "no offers": ({"acceptedResourceRoles": []}, "/acceptedResourceRoles"),
    "a limit below the share": ({"resourceLimits": {"mem": 64}}, "/resourceLimits/mem"),
    "an executor": ({"executor": "/bin/mine"}, "/executor"),
    "resident tasks": ({"residency": {}}, "/residency"),
    "a secret": ({"env": {"A": {"secret": "s"}}}, "/env/A/secret"),
    "secrets": ({"secrets": {"s": {"source": "x"}}}, "/secrets"),
    "a CSI volume": (
        {"container": {"type": "MESOS", "volumes": [{"containerPath": "a", "mode": "RW", "external": {}}]}},
        "/container/volumes(0)/external",
    ),
    "an option that is none": ({"gpus": 1, "gpu": {"kind": ["A100"]}}, "/gpu/kind"),
    "options without GPUs": ({"gpu": {"memory_mib": 1}}, "/gpu/memory_mib"),
    "a capability that is none": ({"gpus": 1, "gpu": {"compute_capability": "8"}}, "/gpu/compute_capability"),
    "a label that is none": ({"labels": {"MESOS_GPU_KIND": "A100"}}, "/labels/MESOS_GPU_KIND"),
    "a label with no number": ({"labels": {"MESOS_GPU_MEMORY_MIB": "40G"}}, "/labels/MESOS_GPU_MEMORY_MIB"),
    "linuxInfo for Docker": (
        {"container": {"docker": {"image": "i"}, "linuxInfo": {"ipcInfo": {"mode": "PRIVATE"}}}},
        "/container/linuxInfo",
    ),
    "a profile and none": (
        {"container": {"type": "MESOS", "linuxInfo": {"seccomp": {"profileName": "p", "unconfined": True}}}},
        "/container/linuxInfo/seccomp",
    ),
    "a check with Docker": ({"container": {"docker": {"image": "i"}}, "check": {"tcp": {}}}, "/"),
    "a command in two forms": (
        {"check": {"exec": {"command": {"shell": "a", "argv": ["b"]}}}},
        "/check/exec/command",
    ),
    "a check beyond the ports": ({"check": {"tcp": {"portIndex": 1}}}, "/check"),
    "two networks for Docker": (
        {
            "container": {"docker": {"image": "i"}, "portMappings": []},
            "networks": [{"name": "a"}, {"name": "b"}],
        },
        "/",
    ),
    "a host's port for two networks": (
        {
            "container": {"type": "MESOS", "portMappings": [{"hostPort": 0}]},
            "networks": [{"name": "a"}, {"name": "b"}],
        },
        "/container/portMappings(0)",
    ),
    "a port for another network": (
        {
            "container": {"type": "MESOS", "portMappings": [{"networkNames": ["b"]}]},
            "networks": [{"name": "a"}],
        },
        "/container/portMappings(0)/networkNames(0)",
    ),
    "a volume without path": (
        {"container": {"type": "MESOS", "volumes": [{"containerPath": "a", "mode": "RW"}]}},
        "/container/volumes(0)/hostPath",
    ),
    "half a migration": ({"labels": {"DCOS_MIGRATION_API_VERSION": "v1"}}, "/"),
}


@pytest.mark.parametrize(("sent", "path"), INVALID.values(), ids=INVALID)
def test_marathon_app_field_that_is_invalid_is_named(sent: dict[str, Any], path: str) -> None:
    assert list(faults(**sent)) == [path]


def test_marathon_app_with_a_wrong_type_tells_what_else_is_wrong() -> None:
    sent = {
        "cpus": "x",
        "mem": -1,
        "constraints": [["rack", "NEAR"]],
        "portDefinitions": [{"port": 80}, {"port": 80}],
        "container": {
            "type": "MESOS",
            "docker": {"image": "i", "credential": {"a": "b"}, "parameters": [{"key": "a", "value": 1}]},
        },
    }
    assert faults(**sent) == {
        "/cpus": ["error.expected.jsnumber"],
        "/mem": ["is less than 0"],
        "/constraints(0)": faults(constraints=[["rack", "NEAR"]])["/constraints(0)"],
        "/portDefinitions": ["Ports must be unique."],
        "/container/docker/parameters(0)/value": ["error.expected.jsstring"],
        "/container/docker/credential": ["must be empty with a container of type MESOS"],
    }


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ({"cmd": 1}, "/cmd"),
        ({"cmd": None, "container": "nginx"}, "/container"),
        ({"container": {"docker": {"image": 1}}}, "/container/docker/image"),
        ({"portDefinitions": {}, "healthChecks": [{"portIndex": 3}]}, "/portDefinitions"),
        (
            {"portDefinitions": [{"name": 1}], "readinessChecks": [{"portName": "a"}]},
            "/portDefinitions(0)/name",
        ),
        ({"gpus": "1", "gpu": {"memory_mib": 1}}, "/gpus"),
        ({"mem": "1g", "resourceLimits": {"mem": 64}}, "/mem"),
    ],
)
def test_marathon_app_problem_that_follows_from_a_wrong_type_is_not_told(
    sent: dict[str, Any], path: str
) -> None:
    assert list(faults(**sent)) == [path]


def test_marathon_app_of_older_marathons_is_accepted() -> None:
    half = app(upgradeStrategy={"minimumHealthCapacity": 0.5})
    assert half.upgrade_strategy == UpgradeStrategy(0.5, 1.0)
    both = app(
        uris=["http://x/a.tgz", "http://x/b"], fetch=[{"uri": "http://x/b"}, {"uri": "http://x/a.tgz"}]
    )
    assert [each.uri for each in both.fetch] == ["http://x/b", "http://x/a.tgz"]
    on_host = app(container={"type": "MESOS", "docker": {"image": "i", "network": "HOST"}})
    assert on_host.networks == (Network(NetworkMode.HOST),)
    public = app(role="slave_public", acceptedResourceRoles=["slave_public"])
    assert (public.role, public.accepted_resource_roles) == ("slave_public", ("slave_public",))


def test_marathon_app_problems_of_others_are_told_with_those_of_marathon() -> None:
    allowed = Allowed(
        also=lambda each: [("env.A.B", "no"), ("container.volumes.1", "nor this"), ("cmd", each.id)]
    )
    assert wrong({"id": "/a", "cmd": "sleep 1", "mem": -1}, allowed) == {
        "/mem": ["is less than 0"],
        "/env/A.B": ["no"],
        "/container/volumes(1)": ["nor this"],
        "/cmd": ["/a"],
    }


def test_marathon_volume_kinds_not_offered_name_the_alternative() -> None:
    external = {"name": "v", "provider": "dvdi", "options": {}}
    volume = {"containerPath": "a", "mode": "RW", "external": external}
    (why,) = faults(container={"type": "MESOS", "volumes": [volume]})["/container/volumes(0)/external"]
    assert why.startswith("external volumes")
    assert "are not supported; " in why
    assert "use a hostPath" in why


def test_marathon_app_old_fields_are_converted() -> None:
    definition = app(ports=[80, 0], uris=["http://x/a.tgz?b=c", "http://x/a"], id="b")
    assert definition.port_definitions == (PortDefinition(80), PortDefinition(0))
    assert definition.fetch == (
        Artifact("http://x/a.tgz?b=c", extract=True),
        Artifact("http://x/a", extract=False),
    )
    bridged = app(
        container={"docker": {"image": "i", "network": "BRIDGE", "portMappings": [{"containerPort": 80}]}},
        healthChecks=[{}],
        requirePorts=True,
    )
    assert bridged.networks == (Network(NetworkMode.BRIDGE),)
    assert bridged.container is not None
    assert bridged.container.port_mappings is not None
    assert [(each.container_port, each.host_port) for each in bridged.container.port_mappings] == [(80, 0)]
    assert (bridged.port_definitions, bridged.require_ports) == (None, False)
    assert bridged.health_checks == (HealthCheck(port_index=0),)
    addressed = app(ipAddress={"networkName": "net", "labels": {"a": "b"}})
    assert addressed.networks == (Network(NetworkMode.CONTAINER, "net", {"a": "b"}),)
    assert addressed.container is not None
    assert addressed.container.type is EngineType.MESOS


def test_port_mappings_have_no_meaning_on_the_host() -> None:
    definition = app(container={"docker": {"image": "i"}, "portMappings": [{"containerPort": 80}]})
    assert isinstance(definition.container, Container)
    assert definition.container.port_mappings is None
    assert "portMappings" not in app_to_json(definition)["container"]


def test_marathon_health_check_drops_meaningless_fields() -> None:
    checks = [
        {"protocol": "COMMAND", "command": {"value": "true"}, "portIndex": 7, "path": "/x"},
        {"protocol": "TCP", "path": "/", "port": 80, "ignoreHttp1xx": True},
    ]
    command, tcp = app(healthChecks=checks).health_checks
    assert command == HealthCheck(Protocol.COMMAND, command="true")
    assert tcp == HealthCheck(Protocol.TCP, port=80)


def test_marathon_app_ignores_absent_null_and_unknown_fields() -> None:
    assert (
        app(user=None, container=None, storeUrls=[], tasksRunning=3, version="2015-09-28T19:47:37.681Z")
        == app()
    )


@pytest.mark.parametrize(
    ("path", "base", "want"),
    [
        ("a", "/", "/a"),
        ("a", "/g", "/g/a"),
        ("/a", "/g", "/a"),
        ("../a", "/g/h", "/g/a"),
        ("//a//b/", "/g", "/a/b"),
    ],
)
def test_marathon_app_ids_are_resolved_against_the_group(path: str, base: str, want: str) -> None:
    definition = app_of({"id": path, "cmd": "true", "dependencies": [path, want, "/z"]}, base=base)
    assert isinstance(definition, App)
    assert (definition.id, definition.dependencies) == (want, (want, "/z"))


def test_marathon_app_id_of_the_path_wins() -> None:
    definition = decode_app(b'{"id": "/other", "cmd": "true"}', id_from_path="//mine")
    assert isinstance(definition, App)
    assert definition.id == "/mine"


def test_gpus_with_docker_are_a_superset() -> None:
    definition = app(gpus=2.0, container={"docker": {"image": "cuda"}})
    assert definition.gpus == 2
    assert isinstance(definition.gpus, int)
    assert "/gpus" in faults(gpus=1.5)


def test_gpu_options_are_in_the_object_or_in_labels() -> None:
    sent = {"models": ["A100", "V100"], "memory_mib": 40000, "placement": "spread", "in_place": True}
    want = GpuOptions(("A100", "V100"), 40000, placement=Placement.SPREAD, in_place=True)
    assert gpu_options(app(gpus=1, gpu=sent)) == want
    labels = {
        "MESOS_GPU_MODELS": "A100, V100",
        "MESOS_GPU_MEMORY_MIB": "40000",
        "MESOS_GPU_PLACEMENT": "spread",
        "MESOS_GPU_IN_PLACE": "true",
    }
    assert gpu_options(app(gpus=1, labels=labels)) == want
    both = app(gpus=1, labels=labels, gpu={"models": ["H100"], "on_gpu_failure": "notify"})
    assert gpu_options(both) == replace(want, models=("H100",), on_gpu_failure=OnGpuFailure.NOTIFY)
    assert gpu_options(app()) == GpuOptions()


def test_secrets_are_taken_once_enabled() -> None:
    sent = {
        "id": "/a",
        "cmd": "true",
        "env": {"A": {"secret": "s"}, "B": {"secret": "t"}},
        "secrets": {"s": {"source": "x"}},
    }
    assert wrong(sent, Allowed(secrets=True)) == {"/env/B/secret": ["references an undefined secret"]}
    del sent["env"]["B"]  # type: ignore[attr-defined]
    definition = app_of(sent, allowed=Allowed(secrets=True))
    assert isinstance(definition, App)
    assert app_to_json(definition)["env"] == {"A": {"secret": "s"}}


def test_marathon_app_update_changes_the_named_fields() -> None:
    old = app(instances=2, labels={"a": "b"}, ports=[80], uris=["http://x/a"])
    changed = update(old, b'{"instances": 3, "id": "/ignored", "mem": null}')
    assert changed == replace(old, instances=3)
    assert updated(old, {"labels": {"c": "d"}}) == replace(old, labels={"c": "d"})
    assert updated(old, {"ports": [81]}) == replace(old, port_definitions=(PortDefinition(81),))
    assert updated(old, {"uris": ["u"]}) == replace(old, fetch=(Artifact("u", extract=False),))
    moved = updated(old, {"container": {"docker": {"image": "i", "network": "BRIDGE"}}})
    assert isinstance(moved, App)
    assert moved.networks == (Network(NetworkMode.BRIDGE),)
    assert isinstance(updated(old, {"args": ["x"]}), Problems)  # cmd stays, and both may not be
    assert isinstance(updated(old, []), Problems)
    assert isinstance(update(old, b"{"), Problems)


def test_marathon_app_update_may_be_a_rollback() -> None:
    version = "2015-02-11T09:31:50.021Z"
    assert updated(app(), {"id": "/a", "version": version}) == Rollback(version)
    assert isinstance(updated(app(), {"version": version, "instances": 1}), Problems)
    assert isinstance(updated(app(), {"version": "yesterday"}), Problems)


_EVERY_FIELD: Final[dict[str, Any]] = {
    "id": "/g/a",
    "args": ["serve", "--port", "80"],
    "acceptedResourceRoles": ["*"],
    "check": {
        "exec": {"command": {"argv": ["true"]}},
        "intervalSeconds": 5,
        "timeoutSeconds": 2,
        "delaySeconds": 1,
    },
    "constraints": [["hostname", "UNIQUE"], ["rack", "GROUP_BY", "3"]],
    "container": {
        "type": "MESOS",
        "docker": {
            "image": "i",
            "forcePullImage": True,
            "privileged": False,
            "parameters": [],
            "pullConfig": {"secret": "s"},
        },
        "linuxInfo": {"seccomp": {"unconfined": True}, "ipcInfo": {"mode": "PRIVATE", "shmSize": 64}},
        "portMappings": [
            {
                "containerPort": 80,
                "hostPort": 0,
                "labels": {"VIP_0": "a:80"},
                "name": "http",
                "protocol": "udp,tcp",
                "servicePort": 10000,
                "networkNames": ["net"],
            }
        ],
        "volumes": [
            {"containerPath": "data", "hostPath": "/data", "mode": "RO"},
            {"containerPath": "key", "secret": "s"},
        ],
    },
    "dependencies": ["/g/b"],
    "env": {"A": "b", "B": {"secret": "s"}},
    "executorResources": {"cpus": 0.2, "mem": 64, "disk": 20},
    "fetch": [{"uri": "http://x/a", "extract": False, "executable": True, "cache": True, "destPath": "b"}],
    "gpu": {
        "models": ["A100"],
        "on_gpu_failure": "notify",
        "priority": 5,
        "queue": "q",
        "preemptible": True,
        "notice_s": 30.0,
        "notice_signal": "SIGUSR1",
    },
    "gpus": 1,
    "killSelection": "OLDEST_FIRST",
    "networks": [{"mode": "container", "name": "net", "labels": {"a": "b"}}],
    "readinessChecks": [
        {
            "name": "ready",
            "protocol": "HTTPS",
            "path": "/r",
            "portName": "http",
            "intervalSeconds": 9,
            "timeoutSeconds": 3,
            "httpStatusCodesForReady": [200, 204],
            "preserveLastResponse": True,
        }
    ],
    "resourceLimits": {"cpus": "unlimited", "mem": 256},
    "secrets": {"s": {"source": "/x"}},
    "taskKillGracePeriodSeconds": 30,
    "tty": True,
    "unreachableStrategy": "disabled",
    "user": "nobody",
}


def test_marathon_app_fields_are_printed_as_sent() -> None:
    definition = app_of(_EVERY_FIELD, allowed=Allowed(secrets=True))
    assert isinstance(definition, App), definition
    printed = app_to_json(definition)
    gpu = {"in_place": False, "auto_revert": False, **_EVERY_FIELD["gpu"]}
    assert {key: printed[key] for key in _EVERY_FIELD} == {**_EVERY_FIELD, "gpu": gpu}


def test_strategies_and_constraints_are_read() -> None:
    assert app(unreachableStrategy="disabled").unreachable_strategy is None
    definition = app(unreachableStrategy={"expungeAfterSeconds": 60})
    assert definition.unreachable_strategy == UnreachableStrategy(0, 60)
    upgrade = app(upgradeStrategy={"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0})
    assert upgrade.upgrade_strategy == UpgradeStrategy(0.5, 0)
    assert app(constraints=[["rack", "group_by", "3"]]).constraints == (
        Constraint("rack", Operator.GROUP_BY, "3"),
    )


def test_marathon_app_change_of_scale_alone_needs_no_restart() -> None:
    old = app()
    assert same_but_scale(old, replace(old, instances=9))
    assert same_but_scale(old, old)
    assert same_but_scale(app(dependencies=["/b", "/c"]), app(dependencies=["/c", "/b"]))
    assert not same_but_scale(old, replace(old, labels={"a": "b"}))
    assert not same_but_scale(old, replace(old, instances=9, cmd="other"))


def test_pods_are_told_apart() -> None:
    assert is_pod({"id": "/p", "containers": [{"name": "c"}]})
    assert not is_pod({"id": "/a", "container": {}})
    assert not is_pod([])
