"""Tasks that try to listen at ports of other tasks, on a real Mesos: as a process, in an image of the agent's, by Docker.

A squatter asks for one port and no GPU, and tries the ports of all agents; an app then listens at its own.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.host.port_ranges import Range, of_agent
from mesos_gpu.cli.client import Client
from mesos_gpu.local.cluster import FIXED_PORTS
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from mesos_gpu.testing.images import busybox_layer, save
from mesos_gpu.testing.python_image import python_layer
from tests.clients import client_of, run
from tests.kernel.confinement.test_task_ports import SQUAT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it there are no rules"),
    pytest.mark.skipif(bool(dockerd.missing()), reason=f"needs an engine and images: {dockerd.missing()}"),
]
IMAGE = "python:1"
_PACKAGES = ("collections", "ctypes", "encodings", "importlib", "json", "re")
_MODULES = ("_ctypes", "_struct", "_json", "_socket", "select", "math", "array")
KINDS: list[dict[str, Any]] = [
    {},
    {"image": IMAGE, "container_engine": "mesos"},
    {"image": IMAGE, "container_engine": "docker"},
]
NAMES = ["process", "image", "docker"]


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    base = busybox_layer(dockerd.busybox(), ["sh", "cat", "id"])
    environment = {"Env": ["PATH=/usr/bin:/bin", "PYTHONHOME=/usr"]}
    return save(
        open_directory / "images", IMAGE, [base, python_layer(_PACKAGES, _MODULES)], environment
    ).parent


@pytest.fixture(
    scope="module",
    params=[{}, {"secure": True}, {"pool": "60000-60099"}],
    ids=["up", "secure", "user pool"],
)
def stack(open_directory: Path, images: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    pool = {"MESOS_GPU_USER_POOL": request.param["pool"]} if "pool" in request.param else {}
    with (
        dockerd.Dockerd() as engine,
        Stack(
            open_directory / "-".join(request.param or ["up"]),
            [NodeSpec(1), NodeSpec(1)],
            images=images,
            devices="mesos",
            secure=bool(request.param.get("secure")),
            executor_environment={"MESOS_GPU_DOCKER_SOCKET": str(engine.socket), **pool},
        ) as running,
    ):
        engine.load(images / f"{IMAGE}.tar")
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 2) as client:
        yield client


def ranges_of(stack: Stack) -> list[Range]:
    """Return the ranges of ports that the agents give to tasks, as the agents have written them down."""
    return sorted({each for agent in stack.cluster.agents for each in of_agent(f"{agent.directory}/work")})


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_squatter_gets_none_of_the_ports_of_other_tasks(
    stack: Stack, client: Client, kind: dict[str, Any]
) -> None:
    """500 of 500 were bound before bind was an allow list."""
    ranges = ranges_of(stack)
    assert FIXED_PORTS in ranges
    assert len(ranges) == 3, "the fixed ports, and a range of each agent"
    words = " ".join(f"{first}-{min(last, first + 160)}" for first, last in ranges)
    code = SQUAT.read_text()
    state, text = run(
        client, argv=["/usr/bin/python3", "-c", code, *words.split()], gpus=0, ports=[0], **kind
    )
    assert state == "finished", text
    got = json.loads(text)
    inside = {port for first, last in ranges for port in range(first, last + 1)}
    assert not set(got.pop("chosen")) & inside
    bound = {port for ports in got.values() for port in ports}
    assert len(bound) <= 1, got
