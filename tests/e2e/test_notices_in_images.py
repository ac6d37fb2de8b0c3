"""Notices and checkpoints of jobs with images, in nested containers and by Docker, with cgroup v1 and v2."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.local.cluster import Devices
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import free_all, kill_all
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.endings import CASES
from tests.kernel.conftest import EACH_CGROUP, needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
MODES: dict[str, Devices] = {"cgroup1": "mesos", "cgroup2": "cgroup2"}
#: The shell does not handle the signal, and what it runs does; both read a file.
COMMAND = """
sh -c 'trap "echo signalled" USR1; echo ready; while :; do sleep 0.1; done' &
until grep -qs "recalled.: false" "$MESOS_GPU_NOTICE"; do sleep 0.1; done
cat "$MESOS_GPU_NOTICE"
until grep -qs "recalled.: true" "$MESOS_GPU_NOTICE"; do sleep 0.1; done
touch "$MESOS_GPU_CHECKPOINT"
echo on
wait
"""


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    directory = open_directory / "images"
    base = busybox_layer(
        dockerd.busybox(), ["sh", "cat", "echo", "grep", "mkfifo", "setsid", "sleep", "touch"]
    )
    save(directory, "plain:1", [base], {"Env": ["PATH=/bin"]})
    return directory


@pytest.fixture(scope="module")
def engine(images: Path) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd() as daemon:
        daemon.load_all(images)
        yield daemon


#: How devices are kept from tasks plays no part in how notices come: one way does for the quick suite.
@pytest.fixture(scope="module", params=EACH_CGROUP)
def client(
    open_directory: Path, images: Path, engine: dockerd.Dockerd, request: pytest.FixtureRequest
) -> Iterator[Client]:
    needs(request.param)
    given = {"MESOS_GPU_DOCKER_SOCKET": str(engine.socket), "MESOS_GPU_ISOLATION": request.param}
    with (
        Stack(
            open_directory / request.param,
            [NodeSpec(1)],
            images=images,
            devices=MODES[request.param],
            executor_environment=given,
        ) as stack,
        Client(stack.url) as client,
    ):
        client.patience_s = 30
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        yield client


@pytest.mark.parametrize("engine_of", ["mesos", "docker"])
def test_notice_in_an_image_is_read_signalled_called_off_and_answered_by_a_checkpoint(
    client: Client, engine_of: str
) -> None:
    job = client.submit(
        {
            "name": "told", "image": "plain:1", "container_engine": engine_of, "command": COMMAND, "gpus": 1,
            "cpus": 0.1, "mem_mib": 64, "notice_s": 600, "notice_signal": "SIGUSR1",
        }
    )["id"]  # fmt: skip

    def said() -> str:
        return client.logs(job, stream="stdout", offset=0, length=60000)["data"]

    def state() -> str:
        shown = client.job(job)
        assert shown["state"] not in ("failed", "finished"), shown["message"]
        return shown["state"]

    wait_until("it is at work", lambda: state() == "running" and "ready" in said())
    (gpu,) = client.job(job)["gpu_ids"]
    OperatorCalls(client).drain_gpu(gpu, "fan", by="ann", deadline_s=500)
    wait_until("it has its notice", lambda: said().count("signalled") == 1 and "}" in said())
    text = said()
    body = json.loads(text[text.index("{") : text.index("}") + 1])
    assert (body["number"], body["reason"], body["by"], body["recalled"]) == (1, "drain", None, False)
    OperatorCalls(client).undrain_gpu(gpu, by="ann")
    wait_until("it goes on", lambda: said().count("signalled") == 2 and "on\n" in said())
    wait_until("its checkpoint is noted", lambda: client.job(job)["checkpoint_at"] is not None)
    assert state() == "running"
    kill_all(client)


@pytest.mark.parametrize("engine_of", ["mesos", "docker"])
@pytest.mark.parametrize("way", ["kill", "time limit", "drain"])
def test_each_way_to_end_a_job_in_an_image_lets_its_programs_save(
    client: Client, engine_of: str, way: str
) -> None:
    """A shell whose program saves is the crossing in which the container must not end with its first process."""
    case = CASES["a worker that serves" if way == "drain" else "a shell whose program saves"]
    job = client.submit(
        {
            "image": "plain:1", "container_engine": engine_of, "command": case.command.format("/mnt/mesos/sandbox"),
            "gpus": 1, "cpus": 0.1, "mem_mib": 64, "kill_grace_s": 60.0,
            **({"timeout_s": 5.0} if way == "time limit" else {}),
        }
    )["id"]  # fmt: skip

    def said() -> str:
        return client.logs(job, stream="stdout", offset=0, length=60000, task_id=task)["data"]

    wait_until("it runs", lambda: client.job(job)["state"] == "running")
    task = client.tasks(job)[0]["id"]
    wait_until("it is at work", lambda: "ready\n" in said())
    calls, gpus = OperatorCalls(client), client.job(job)["gpu_ids"]
    if way == "kill":
        client.kill(job)
    elif way == "drain":
        calls.drain_gpu(gpus[0], "fan", by="ann", deadline_s=1)
    wait_until("its task has ended", lambda: client.tasks(job)[0]["ended_at"], 45)
    assert said() == f"ready\n{case.says}"
    if way == "drain":
        calls.undrain_gpu(gpus[0], by="ann")
    free_all(client)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in CASES])
def test_sigterm_lets_programs_save_in_a_container_of_mesos(client: Client, name: str) -> None:
    case = CASES[name]
    job = client.submit(
        {
            "image": "plain:1", "container_engine": "mesos", "command": case.command.format("/mnt/mesos/sandbox"),
            "gpus": 1, "cpus": 0.1, "mem_mib": 64, "kill_grace_s": 1.0 if case.ignores else 60.0,
        }
    )["id"]  # fmt: skip

    def said() -> str:
        return client.logs(job, stream="stdout", offset=0, length=60000)["data"]

    wait_until("it is at work", lambda: client.job(job)["state"] == "running" and "ready\n" in said())
    client.kill(job)
    wait_until("it has ended", lambda: client.job(job)["state"] == "killed", 45)
    assert said() == f"ready\n{case.says}"
