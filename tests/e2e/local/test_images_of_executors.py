"""Jobs with images on agents that cannot run them: no cgroups of Mesos, no image providers, no Docker Engine."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing.images import busybox_layer
from tests.clients import command
from tests.conftest import wait_until
from tests.kernel.conftest import needs
from tests.kernel.images.made import push, serving

pytestmark = pytest.mark.cluster
APPLETS = ["sh", "cat", "echo", "id", "ls", "sleep", "test", "touch", "true"]
SANDBOX = "/mnt/mesos/sandbox"


@pytest.fixture(scope="module")
def registry(open_directory: Path) -> Iterator[str]:
    """A real registry with an image."""
    needs("cgroup2")
    busybox = shutil.which("busybox")
    if busybox is None or subprocess.run(["ldd", busybox], capture_output=True, check=False).returncode == 0:
        pytest.skip("no static busybox (Debian: busybox-static)")
    (open_directory / "registry").mkdir()
    with serving(open_directory / "registry") as address:
        config = {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/echo", "entry"]}
        push(address, "team/plain:1", [busybox_layer(Path(busybox), APPLETS)], config)
        yield address


@pytest.fixture(scope="module")
def stack(open_directory: Path, registry: str) -> Iterator[Stack]:
    given = {"MESOS_GPU_ISOLATION": "cgroup2", "MESOS_GPU_IMAGE_REGISTRY": registry}
    nodes = [NodeSpec(2), NodeSpec(2)]
    with Stack(open_directory / "stack", nodes, isolation="posix", executor_environment=given) as stack:
        with Client(stack.url) as client:
            wait_until("the nodes report", lambda: len(client.gpus()) == 4)
        yield stack


def ended(stack: Stack, **more: Any) -> tuple[Any, str]:
    with Client(stack.url) as client:
        client.patience_s = 60
        asked = {"name": "image", "image": "team/plain:1", "gpus": 1, "cpus": 0.1, "mem_mib": 64, **more}
        job = client.submit(asked)
        job = [job, *client.follow(job)][-1]
        return job, client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"]


def test_image_of_a_registry_runs_with_its_card(stack: Stack) -> None:
    look = 'pwd; ls /dev/nvidia*; ls -d /etc/debian_version 2>&1; test "$(id -u)" != 0 && echo kept > kept'
    job, out = ended(stack, command=look)
    assert (job["state"], job["exit_code"]) == ("finished", 0), job["message"]
    lines = out.splitlines()
    assert lines[0] == SANDBOX
    assert lines[-1] == "ls: /etc/debian_version: No such file or directory"
    with Client(stack.url) as client:
        (card,) = [gpu for gpu in client.gpus() if gpu["uuid"] in job["gpu_ids"]]
    assert lines[1:-1] == [f"/dev/nvidia{card['minor']}", "/dev/nvidiactl"]
    kept = command("cat", "--url", stack.url, f"{job['id']}:kept")
    assert kept.stdout == b"kept\n", kept.stderr


def test_image_runs_its_own_entrypoint(stack: Stack) -> None:
    job, out = ended(stack, args=["words"], gpus=0)
    assert (job["state"], out) == ("finished", "entry words\n")


def test_image_that_the_registry_does_not_have_fails_its_job(stack: Stack) -> None:
    job, _ = ended(stack, image="team/none:1", command="true")
    assert job["state"] == "failed"
    assert "there is no image team/none:1" in job["message"]


def test_gang_of_images_is_reached_by_commands(stack: Stack) -> None:
    with Client(stack.url) as client:
        write = f"echo rank $RANK of $WORLD_SIZE > {SANDBOX}/said; exec sleep 3600"
        asked = {"name": "gang", "image": "team/plain:1", "command": write, "tasks": 2, "gpus": 2}
        job = client.submit({**asked, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
        for rank in range(2):
            ran = command(
                "exec", "--url", stack.url, "--rank", str(rank), job, "--", "cat", f"{SANDBOX}/said"
            )
            assert ran.stdout == f"rank {rank} of 2\n".encode(), ran.stderr
        client.kill(job)
        wait_until("it has ended", lambda: client.job(job)["ended_at"])
