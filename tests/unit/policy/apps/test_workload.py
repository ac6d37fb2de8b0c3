"""An app's instance as a job: each field makes the job, is refused, or is of no effect."""

import gzip
import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.model.apps.app import (
    App,
    Check,
    Container,
    DockerImage,
    DockerParameter,
    EngineType,
    ExecutorResources,
    GpuOptions,
    IpcInfo,
    IpcMode,
    LinuxInfo,
    LostBehavior,
    Network,
    NetworkMode,
    PortCheck,
    PortDefinition,
    PortMapping,
    PortProtocol,
    ReadinessCheck,
    Residency,
    ResourceLimits,
    Seccomp,
    SecretRef,
    Volume,
    VolumeMode,
)
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.job import Engine, JobSpec, OnGpuFailure, Placement
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.jobs.permits import Control, Permits, Root
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import CUDA_LABEL
from mesos_gpu.model.secret import Secret
from mesos_gpu.policy.apps.task_ids import MAX_OF_APP
from mesos_gpu.policy.apps.workload import job_of, unsupported, without_effect
from mesos_gpu.wire.marathon.app import app_of
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.marathon.rules import Allowed

VERSION = "2015-02-03T12:30:00.000Z"
PLAIN = App("/shop/db", cmd="sleep 1000")
NO_GPU = GpuOptions()
NOTHING = Permits()


def job(app: App, gpu: GpuOptions = NO_GPU, *, permits: Permits = NOTHING) -> JobSpec:
    made = job_of(app, gpu, version=VERSION, permits=permits)
    assert isinstance(made, JobSpec), made
    return made


def in_image(**docker: Any) -> Container:
    return Container(EngineType.MESOS, DockerImage(**{"image": "nginx", **docker}))


def in_docker(**docker: Any) -> Container:
    return Container(EngineType.DOCKER, DockerImage(**{"image": "nginx", **docker}))


MAPPINGS = (PortMapping(80, 0, name="web"), PortMapping(0, 0, protocol=PortProtocol.BOTH))
BRIDGED: dict[str, Any] = {
    "container": replace(in_docker(), port_mappings=MAPPINGS),
    "networks": (Network(NetworkMode.BRIDGE),),
    "port_definitions": None,
}
ON_HOST = (("network-scope", "host"),)
INSIDE = HealthCheck(Protocol.MESOS_TCP, port=8080)


def with_volumes(*volumes: Volume) -> Container:
    return Container(EngineType.MESOS, volumes=volumes)


def test_job_of_a_plain_app() -> None:
    made = job(PLAIN)
    port = PortWish("default", 0, 0)
    assert made == JobSpec(name="db.shop", command="sleep 1000", app="/shop/db", env=made.env, ports=(port,))
    assert (made.env["MARATHON_APP_ID"], made.env["MARATHON_APP_VERSION"]) == ("/shop/db", VERSION)


