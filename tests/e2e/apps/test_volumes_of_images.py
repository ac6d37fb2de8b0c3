"""Persistent volumes of apps and jobs whose tasks are images, by Mesos' containerizer and by the Docker Engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.api.spec.tasks.volumes import NamedVolume, NamedVolumes
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import run
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.e2e.apps.test_marathon import call, settled

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(dockerd.missing()), reason=f"needs images and an engine: {dockerd.missing()}"),
]
VOLUMES = [
    {"containerPath": "data", "mode": "RW", "persistent": {"type": "root", "size": 20}},
    {"containerPath": "/data", "mode": "RW", "hostPath": "data"},
]


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    directory, base = open_directory / "images", busybox_layer(dockerd.busybox(), ["sh", "sleep"])
    save(directory, "plain:1", [base], {"Env": ["PATH=/bin"]})
    return directory


@pytest.fixture(scope="module")
def stack(open_directory: Path, images: Path, engine: dockerd.Dockerd) -> Iterator[Stack]:
    given = {"MESOS_GPU_DOCKER_SOCKET": str(engine.socket)}
    directory = open_directory / "cluster"
    made = Stack(directory, [NodeSpec(1)], images=images, devices="mesos", executor_environment=given)
    with made as stack, Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        yield stack


@pytest.mark.parametrize("kind", ["MESOS", "DOCKER"])
def test_volume_of_an_image_outlives_a_restart(stack: Stack, kind: str) -> None:
    url, id = stack.url, f"/db-{kind.lower()}"
    app: dict[str, Any] = {
        "id": id,
        "cmd": "echo $MESOS_SANDBOX >> $MESOS_SANDBOX/data/log; echo root >> /data/log; exec sleep 1000",
        "cpus": 0.1,
        "mem": 64,
        "portDefinitions": [],
        "taskKillGracePeriodSeconds": 0,
        "container": {"type": kind, "docker": {"image": "plain:1"}, "volumes": VOLUMES},
    }
    call("POST", f"{url}/v2/apps", 201, json=app)
    settled(url)
    call("POST", f"{url}/v2/apps{id}/restart", 200)
    settled(url)
    (task,) = call("GET", f"{url}/v2/apps{id}/tasks", 200)["tasks"]
    (volume,) = task["localVolumes"]
    log = stack.persistent(1) / volume["uuid"] / "log"
    wait_until("both tasks have written", lambda: log.read_text() == "/mnt/mesos/sandbox\nroot\n" * 2)
    call("DELETE", f"{url}/v2/apps{id}", 200)
    settled(url)


@pytest.mark.parametrize("engine_of_image", ["mesos", "docker"])
def test_named_volume_of_a_job_with_an_image_is_there_for_the_next(
    stack: Stack, engine_of_image: str
) -> None:
    name = f"data-{engine_of_image}"
    volumes: list[Any] = [{"name": name, "path": "data", "size": "20MiB"}, "data:/data"]
    line = (
        "echo $MESOS_SANDBOX >> $MESOS_SANDBOX/data/log; echo root >> /data/log; read a < /data/log; echo $a"
    )
    request = {"command": line, "image": "plain:1", "container_engine": engine_of_image, "volumes": volumes}
    with Client(stack.url) as client:
        assert [run(client, **request) for _ in range(2)] == [("finished", "/mnt/mesos/sandbox\n")] * 2
        listed = client.call("GET", "/v1/volumes", NamedVolumes)["volumes"]
        (volume,) = [each for each in listed if each["name"] == name]
        log = stack.persistent(1) / volume["id"] / "log"
        assert log.read_text() == "/mnt/mesos/sandbox\nroot\n" * 2
        client.call("DELETE", f"/v1/volumes/{name}", NamedVolume)
        wait_until("its directory is removed", lambda: not log.exists(), 60)
