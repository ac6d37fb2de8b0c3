"""Tasks and the metadata address of clouds, in a network namespace without outside connection: the test itself provides
the address and the server.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.network import Host
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from mesos_gpu.testing.images import busybox_layer, save
from tests.clients import client_of
from tests.conftest import wait_until
from tests.starts.needs import NAMESPACES

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    *NAMESPACES,
    pytest.mark.skipif(bool(dockerd.missing()), reason=f"needs images: {dockerd.missing()}"),
]
ADDRESS = "169.254.169.254"
KEY = "AccessKeyId"
PYTHON = "/usr/bin/python3"  # one that the user nobody can run
READ = f"import urllib.request as u; print(u.urlopen('http://{ADDRESS}/key', timeout=20).read().decode())"


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    images = open_directory / "images"
    layer = busybox_layer(dockerd.busybox(), ["sh", "wget"])
    save(images, "busy:1", [layer], {"Env": ["PATH=/bin"]})
    with Stack(
        open_directory / "stack", [NodeSpec(1)], hosts=True, secure=True, images=images, devices="mesos"
    ) as stack:
        yield stack


@pytest.fixture(scope="module")
def host(stack: Stack, open_directory: Path) -> Iterator[Host]:
    """The agent's host, with the metadata address and a server there."""
    host = stack.cluster.agents[0].host
    assert host is not None
    command = ["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"]
    subprocess.run(host.inside(command), check=True)
    pages = open_directory / "pages"
    pages.mkdir()
    (pages / "key").write_text(KEY)
    words = [sys.executable, "-m", "http.server", "80", "--bind", ADDRESS, "--directory", str(pages)]
    server = subprocess.Popen(host.inside(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until("a process that is no task reads it", lambda: KEY in read(host), 30)
        yield host
    finally:
        server.kill()
        server.wait()


def read(host: Host) -> str:
    return subprocess.run(host.inside([PYTHON, "-c", READ]), capture_output=True, text=True).stdout


@pytest.fixture
def client(stack: Stack, host: Host) -> Iterator[Client]:
    with client_of(stack, 1) as client:
        yield client


def test_no_task_reads_a_clouds_credentials(client: Client) -> None:
    wget = f"wget -q -O - http://{ADDRESS}/key"
    kinds: dict[str, dict[str, object]] = {
        "process": {"argv": [PYTHON, "-c", READ]},
        "image": {"command": wget, "image": "busy:1"},
        "fetcher": {"command": "cat key", "fetch": [f"http://{ADDRESS}/key"]},
    }
    jobs = {
        name: client.submit({"name": name, "cpus": 0.1, "mem_mib": 64, **more})
        for name, more in kinds.items()
    }
    ends = {name: [*client.follow(job)][-1] for name, job in jobs.items()}
    assert {end["state"] for end in ends.values()} == {"failed"}
    for name in ("process", "image"):
        said = [
            client.logs(jobs[name]["id"], stream=stream, offset=0, length=60000)["data"]
            for stream in ("stdout", "stderr")
        ]
        assert KEY not in said[0]
        assert "Operation not permitted" in said[1], name
    assert f"could not fetch http://{ADDRESS}/key" in ends["fetcher"]["message"]