COMMAND = HealthCheck(Protocol.COMMAND, command="true")
HONOURED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "id": ({"id": "/a/b/c"}, {"name": "c.b.a", "app": "/a/b/c"}),
    "cmd": ({"cmd": "true"}, {"command": "true", "argv": ()}),
    "args": ({"cmd": None, "args": ("echo", "a b")}, {"command": None, "argv": ("echo", "a b"), "args": ()}),
    "cpus": ({"cpus": 0.25}, {"cpus": 0.25}),
    "resource_limits": ({"resource_limits": ResourceLimits(cpus=2.5)}, {"cpu_limit": 2.5}),
    "resource_limits unlimited": (
        {"resource_limits": ResourceLimits(cpus=float("inf"))},
        {"cpu_limit": None},
    ),
    "mem_mib": ({"mem_mib": 100.5}, {"mem_mib": 101}),
    "disk_mib": ({"disk_mib": 10.5}, {"disk_mib": 11}),
    "gpus": ({"gpus": 2}, {"gpus": 2}),
    "fetch": ({"fetch": (Artifact("http://x/y"),)}, {"fetch": (Artifact("http://x/y"),)}),
    "constraints": (
        {"constraints": (Constraint("hostname", Operator.UNIQUE),)},
        {"constraints": (Constraint("hostname", Operator.UNIQUE),)},
    ),
    "user": ({"user": "alice"}, {"user": "alice"}),
    "labels": ({"labels": {"a": "b"}}, {"labels": {"a": "b"}}),
    "task_kill_grace_s": ({"task_kill_grace_s": 0}, {"kill_grace_s": 0.0}),
    "health_checks": ({"health_checks": (HealthCheck(), COMMAND)}, {"health_checks": (COMMAND,)}),
    "container": (
        {"cmd": None, "container": in_image()},
        {"command": None, "image": "nginx", "container_engine": Engine.MESOS},
    ),
    "container.type": (
        {"container": Container(EngineType.DOCKER, DockerImage("nginx"))},
        {"command": "sleep 1000", "image": "nginx", "container_engine": Engine.DOCKER},
    ),
    "container without an image": (
        {"container": Container(EngineType.MESOS)},
        {"image": None, "container_engine": Engine.MESOS},
    ),
    "args with an image": (
        {"cmd": None, "args": ("-v",), "container": in_image()},
        {"command": None, "argv": (), "args": ("-v",)},
    ),
    "volumes": (
        {"container": with_volumes(Volume("/a", "/b", VolumeMode.RO), Volume("c", "/d", VolumeMode.RW))},
        {"mounts": (Mount("/b", "/a"), Mount("/d", "c", read_only=False))},
    ),
    "accepted_resource_roles": ({"accepted_resource_roles": ("*",)}, {}),
    "role": ({"role": "gpu", "accepted_resource_roles": ("gpu", "*")}, {}),
    "force_pull_image": ({"container": in_image(force_pull_image=True)}, {"image": "nginx", "pull": True}),
    "force_pull_image of a digest": (
        {"container": in_image(image="nginx@sha256:" + "0" * 64, force_pull_image=True)},
        {"image": "nginx@sha256:" + "0" * 64, "pull": False},
    ),
    "parameters": (
        {"container": in_docker(parameters=(DockerParameter("shm-size", "1g"),))},
        {"docker": DockerOptions(shm_bytes=1 << 30)},
    ),
    "env of parameters": (
        {"env": {"A": "app"}, "container": in_docker(parameters=(DockerParameter("env", "A=b"),))},
        {"docker": DockerOptions(env={"A": "b"})},
    ),
    "networks": (
        {**BRIDGED, "health_checks": (replace(INSIDE, port=80),)},
        {
            "bridge": True,
            "ports": (PortWish("web", 80, 0, labels=ON_HOST), PortWish(None, 0, 0, ("udp", "tcp"), ON_HOST)),
        },
    ),
    "mem_mib of none": ({"mem_mib": 0.0}, {"mem_mib": 1}),
    "tty": ({"tty": False}, {}),
    "CUDA": ({"gpus": 1, "labels": {CUDA_LABEL: "12.2"}}, {"min_driver": "535"}),
}


def test_job_has_the_fields_of_its_app() -> None:
    for name, (asked, want) in HONOURED.items():
        made = job(replace(PLAIN, **asked))
        assert {field: getattr(made, field) for field in want} == want, name


ENV = {"env": {"A": "1", "MARATHON_APP_ID": "mine"}}


def test_job_environment_set_by_the_app_wins() -> None:
    made = job(replace(PLAIN, **ENV))  # type: ignore[arg-type]
    assert (made.env["A"], made.env["MARATHON_APP_ID"]) == ("1", "mine")


