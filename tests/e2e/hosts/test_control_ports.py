"""Tasks that try to command the cluster, on a real Mesos: as a process, in an image of the agent's, by Docker."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.devices.cgroups import mounted
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.jobs.permits import Root
from tests.clients import client_of
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.kernel.conftest import EACH_CGROUP, needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it there are no rules"),
]
ATTACK = Path(__file__).with_name("attack.py")
APPLETS = ["sh", "cat", "echo", "id", "wget", "sleep", "true"]
PYTHON = "/usr/bin/python3"  # one that the user nobody can run
REFUSED = "PermissionError: Operation not permitted"
IN_IMAGE = "Operation not permitted"
EACH_IMAGE = ("mesos", *(pytest.param(form, marks=pytest.mark.long) for form in ("own", "docker")))


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    if lack := dockerd.missing():
        pytest.skip(f"needs images, an engine and a static busybox: {lack}")
    directory = open_directory / "images"
    save(
        directory, "busy:1", [busybox_layer(dockerd.busybox(), APPLETS)],
        {"Env": ["PATH=/nowhere:/bin"], "Entrypoint": ["echo"], "Cmd": ["own", "words"]},
    )  # fmt: skip
    return directory


@pytest.fixture(scope="module", params=EACH_CGROUP)
def stack(
    open_directory: Path, images: Path, unstarted_engine: dockerd.Dockerd, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    needs(request.param)
    with Stack(
        open_directory / request.param,
        [NodeSpec(1), NodeSpec(1)],
        images=images,
        devices="mesos" if request.param == "cgroup1" else "cgroup2",
        allow_root=Root.HOST,
        scheduler_arguments=["--control-access", "lb=api,master"],
        executor_environment={
            "MESOS_GPU_ISOLATION": request.param,
            "MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket),
        },
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 2) as client:
        yield client


def ports(stack: Stack) -> list[int]:
    """Ports of what commands this cluster: its agents, its master, its scheduler."""
    return [*(agent.port for agent in stack.cluster.agents), stack.cluster.master.port, stack.scheduler.port]


def run(client: Client, command: str | None, **more: Any) -> Job:
    request = {"name": "attack", "cpus": 0.1, "mem_mib": 64, "user": "nobody", **more}
    job = client.submit({**request, "command": command} if command is not None else request)
    return [job, *client.follow(job)][-1]


def said(client: Client, job: Job, stream: str = "stdout") -> str:
    return client.logs(job["id"], stream=stream, offset=0, length=60000)["data"]


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_a_process_commands_nothing(stack: Stack, client: Client, open_directory: Path, user: str) -> None:
    private = open_directory / "private"
    private.write_text("secret\n")
    private.chmod(0o600)
    agents = ",".join(str(agent.port) for agent in stack.cluster.agents)
    proof = open_directory / "proof"
    arguments = f"{agents} {stack.cluster.master.port} {stack.scheduler.port} {proof} {private}"
    code = open_directory / "attack.py"
    code.write_text(ATTACK.read_text())
    code.chmod(0o644)
    job = run(client, f"{PYTHON} {code} {arguments}", gpus=1, user=user)
    assert job["state"] == "finished", job["message"]
    answers = dict(map(json.loads, said(client, job).splitlines()))
    assert len(answers) == 6
    assert set(answers.values()) == {REFUSED}, answers
    assert not list(open_directory.glob("proof*"))
    assert client.status()["connected"]


@pytest.mark.parametrize("form", EACH_IMAGE, indirect=True)
def test_an_image_commands_nothing(stack: Stack, client: Client, form: str) -> None:
    targets = " ".join(str(port) for port in ports(stack))
    command = (
        f"cat /proc/self/cgroup; for p in {targets}; do for a in 127.0.0.1 127.1.2.3 0.0.0.0; do "
        "wget -q -O - http://$a:$p/version 2>&1; done; done; true"
    )
    users = ["nobody"] if form == "mesos" else ["nobody", "root"]
    for user in users:
        job = run(client, command, image="busy:1", container_engine=form, user=user, gpus=1)
        assert job["state"] == "finished", job["message"]
        tried = [line for line in said(client, job).splitlines() if "wget" in line]
        assert len(tried) == 3 * len(ports(stack))
        assert all(IN_IMAGE in line for line in tried), tried


@pytest.mark.parametrize("form", EACH_IMAGE, indirect=True)
def test_image_behind_the_gate_runs_its_own_program(client: Client, form: str) -> None:
    given = {"image": "busy:1", "container_engine": form}
    assert said(client, run(client, None, **given)) == "own words\n"
    assert said(client, run(client, None, args=["other"], **given)) == "other\n"
    job = run(client, None, argv=["sh", "-c", "echo $0 $MESOS_GPU_ATTEMPT; exit 3", "first"], **given)
    assert (said(client, job), job["exit_code"]) == ("first 1\n", 3)
    absent = run(client, None, argv=["no-such-program"], **given)
    assert absent["state"] == "failed"
    assert "cannot start 'no-such-program': No such file or directory" in absent["message"]


def test_the_fetcher_reaches_no_more_than_the_task(stack: Stack, client: Client) -> None:
    """Whatever a URI leads to: it would put what the agent answers into the sandbox."""
    for port in ports(stack):
        job = run(client, "cat version", fetch=[f"http://127.0.0.1:{port}/version"])
        assert job["state"] == "failed"
        assert f"could not fetch http://127.0.0.1:{port}/version" in job["message"]


def test_control_ports_that_an_operator_allows_are_reached(stack: Stack, client: Client) -> None:
    tries = "; ".join(
        f"{PYTHON} -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}{path}').status)\""
        for port, path in ((stack.scheduler.port, "/v1/health"), (stack.cluster.master.port, "/version"))
    )
    job = run(client, tries, name="lb", control_access=["api", "master"])
    assert said(client, job).split() == ["200", "200"], said(client, job, "stderr")
    job = run(client, tries, name="lb", control_access=["api"])
    assert said(client, job).split() == ["200"]
    assert "Operation not permitted" in said(client, job, "stderr")


def test_cgroups_of_ended_tasks_are_removed(stack: Stack, client: Client) -> None:
    run(client, "true", gpus=1)
    places = [mount / "mesos_gpu" for mount in mounted().values()] + [Path("/dev/mesos_gpu")]
    mine = {
        path.name
        for agent in stack.cluster.agents
        for path in agent.directory.glob("work/slaves/*/**/runs/*")
    }
    assert mine, "containers of this cluster"

    def left() -> list[Path]:
        return [path for place in places if place.exists() for path in place.iterdir() if path.name in mine]

    wait_until("all is undone", lambda: not left(), 30)
