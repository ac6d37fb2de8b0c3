"""Images of a registry behind htpasswd on a real Mesos with a real Docker Engine: by the secret of a job, of a queue
and of an app, not without it; and the password is nowhere."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests import registries
from tests.clients import client_of, kill_all
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.dockerd import Dockerd
from tests.doubles.images import busybox_layer
from tests.kernel.conftest import needs
from tests.live_files import contains, paths_below
from tests.registries import USER, Running, push

MISSING: Final = dockerd.missing() or registries.missing()
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
PASSWORD: Final = f"s3cret-{os.urandom(16).hex()}"
ENCODED: Final = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SMALL: Final = {"cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1, "container_engine": "docker"}


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registries.registry(tmp_path_factory.mktemp("registry"), "basic", PASSWORD) as running:
        layers = [busybox_layer(dockerd.busybox(), ["sh", "echo", "env", "sleep"])]
        push(running.back, "team/app", "1", {"Env": ["PATH=/bin"]}, layers=layers)
        yield running


@pytest.fixture(scope="module")
def values(open_directory: Path, private: Running) -> Path:
    directory = open_directory / "secrets"
    (directory / "team").mkdir(mode=0o700, parents=True)
    directory.chmod(0o700)
    texts = {"login": private.config(), "wrong": private.config("wrong"), "words": f"{USER}:{PASSWORD}"}
    for name, text in texts.items():
        path = directory / "team" / name
        path.touch(mode=0o600)
        path.write_text(text)
    return directory


@pytest.fixture(scope="module")
def stack(open_directory: Path, values: Path, unstarted_engine: Dockerd) -> Iterator[Stack]:
    needs("cgroup2")
    unstarted_engine.start()
    with Stack(
        open_directory / "stack",
        [NodeSpec(0)],
        devices="cgroup2",
        executor_environment={
            "MESOS_GPU_ISOLATION": "cgroup2",
            "MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket),
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


def submit(client: Client, image: str, **more: Any) -> str:
    return str(client.submit({**SMALL, "command": "env; exec sleep 600", "image": image, **more})["id"])


def state(client: Client, job: str, *wanted: str) -> str:
    """Wait for a state; return the job's message."""

    def reached() -> bool:
        now = client.job(job)
        assert now["state"] not in ({"failed", "killed", "finished"} - {*wanted}), now["message"]
        return now["state"] in wanted

    wait_until(f"job {job} is {wanted}", reached)
    return client.job(job)["message"]


def leaks(stack: Stack, engine: Dockerd) -> list[str]:
    """Return where the password is found: in files, answers, environments and arguments of processes."""
    wanted = PASSWORD.encode(), ENCODED.encode()
    files = (path for top in (stack.directory, engine.directory) for path in paths_below(top))
    places = [str(path) for path in files if contains(path, wanted)]
    agent, master = stack.cluster.agents[0], stack.cluster.master
    addresses = [
        *(f"http://127.0.0.1:{master.port}/{path}" for path in ("state", "tasks", "frameworks")),
        *(f"http://{agent.ip}:{agent.port}/{path}" for path in ("state", "containers")),
        *(f"{stack.url}/{path}" for path in ("v1/jobs", "v1/nodes", "v1/queues", "v2/apps", "metrics")),
    ]
    texts = {address: requests.get(address, timeout=30).text for address in addresses}
    for each in engine.ask("GET", "/containers/json?all=1"):
        texts[f"docker inspect {each['Id']}"] = str(engine.ask("GET", f"/containers/{each['Id']}/json"))
    places += [place for place, text in texts.items() if any(each.decode() in text for each in wanted)]
    processes = (path / name for path in Path("/proc").glob("[0-9]*") for name in ("environ", "cmdline"))
    return [*places, *(str(path) for path in processes if contains(path, wanted))]


def put_queues(stack: Stack, **queues: Any) -> None:
    version = requests.get(f"{stack.url}/v1/queues", timeout=30).json()["version"]
    answer = requests.put(f"{stack.url}/v1/queues", json={"version": version, "queues": queues}, timeout=30)
    assert answer.status_code == 200, answer.text