def test_gpu_options_become_fields_of_the_job() -> None:
    gpu = GpuOptions(
        models=("A100", "V100"),
        memory_mib=40000,
        compute_capability="8.0",
        min_driver="535",
        placement=Placement.SPREAD,
        on_gpu_failure=OnGpuFailure.NOTIFY,
        priority=7,
        queue="research",
        preemptible=True,
    )
    made = job(replace(PLAIN, gpus=1, labels={CUDA_LABEL: "whatever"}), gpu)
    assert made.gpu_model == gpu.models
    assert (made.gpu_memory_mib, made.compute_capability, made.min_driver) == (40000, "8.0", "535")
    assert (made.placement, made.on_gpu_failure) == (Placement.SPREAD, OnGpuFailure.NOTIFY)
    assert (made.priority, made.queue, made.preemptible) == (7, "research", True)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "id": ("id", {"id": "/" + "a" * (MAX_OF_APP + 1)}),
    "nothing to run": ("cmd", {"cmd": ""}),
    "fetch above the sandbox": ("fetch.0", {"fetch": (Artifact("http://x/y", dest_path="../y"),)}),
    "fetch of no file": ("fetch.0", {"fetch": (Artifact("http://x/"),)}),
    "networks": ("networks", {"networks": (Network(NetworkMode.BRIDGE),)}),
    "a bridge by Mesos": ("networks", {"networks": (Network(NetworkMode.BRIDGE),), "container": in_image()}),
    "a check of a port that nothing leads to": ("healthChecks", {**BRIDGED, "health_checks": (INSIDE,)}),
    "networks with a name": ("networks", {"networks": (Network(NetworkMode.CONTAINER, "n"),)}),
    "volumes of an image's sandbox": (
        "container.volumes",
        {"container": replace(in_image(), volumes=(Volume("/a", "b"),))},
    ),
    "volumes of relative paths": ("container.volumes.0", {"container": with_volumes(Volume("/a", "../b"))}),
    "volumes in one place": (
        "container.volumes.1",
        {"container": with_volumes(Volume("a", "/b"), Volume("a/", "/c"))},
    ),
    "volumes out of the sandbox": ("container.volumes.0", {"container": with_volumes(Volume("../a", "/b"))}),
    "privileged": ("container.docker.privileged", {"container": in_image(privileged=True)}),
    "parameters": (
        "container.docker.parameters.1",
        {
            "container": in_docker(
                parameters=(DockerParameter("init", "true"), DockerParameter("volume", "a"))
            )
        },
    ),
    "seccomp": (
        "container.linuxInfo.seccomp",
        {"container": Container(EngineType.MESOS, linux_info=LinuxInfo(seccomp=Seccomp(unconfined=True)))},
    ),
    "ipc": (
        "container.linuxInfo.ipcInfo",
        {"container": Container(EngineType.MESOS, linux_info=LinuxInfo(ipc=IpcInfo(IpcMode.PRIVATE)))},
    ),
    "secrets": ("secrets", {"env": {"A": SecretRef("key")}, "secrets": {"key": "/path"}}),
    "resource_limits": ("resourceLimits", {"resource_limits": ResourceLimits(mem_mib=float("inf"))}),
    "tty": ("tty", {"tty": True}),
    "a check of a port that is not mapped": ("check", {**BRIDGED, "check": Check(tcp=PortCheck(port=8080))}),
    "CUDA": (f"labels.{CUDA_LABEL}", {"gpus": 1, "labels": {CUDA_LABEL: "99.9"}}),
    "user": ("user", {"user": "root"}),
}


def test_app_field_that_no_job_can_have_is_refused() -> None:
    for name, (field, asked) in REFUSED.items():
        app = replace(PLAIN, **asked)
        assert [each.field for each in unsupported(app, NO_GPU, permits=NOTHING)] == [field], name
        said = job_of(app, NO_GPU, version=VERSION, permits=NOTHING)
        assert isinstance(said, str), name
        assert said.startswith(f"{field}: "), name


OPEN = Permits(secrets=True)


def test_secrets_are_variables_and_files() -> None:
    app = replace(
        PLAIN,
        env={"HF_TOKEN": SecretRef("hf"), "B": "b"},
        secrets={"hf": "/team/hf", "key": "team/ssh#key", "unused": "not even a path"},
        container=with_volumes(
            Volume("keys/id", secret="key"), Volume("/a", "/a"), Volume("./.netrc", secret="hf")
        ),
    )
    made = job(app, permits=OPEN)
    assert made.secrets == (
        Secret("HF_TOKEN", "team/hf"),
        Secret("SECRET_FILE_0", "team/ssh#key", "keys/id"),
        Secret("SECRET_FILE_1", "team/hf", ".netrc"),
    )
    assert made.env["B"] == "b"
    assert "HF_TOKEN" not in made.env
    assert [mount.source for mount in made.mounts] == ["/a"]


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("container.volumes.0.containerPath", {"container": with_volumes(Volume("/etc/key", secret="key"))}),
        ("container.volumes.0.containerPath", {"container": with_volumes(Volume("../key", secret="key"))}),
        (
            "container.volumes.1.containerPath",
            {"container": with_volumes(Volume("a", secret="key"), Volume("a/b", secret="key"))},
        ),
        ("env.A-B", {"env": {"A-B": SecretRef("key")}}),
        ("env.MESOS_X", {"env": {"MESOS_X": SecretRef("key")}}),
        ("secrets", {"env": {"A": SecretRef("key")}, "secrets": {"key": "no path!"}}),
        (
            "container.volumes.0.containerPath",
            {"env": {"SECRET_FILE_0": "x"}, "container": with_volumes(Volume("a", secret="key"))},
        ),
        ("secrets", {"env": {f"S{n}": SecretRef("key") for n in range(33)}}),
    ],
)
def test_secrets_that_no_task_can_be_given(field: str, asked: dict[str, Any]) -> None:
    app = replace(PLAIN, **{"secrets": {"key": "team/key"}, **asked})
    assert [each.field for each in unsupported(app, NO_GPU, permits=OPEN)] == [field]


