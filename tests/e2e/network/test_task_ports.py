"""Tasks that try to listen at ports of other tasks, on a real Mesos: as a process, in an image, by Docker.

A squatter asks for one port and no GPU, and tries the ports of all agents; an app then listens at its own.
"""

import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.host.port_ranges import Range, of_agent
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, command, free_all
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.doubles.python_image import python_layer
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
FORMS: dict[str, dict[str, Any]] = {
    "process": {},
    "nested": {"image": IMAGE, "container_engine": "mesos"},
    "docker": {"image": IMAGE, "container_engine": "docker"},
}
#: Cluster and form of the squatter. Mesos runs images as users with accounts, which uids of a pool do not have.
ATTACKS = [
    pytest.param(*pair, marks=[] if pair == ("up", "process") else [pytest.mark.long])
    for pair in itertools.product(("up", "secure", "pool"), FORMS)
    if pair != ("pool", "nested")
]


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    base = busybox_layer(dockerd.busybox(), ["sh", "cat", "id"])
    environment = {"Env": ["PATH=/usr/bin:/bin", "PYTHONHOME=/usr"]}
    return save(
        open_directory / "images", IMAGE, [base, python_layer(_PACKAGES, _MODULES)], environment
    ).parent


@pytest.fixture(scope="module")
def stack(
    open_directory: Path, images: Path, unstarted_engine: dockerd.Dockerd, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    pool = {"MESOS_GPU_USER_POOL": "60000-60099"} if request.param == "pool" else {}
    with Stack(
        open_directory / request.param,
        [NodeSpec(1), NodeSpec(1)],
        images=images,
        devices="mesos",
        secure=request.param == "secure",
        executor_environment={"MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket), **pool},
    ) as running:
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


@pytest.mark.parametrize(("stack", "form"), ATTACKS, indirect=True, scope="module")
def test_a_squatter_binds_no_port_but_its_own(stack: Stack, client: Client, form: str) -> None:
    """Without the rules a squatter could bind each of these ports."""
    ranges = ranges_of(stack)
    assert stack.cluster.fixed_ports in ranges
    assert len(ranges) == 3, "the fixed ports, and a range of each agent"
    inside = {port for first, last in ranges for port in range(first, last + 1)}
    code = "import os; print(os.environ['PORT0'])\n" + SQUAT.read_text()
    job = submitted(client, form, code, *tries(stack), **FORMS[form])
    last = [*client.follow(job)][-1]
    assert last["state"] == "finished", last["message"]
    own, said = output(client, job).splitlines()
    got = bound_in(said)
    assert not got.pop("chosen") & inside
    bound = {port for ports in got.values() for port in ports}
    assert bound == {int(own)}, got


#: Binds all ports that it can of the range, shared, once more for each file that comes, and answers there; says which.
STAY = """
import itertools, os, socket, sys, time
os.chdir(os.environ["MESOS_SANDBOX"])
ranges = [tuple(map(int, each.split("-"))) for each in sys.argv[1:]]
held = {}
print("own", os.environ["PORT0"], flush=True)
for number in itertools.count():
    while not os.path.exists(f"try{number}"):
        time.sleep(0.05)
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
    print("tried", number, flush=True)
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


def try_all(stack: Stack, client: Client, squatter: Job, number: int) -> None:
    """Have a squatter try all ports, for the first time or again by number, before its server begins and beside it."""
    command(
        "exec", "--url", stack.reach, squatter["id"], "--", "sh", "-c", f"touch $MESOS_SANDBOX/try{number}"
    )
    wait_until("it has tried all", lambda: f"tried {number}\n" in output(client, squatter), 30)


@pytest.mark.parametrize(
    "stack",
    ["up", *(pytest.param(each, marks=pytest.mark.long) for each in ("secure", "pool"))],
    indirect=True,
)
def test_a_server_has_its_port_to_itself_beside_a_squatter(stack: Stack, client: Client) -> None:
    """Without the rules a squatter that shared the port got half of its connections, and an earlier one all."""
    squatter = submitted(client, "stay", STAY, *tries(stack))
    try:
        own = own_port(client, squatter)
        try_all(stack, client, squatter, 0)
        server = submitted(client, "serve", SERVE)
        port = own_port(client, server)
        try_all(stack, client, squatter, 1)
        assert answers(port) == {b"mine"}
        assert output(client, squatter).splitlines() == [f"own {own}", f"got {own}", "tried 0", "tried 1"]
        neighbour = next(each for each in (port + 1, port - 1, port + 2) if each != own)
        code = f"import socket; socket.socket().bind(('127.0.0.1', {neighbour}))"
        argv = ("/usr/bin/python3", "-c", code)
        done = command("exec", "--url", stack.reach, squatter["id"], "--", *argv)
        assert b"PermissionError" in done.stderr, done
    finally:
        free_all(client)