def test_private_image_runs_by_secret_of_job_and_queue_and_its_password_is_nowhere(
    client: Client, stack: Stack, private: Running, unstarted_engine: Dockerd
) -> None:
    image = f"{private.host}/team/app:1"
    put_queues(stack, **{"vision": {"image_secret": "team/login"}, "vision/small": {}, "default": {}})
    first = submit(client, image, image_secret="team/login")
    by_queue = submit(client, image, queue="vision/small")
    for job in (first, by_queue):
        state(client, job, "running")
    assert leaks(stack, unstarted_engine) == []
    assert dict(client.job(first))["image_secret"] == "team/login"
    assert dict(client.job(by_queue))["image_secret"] is None
    refused = {
        "without a secret": submit(client, image),
        "with a wrong one": submit(client, image, image_secret="team/wrong"),
        "with one of another form": submit(client, image, image_secret="team/words"),
    }
    for why, job in refused.items():
        message = state(client, job, "failed")
        assert "image secret" in message or "image_secret" in message, why
        assert client.job(job)["attempts"] == 1, f"{why}: {message}"
    for job in (first, by_queue):
        client.kill(job)
        state(client, job, "killed")
    assert leaks(stack, unstarted_engine) == []


@pytest.mark.long
def test_private_image_of_an_app_runs_by_its_pull_config(
    client: Client, stack: Stack, private: Running, unstarted_engine: Dockerd
) -> None:
    docker = {"image": f"{private.host}/team/app:1", "pullConfig": {"secret": "login"}}
    app = {
        "id": "/web", "cmd": "exec sleep 600", "cpus": 0.1, "mem": 32, "instances": 2,
        "container": {"type": "DOCKER", "docker": docker}, "secrets": {"login": {"source": "/team/login"}},
    }  # fmt: skip
    assert requests.post(f"{stack.url}/v2/apps", json=app, timeout=30).status_code == 201
    try:
        wait_until("both run", lambda: len(client.jobs(states=["running"])) == 2)
        assert leaks(stack, unstarted_engine) == []
    finally:
        requests.delete(f"{stack.url}/v2/apps//web", timeout=30)
        wait_until("it is gone", lambda: not requests.get(f"{stack.url}/v2/deployments", timeout=30).json())


@pytest.mark.long
def test_private_image_waits_for_a_registry_that_is_down(
    client: Client, stack: Stack, tmp_path: Path
) -> None:
    with registries.registry(tmp_path / "registry", "basic", PASSWORD) as running:
        host, login = running.host, running.config()
    path = stack.directory.parent / "secrets" / "team" / "down"
    path.touch(mode=0o600)
    path.write_text(login)
    job = submit(client, f"{host}/team/app:1", image_secret="team/down")
    wait_until("it was launched twice", lambda: client.job(job)["launches"] >= 2)
    now = client.job(job)
    assert now["attempts"] == 0, json.dumps(now)


@pytest.mark.long
def test_private_image_is_run_by_the_executor_where_mesos_would_show_its_login(
    open_directory: Path, values: Path, private: Running, unstarted_engine: Dockerd
) -> None:
    needs("cgroup1")
    (open_directory / "none").mkdir()
    with Stack(
        open_directory / "mesos",
        [NodeSpec(0)],
        images=open_directory / "none",
        devices="mesos",
        executor_environment={"MESOS_GPU_ISOLATION": "cgroup1", "MESOS_GPU_IMAGE_REGISTRY": private.url},
        scheduler_arguments=["--secrets-dir", str(values), "--report-interval", "0.5"],
    ) as stack, client_of(stack, 0) as client:  # fmt: skip
        image = {"image": "team/app:1", "container_engine": "mesos"}
        job, without = (submit(client, **image, **more) for more in ({"image_secret": "team/login"}, {}))
        assert "use a secret with a login" in state(client, without, "failed")
        state(client, job, "running")
        assert leaks(stack, unstarted_engine) == []
