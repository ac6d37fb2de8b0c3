"""Tasks and the metadata address of clouds, in a network namespace without outside connection: the test itself provides
the address and the server.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.marathon import Marathon
from mesos_gpu.local.network import Host
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
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


@pytest.fixture(scope="module", params=["deny", "allow"])
def setting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    directory = open_directory / "images"
    layer = busybox_layer(dockerd.busybox(), ["sh", "wget", "sleep"])
    save(directory, "busy:1", [layer], {"Env": ["PATH=/bin"]})
    return directory


@pytest.fixture(scope="module")
def stack(open_directory: Path, images: Path, setting: str) -> Iterator[Stack]:
    given = {
        "MESOS_GPU_METADATA": setting,
        "MESOS_GPU_DOCKER_SOCKET": str(open_directory / f"{setting}.sock"),
    }
    with Stack(
        open_directory / setting, [NodeSpec(1)], hosts=True, secure=True, images=images, devices="mesos",
        executor_environment=given,
    ) as stack:  # fmt: skip
        yield stack


@pytest.fixture(scope="module")
def host(stack: Stack, open_directory: Path) -> Iterator[Host]:
    """The agent's host, with the metadata address and a server there."""
    host = stack.cluster.agents[0].host
    assert host is not None
    command = ["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"]
    subprocess.run(host.inside(command), check=True)
    pages = open_directory / "pages"
    pages.mkdir(exist_ok=True)
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


@pytest.fixture(scope="module")
def engine(open_directory: Path, images: Path, host: Host, setting: str) -> Iterator[dockerd.Dockerd]:
    """An engine on the agent's host."""
    with dockerd.Dockerd(bridged=True, inside=host.inside) as engine:
        engine.load(images / "busy:1.tar")
        (open_directory / f"{setting}.sock").symlink_to(engine.socket)
        yield engine


WGET = f"wget -q -O - http://{ADDRESS}/key"
DENIED = "Operation not permitted"


def tried(client: Client) -> dict[str, tuple[str, str, str, str]]:
    """State, message, stdout and stderr of a job of each kind that reads them."""
    kinds: dict[str, dict[str, object]] = {
        "process": {"argv": [PYTHON, "-c", READ]},
        "image": {"command": WGET, "image": "busy:1"},
        "fetcher": {"command": "cat key", "fetch": [f"http://{ADDRESS}/key"]},
    }
    jobs = {
        name: client.submit({"name": name, "cpus": 0.1, "mem_mib": 64, **more})
        for name, more in kinds.items()
    }
    ends = {name: [*client.follow(job)][-1] for name, job in jobs.items()}

    def said(name: str, stream: str) -> str:
        return client.logs(jobs[name]["id"], stream=stream, offset=0, length=60000)["data"]

    return {
        name: (end["state"], end["message"], said(name, "stdout"), said(name, "stderr"))
        for name, end in ends.items()
    }


@pytest.mark.parametrize("setting", ["deny"], indirect=True)
def test_metadata_of_a_cloud_is_read_by_no_task(client: Client, setting: str) -> None:
    ends = tried(client)
    assert {state for state, *_ in ends.values()} == {"failed"}
    assert not any(KEY in out for _, _, out, _ in ends.values())
    assert all(DENIED in ends[name][3] for name in ("process", "image"))
    assert f"could not fetch http://{ADDRESS}/key" in ends["fetcher"][1]


@pytest.mark.long
@pytest.mark.parametrize("setting", ["allow"], indirect=True)
def test_metadata_is_read_by_tasks_where_the_agent_allows_it(client: Client, setting: str) -> None:
    ends = tried(client)
    assert {state for state, *_ in ends.values()} == {"finished"}, ends
    assert all(KEY in out for _, _, out, _ in ends.values())


@pytest.mark.long
@pytest.mark.parametrize("network", ["HOST", "BRIDGE"])
def test_metadata_is_read_by_containers_of_the_engine_only_where_allowed(
    client: Client, stack: Stack, engine: dockerd.Dockerd, setting: str, network: str
) -> None:
    id = f"/reads-{network.lower()}"
    app = {
        "id": id,
        "cmd": f'{WGET} > "$MESOS_SANDBOX/said" 2>&1; echo >> "$MESOS_SANDBOX/said" ended; exec sleep 600',
        "cpus": 0.1,
        "mem": 64,
        "container": {"type": "DOCKER", "docker": {"image": "busy:1", "network": network}},
    }
    apps = Marathon(client)
    apps.create(app, force=False)

    def said() -> str:
        texts = [path.read_text() for task in apps.app(id)["tasks"] for path in files(task["id"])]
        return next((text for text in texts if text.endswith("ended\n")), "")

    def files(task: str) -> Iterator[Path]:
        return stack.directory.glob(
            f"mesos/agent-1/work/slaves/*/frameworks/*/executors/{task}/runs/*-*/said"
        )

    try:
        wait_until("it has tried", said, 90)
        assert (KEY in said(), DENIED in said()) == (setting == "allow", setting == "deny"), said()
    finally:
        apps.change("DELETE", f"/v2/apps{id}", force=True)