@pytest.mark.parametrize(
    "how",
    [{"gpu": GpuOptions(control_access=(Control.API,))}, {"labels": {"MESOS_GPU_CONTROL_ACCESS": "api"}}],
)
def test_control_access_is_for_apps_on_the_list(how: dict[str, Any]) -> None:
    app = replace(PLAIN, user="alice", **how)
    (problem,) = unsupported(app, gpu_options(app), permits=NOTHING)
    assert (problem.field, "--control-access /shop/db@alice=api" in problem.why) == (
        "gpu.control_access",
        True,
    )
    allowed = Permits(control_access={"/shop/db@alice": (Control.API,)})
    made = job(app, gpu_options(app), permits=allowed)
    assert made.control_access == (Control.API,)
    assert unsupported(replace(app, user="bob"), gpu_options(app), permits=allowed)


def test_app_of_a_network_that_the_operator_names_is_in_the_network_of_the_host() -> None:
    allowed = Permits(host_networks=("dcos", "mesos-bridge"))
    mappings = (PortMapping(8080, None, name="web"), PortMapping(0, 0), PortMapping(80, 9000, name="old"))
    for network, container in (
        (Network(NetworkMode.CONTAINER, "dcos"), in_docker()),
        (Network(NetworkMode.CONTAINER, "dcos"), Container(EngineType.MESOS)),
        (Network(NetworkMode.BRIDGE), in_image()),
    ):
        app = replace(PLAIN, container=replace(container, port_mappings=mappings), networks=(network,))
        made = job(app, permits=allowed)
        assert ([each.host_port for each in made.ports], made.bridge) == ([8080, 0, 9000], False)
        assert [each.field for each in without_effect(app, NO_GPU)] == ["networks"]
        other = replace(app, networks=(Network(NetworkMode.CONTAINER, "other"),))
        (problem,) = unsupported(other, NO_GPU, permits=allowed)
        assert (problem.field, "--network-as-host other" in problem.why) == ("networks", True)
    assert job(replace(PLAIN, **BRIDGED), permits=allowed).bridge is True


def test_app_refusal_gives_all_reasons_and_an_operator_may_allow_root() -> None:
    app = replace(PLAIN, env={"A": SecretRef("s")}, secrets={"s": "x"}, tty=True, user="root")
    said = job_of(app, NO_GPU, version=VERSION, permits=NOTHING)
    assert isinstance(said, str)
    assert [part.partition(": ")[0] for part in said.split("; ") if ": " in part] == [
        "tty",
        "user",
        "secrets",
    ]
    assert job(replace(PLAIN, user="root"), permits=Permits(Root.HOST)).user == "root"


# Fields that have no part in the job, and whose they are.
ELSEWHERE = {
    "pull_config": "secrets",
    "instances": "controller",
    "upgrade_strategy": "controller",
    "kill_selection": "controller",
    "unreachable_strategy": "controller",
    "backoff_s": "controller",
    "backoff_factor": "controller",
    "max_launch_delay_s": "controller",
    "dependencies": "controller",
    "readiness_checks": "controller",
    "check": "launch",
    "port_definitions": "launch",
    "require_ports": "launch",
    "port_mappings": "launch",
    "env": "secrets, and the test of variables",
    "gpu": "the argument",
    "owner": "who may do what",
    "gpu_milli": "what `gpus` asks for of one",
    "executor": "mesos_gpu has one",
}

