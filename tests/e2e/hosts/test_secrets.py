"""Secrets of jobs on a real Mesos: they arrive in processes, nested containers and containers of Docker, and nothing
else on the machine has them, whatever is killed when."""

import hashlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.cluster import Devices
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from mesos_gpu.testing.images import busybox_layer, save
from tests.clients import client_of, kill_all
from tests.conftest import wait_until
from tests.kernel.conftest import needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
#: Of this run alone: they are looked for everywhere.
TOKEN, KEY = f"s3cret-{uuid.uuid4().hex}", f"s3cret-{uuid.uuid4().hex}"
BOTH = {"HF_TOKEN": "team/hf", "KEY": {"source": "team/key", "file": "keys/id"}}
IMAGE = "small:1"
RUNS: dict[str, dict[str, Any]] = {
    "process": {}, "nested": {"image": IMAGE}, "docker": {"image": IMAGE, "container_engine": "docker"}
}  # fmt: skip
MODES: dict[str, Devices] = {"cgroup1": "mesos", "cgroup2": "cgroup2"}
SMALL = {"cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1}
APPLETS = ["sh", "cat", "grep", "id", "ls", "printf", "sha256sum", "sleep", "stat", "tr", "true", "env"]
LOOK = """
printf %s "$HF_TOKEN" | sha256sum; sha256sum < "$KEY"; cd "$MESOS_SANDBOX"; sha256sum < keys/id
stat -c '%a %u' "$KEY" "${KEY%/*}"; id -u; grep -c 'core file size  *1  *1 ' /proc/self/limits
grep -c ' /dev/mesos_gpu/secrets tmpfs ro,nosuid,nodev,noexec' /proc/mounts
(echo x >> "$KEY") 2>/dev/null || echo closed
echo done; exec sleep 600
"""
#: By a task of the same user: `[s]` so that its own command does not match.
STEAL = """
for p in /proc/[0-9]*; do
  tr '\\0' '\\n' < $p/environ 2>/dev/null | grep '[s]3cret-'; cat $p/root/dev/mesos_gpu/secrets/*/* 2>/dev/null
  cat $p/cwd/keys/id 2>/dev/null; grep -a '[s]3cret-' $p/cmdline 2>/dev/null
done | tr a-z b-za; ls -R /dev/mesos_gpu 2>/dev/null | grep -c id; echo looked
"""


def put(directory: Path, source: str, value: str) -> None:
    path = directory / source
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(f"{value}\n")
    new.rename(path)


@pytest.fixture(scope="module")
def values(open_directory: Path) -> Path:
    directory = open_directory / "secrets"
    directory.mkdir(mode=0o700)
    put(directory, "team/hf", TOKEN)
    put(directory, "team/key", KEY)
    return directory


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    layers = [busybox_layer(dockerd.busybox(), APPLETS)]
    save(open_directory / "images", IMAGE, layers, {"Env": ["PATH=/bin", "HF_TOKEN=of the image"]})
    return open_directory / "images"


@pytest.fixture(scope="module")
def engine(images: Path) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd() as started:
        started.load(images / f"{IMAGE}.tar")
        yield started


@pytest.fixture(scope="module", params=list(MODES))
def stack(
    open_directory: Path, values: Path, images: Path, engine: dockerd.Dockerd, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    needs(request.param)
    with Stack(
        open_directory / request.param,
        [NodeSpec(0)],
        images=images,
        devices=MODES[request.param],
        executor_environment={
            "MESOS_GPU_ISOLATION": request.param,
            "MESOS_GPU_DOCKER_SOCKET": str(engine.socket),
        },
        scheduler_arguments=[
            "--secrets-dir", str(values), "--report-interval", "0.5", "--log-level", "DEBUG",
        ],
    ) as stack:  # fmt: skip
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 0) as client:
        yield client
        kill_all(client)
        wait_until("all have ended", lambda: not client.jobs(states=["active"]))


def submit(client: Client, command: str, **more: Any) -> str:
    return str(client.submit({**SMALL, "command": command, **more})["id"])


def state(client: Client, job: str, wanted: str) -> None:
    def reached() -> bool:
        now = client.job(job)
        assert now["state"] not in ({"failed", "killed", "finished"} - {wanted}), now["message"]
        return now["state"] == wanted

    try:
        wait_until(f"job {job} is {wanted}", reached)
    except AssertionError as error:
        raise AssertionError(f"{error}: {client.why(job)}\n{client.job(job)['message']}") from error


def output(client: Client, job: str) -> str:
    return client.logs(job, stream="stdout", offset=0, length=1 << 20)["data"]


def said(client: Client, job: str, last: str = "done") -> list[str]:
    wait_until(f"it says {last}", lambda: output(client, job).endswith(f"{last}\n"))
    return output(client, job).splitlines()


def digest(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()}  -"


def has(path: Path, *wanted: str) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return any(text.encode() in content for text in wanted)


def leaks(stack: Stack, engine: dockerd.Dockerd) -> list[str]:
    """Where a value is found: what Mesos, Docker and we answer and write, and what processes were started with."""
    wanted = TOKEN, KEY
    places = [
        str(path)
        for top in (stack.directory, engine.directory)
        for path in top.rglob("*")
        if has(path, *wanted)
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
    answers = {address: requests.get(address, timeout=30).text for address in addresses}
    for container in engine.ask("GET", "/containers/json?all=1"):
        answers[f"docker inspect {container['Id']}"] = str(
            engine.ask("GET", f"/containers/{container['Id']}/json")
        )
    ps = subprocess.run(["ps", "axwwo", "args"], capture_output=True, text=True, check=True)
    answers["arguments of processes"] = ps.stdout
    return [*places, *(place for place, text in answers.items() if TOKEN in text or KEY in text)]


def with_environment(wanted: str) -> set[str]:
    """Programs that have a value in their environment."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {
        Path(f"/proc/{pid}/comm").read_text().strip()
        for pid in pids
        if has(Path(f"/proc/{pid}/environ"), f"={wanted}\0")
    }


def mounts() -> set[str]:
    """Mount namespaces in which files of secrets are."""
    return {
        os.readlink(path.with_name("ns") / "mnt")
        for path in Path("/proc").glob("[0-9]*/mountinfo")
        if has(path, " /dev/mesos_gpu/secrets ")
    }


@pytest.mark.parametrize("run", RUNS)
def test_they_arrive_and_are_nowhere_else(
    client: Client, stack: Stack, engine: dockerd.Dockerd, run: str
) -> None:
    job = submit(client, LOOK, secrets=BOTH, **RUNS[run])
    state(client, job, "running")
    lines = said(client, job)
    assert lines[:3] == [digest(TOKEN), digest(KEY), digest(KEY)]
    user = lines[5]
    assert lines[3:] == [f"400 {user}", f"500 {user}", user, "1", "1", "closed", "done"]
    assert leaks(stack, engine) == []
    assert with_environment(TOKEN) == {"sleep"}
    assert len(mounts()) == 1
    shown = dict(client.job(job))["secrets"]
    assert shown == {"HF_TOKEN": {"source": "team/hf", "file": None}, "KEY": BOTH["KEY"]}
    for thief in RUNS:
        other = submit(client, STEAL, **RUNS[thief])
        state(client, other, "finished")
        assert said(client, other, "looked") == ["0", "looked"], f"{thief} steals from {run}"
    client.kill(job)
    state(client, job, "killed")
    wait_until("the files are gone", lambda: not mounts())
    assert with_environment(TOKEN) == set()
    assert leaks(stack, engine) == []
