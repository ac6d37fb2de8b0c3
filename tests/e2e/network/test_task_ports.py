"""Tasks that try to listen at ports of other tasks, on a real Mesos: as a process, in an image, by Docker.

A squatter asks for one port and no GPU, and tries the ports of all agents; an app then listens at its own.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.host.port_ranges import Range, of_agent
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local import cluster
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from mesos_gpu.testing.images import busybox_layer, save
from mesos_gpu.testing.python_image import python_layer
from tests.clients import client_of, free_all
from tests.conftest import wait_until
from tests.kernel.network.test_task_ports import SQUAT, bound_in

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it there are no rules"),
    pytest.mark.skipif(bool(dockerd.missing()), reason=f"needs an engine and images: {dockerd.missing()}"),
]
IMAGE = "python:1"
_PACKAGES = ("collections", "ctypes", "encodings", "importlib", "json", "re")
_MODULES = ("_ctypes", "_struct", "_json", "_socket", "select", "math", "array")
KINDS: dict[str, dict[str, Any]] = {
    "process": {},
    "image": {"image": IMAGE, "container_engine": "mesos"},
    "docker": {"image": IMAGE, "container_engine": "docker"},
}


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
            open_directory / ("pool" if pool else "secure" if request.param else "up"),
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
    """Return the ranges of ports that the agents give to tasks, from the agents' checkpoints."""
    return sorted({each for agent in stack.cluster.agents for each in of_agent(f"{agent.directory}/work")})


def submitted(client: Client, name: str, code: str, *words: str, **more: Any) -> Job:
    """Submit a job that runs Python code, without a GPU and with one port."""
    argv = ["/usr/bin/python3", "-c", code, *words]
    request = {"name": name, "argv": argv, "ports": [0], "cpus": 0.1, "mem_mib": 64, **more}
    return client.submit(request)


def output(client: Client, job: Job) -> str:
    return str(client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"])


def tries(stack: Stack) -> list[str]:
    """Return all ports of all agents, as the programs of these tests take them."""
    return [f"{first}-{last}" for first, last in ranges_of(stack)]


def test_a_squatter_binds_no_port_but_its_own(stack: Stack, client: Client) -> None:
    """Without the rules a squatter could bind each of these ports."""
    ranges = ranges_of(stack)
    assert cluster.FIXED_PORTS in ranges
    assert len(ranges) == 3, "the fixed ports, and a range of each agent"
    inside = {port for first, last in ranges for port in range(first, last + 1)}
    kinds = dict(KINDS)
    if stack.directory.name == "pool":
        del kinds["image"]  # Mesos runs images as users with accounts
    code = "import os; print(os.environ['PORT0'])\n" + SQUAT.read_text()
    jobs = {name: submitted(client, name, code, *tries(stack), **more) for name, more in kinds.items()}
    for name, job in jobs.items():
        last = [*client.follow(job)][-1]
        assert last["state"] == "finished", (name, last["message"])
        own, said = output(client, job).splitlines()
        got = bound_in(said)
        assert not got.pop("chosen") & inside
        bound = {port for ports in got.values() for port in ports}
        assert bound == {int(own)}, (name, got)


#: Binds whatever it can of the range, shared, again and again, and answers there; says what it got.
STAY = """
import os, socket, sys, time
ranges = [tuple(map(int, each.split("-"))) for each in sys.argv[1:]]
held = {}
print("own", os.environ["PORT0"], flush=True)
while True:
    for first, last in ranges:
        for port in range(first, last + 1):
            if port in held:
                continue
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                made.bind(("0.0.0.0", port))
                made.listen()
            except OSError:
                made.close()
            else:
                held[port] = made
                print("got", port, flush=True)
    time.sleep(0.05)
"""
SERVE = """
import os, socket
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
made.bind(("0.0.0.0", int(os.environ["PORT0"])))
made.listen(64)
print("own", os.environ["PORT0"], flush=True)
while True:
    with made.accept()[0] as client:
        client.sendall(b"mine")
"""


def answers(port: int) -> set[bytes]:
    """Return the answers to forty connections."""
    said = set()
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.settimeout(5)
            said.add(connection.recv(16))
    return said


def own_port(client: Client, job: Job) -> int:
    """Return the port that a job prints when it has begun."""
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running", 30)
    wait_until("it has begun", lambda: "own" in output(client, job), 30)
    return int(output(client, job).split()[1])


def test_a_server_has_its_port_to_itself_beside_a_squatter(stack: Stack, client: Client) -> None:
    """Without the rules a squatter that shared the port got half of its connections, and an earlier one all."""
    squatter = submitted(client, "stay", STAY, *tries(stack))
    try:
        own = own_port(client, squatter)
        server = submitted(client, "serve", SERVE)
        port = own_port(client, server)
        assert answers(port) == {b"mine"}
        wait_until("it has its own port", lambda: "got" in output(client, squatter), 30)
        assert set(output(client, squatter).split()) == {"own", "got", str(own)}
        neighbour = next(each for each in (port + 1, port - 1, port + 2) if each != own)
        code = f"import socket; socket.socket().bind(('127.0.0.1', {neighbour}))"
        argv = [sys.executable, "-m", "mesos_gpu", "exec", "--url", stack.reach, squatter["id"], "--"]
        done = subprocess.run([*argv, "/usr/bin/python3", "-c", code], capture_output=True, timeout=60)
        assert b"PermissionError" in done.stderr, done
    finally:
        free_all(client)
