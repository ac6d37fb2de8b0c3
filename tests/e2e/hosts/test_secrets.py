"""Secrets of jobs on a real Mesos: they arrive, and nothing else on the machine has them."""

import hashlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, kill_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
#: Of this run alone: it is looked for everywhere.
TOKEN = f"s3cret-{uuid.uuid4().hex}"
SMALL = {"cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1}


def put(directory: Path, source: str, value: str) -> None:
    path = directory / source
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(f"{value}\n")


@pytest.fixture(scope="module")
def values(open_directory: Path) -> Path:
    directory = open_directory / "secrets"
    directory.mkdir(mode=0o700)
    put(directory, "team/hf", TOKEN)
    return directory


@pytest.fixture(scope="module")
def stack(open_directory: Path, values: Path) -> Iterator[Stack]:
    arguments = ["--secrets-dir", str(values), "--report-interval", "0.5", "--log-level", "DEBUG"]
    with Stack(open_directory / "stack", [NodeSpec(0)], scheduler_arguments=arguments) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 0) as client:
        yield client
        kill_all(client)


def state(client: Client, job: str, wanted: str) -> None:
    def reached() -> bool:
        now = client.job(job)
        assert now["state"] not in ({"failed", "killed", "finished"} - {wanted}), now["message"]
        return now["state"] == wanted

    try:
        wait_until(f"job {job} is {wanted}", reached)
    except AssertionError as error:
        raise AssertionError(f"{error}: {client.why(job)}\n{client.nodes()}") from error


def output(client: Client, job: str, name: str = "stdout") -> str:
    return client.logs(job, stream=name, offset=0, length=1 << 20)["data"]


def has(path: Path, wanted: bytes) -> bool:
    try:
        return path.is_file() and not path.is_symlink() and wanted in path.read_bytes()
    except OSError:
        return False


def leaks(stack: Stack, wanted: str, *, beside: Path) -> list[str]:
    """Where a value is found: what Mesos and we answer and write, and what processes were started with."""
    places = [
        str(path)
        for path in stack.directory.rglob("*")
        if not path.is_relative_to(beside) and has(path, wanted.encode())
    ]
    agent = stack.cluster.agents[0]
    addresses = [
        *(
            f"http://127.0.0.1:{stack.cluster.master.port}/{path}"
            for path in ("state", "tasks", "frameworks")
        ),
        *(f"http://{agent.ip}:{agent.port}/{path}" for path in ("state", "containers")),
        *(f"{stack.url}/{path}" for path in ("v1/jobs", "v1/nodes", "v2/apps", "v2/tasks", "metrics")),
    ]
    places += [address for address in addresses if wanted in requests.get(address, timeout=30).text]
    asked = subprocess.run(["ps", "axwwo", "args"], capture_output=True, text=True, check=True).stdout
    return [*places, *(["arguments of a process"] if wanted in asked else [])]


def with_environment(wanted: str) -> set[int]:
    """Processes that have a value in their environment."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {pid for pid in pids if has(Path(f"/proc/{pid}/environ"), f"={wanted}\0".encode())}


def test_a_variable_arrives_and_is_nowhere_else(client: Client, stack: Stack, values: Path) -> None:
    command = 'test -n "$HF_TOKEN" && printf %s "$HF_TOKEN" | sha256sum; exec sleep 600'
    job = client.submit({**SMALL, "command": command, "secrets": {"HF_TOKEN": "team/hf"}})["id"]
    state(client, job, "running")
    wait_until("it has said so", lambda: output(client, job))
    assert output(client, job).split()[0] == hashlib.sha256(TOKEN.encode()).hexdigest()
    assert dict(client.job(job))["secrets"] == {"HF_TOKEN": {"source": "team/hf", "file": None}}
    assert leaks(stack, TOKEN, beside=values) == []
    assert [Path(f"/proc/{pid}/comm").read_text() for pid in with_environment(TOKEN)] == ["sleep\n"]