WITHOUT_EFFECT: dict[str, tuple[str, dict[str, Any]]] = {
    "accepted_resource_roles": (
        "acceptedResourceRoles",
        {"role": "gpu", "accepted_resource_roles": ("gpu",)},
    ),
    "accepted_resource_roles of others": (
        "acceptedResourceRoles",
        {"accepted_resource_roles": ("slave_public",)},
    ),
    "executor_resources": ("executorResources", {"executor_resources": ExecutorResources()}),
    "role": ("role", {"role": "gpu"}),
    "a variable of GPUs": ("env.NVIDIA_VISIBLE_DEVICES", {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}),
    "another variable of GPUs": (
        "env.CUDA_VISIBLE_DEVICES",
        {"gpus": 1, "env": {"CUDA_VISIBLE_DEVICES": "0"}},
    ),
    "parameters of Docker": (
        "container.docker.parameters.1",
        {"container": in_docker(parameters=(DockerParameter("init", "true"), DockerParameter("name", "a")))},
    ),
    "residency": (
        "residency.taskLostBehavior",
        {"residency": Residency(task_lost_behavior=LostBehavior.RELAUNCH)},
    ),
    "fetch by Hadoop": ("fetch.1", {"fetch": (Artifact("http://x/y"), Artifact("hdfs://n:8020/a/b.tgz"))}),
}


def test_app_field_without_effect_is_accepted_and_named() -> None:
    for name, (field, asked) in WITHOUT_EFFECT.items():
        app = replace(PLAIN, **asked)
        told = {each.field: each.why for each in without_effect(app, NO_GPU)}
        assert field in told, name
        assert told.keys() - {field} <= {"role"}, name
        assert isinstance(job_of(app, NO_GPU, version=VERSION, permits=NOTHING), JobSpec), name
        assert "set gpus: N" in told[field] if "NVIDIA" in field else told[field], name
    assert without_effect(PLAIN, NO_GPU) == ()


def test_app_fields_are_all_accounted_for() -> None:
    names = {field.name for kind in (App, Container, DockerImage, LinuxInfo) for field in fields(kind)}
    inner = {"type": "container.type", "image": "container", "docker": "container", "linux_info": "seccomp"}
    known = HONOURED.keys() | REFUSED.keys() | ELSEWHERE.keys() | WITHOUT_EFFECT.keys()
    assert {name for name in names if inner.get(name, name) not in known} == set()


def test_app_fields_without_effect_leave_the_job_as_it_is() -> None:
    others = replace(
        PLAIN,
        instances=7,
        backoff_s=9,
        dependencies=("/a",),
        readiness_checks=(ReadinessCheck(),),
        port_definitions=(PortDefinition(8080),),
        require_ports=True,
        executor="//cmd",
        executor_resources=ExecutorResources(),
    )
    assert replace(job(others), ports=()) == replace(job(PLAIN), ports=())
    assert job(others).ports == (PortWish(None, 8080, 8080),)


def test_documents_of_marathon_run_or_say_what_they_lack() -> None:
    file = Path(__file__).parents[3] / "data/marathon/documents.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    seen: Counter[str] = Counter()
    for each in (each for each in lines if each["kind"] == "app"):
        app = app_of(each["document"], allowed=Allowed(secrets=True, default_network="n"))
        if not isinstance(app, App):
            continue
        made = job_of(app, gpu_options(app), version=VERSION, permits=Permits(Root.HOST))
        missing = {reason.field for reason in unsupported(app, gpu_options(app), permits=Permits(Root.HOST))}
        assert isinstance(made, str) == bool(missing)
        seen.update(missing or {"it runs"})
    assert seen["it runs"] >= 38, seen


@pytest.mark.parametrize("container", [in_image, in_docker])
def test_pull_config_of_an_app_is_the_image_secret_of_its_job(container: Any) -> None:
    pulled = container(pull_config=SecretRef("ngc"))
    app = replace(PLAIN, container=pulled, secrets={"ngc": "/team/ngc"})
    job = job_of(app, NO_GPU, version=VERSION, permits=replace(NOTHING, secrets=True))
    assert isinstance(job, JobSpec)
    assert (job.image_secret, job.secrets) == ("team/ngc", ())
    refused = unsupported(app, NO_GPU, permits=NOTHING)
    assert [each.field for each in refused] == ["secrets"]
    unfit = unsupported(replace(app, secrets={"ngc": "team ngc"}), NO_GPU)
    assert [each.field for each in unfit] == ["secrets"]
