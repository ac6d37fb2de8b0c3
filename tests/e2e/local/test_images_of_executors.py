"""Private images on agents that cannot run images: no cgroups of Mesos, no image providers, no Docker Engine."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests import registries
from tests.clients import command
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer
from tests.kernel.conftest import needs
from tests.registries import Running, push

MISSING: Final = registries.missing() or (
    "" if shutil.which("busybox") else "no busybox (Debian: busybox-static)"
)
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
APPLETS = ["sh", "cat", "dd", "echo", "id", "ls", "sleep", "test", "touch", "true"]
SANDBOX = "/mnt/mesos/sandbox"
PASSWORD: Final = f"s3cret-{os.urandom(16).hex()}"


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A registry behind a login."""
    with registries.registry(tmp_path_factory.mktemp("registry"), "basic", PASSWORD) as running:
        config = {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/echo", "entry"]}
        push(running.back, "team/plain", "1", config, layers=[busybox_layer(dockerd.busybox(), APPLETS)])
        yield running


@pytest.fixture(scope="module")
def stack(open_directory: Path, private: Running) -> Iterator[Stack]:
    needs("cgroup2")
    secrets = open_directory / "secrets"
    (secrets / "team").mkdir(mode=0o700, parents=True)
    secrets.chmod(0o700)
    (secrets / "team/login").touch(mode=0o600)
    (secrets / "team/login").write_text(private.config())
    given = {"MESOS_GPU_ISOLATION": "cgroup2", "MESOS_GPU_IMAGE_REGISTRY": private.url}
    with Stack(
        open_directory / "stack",
        [NodeSpec(2), NodeSpec(2)],
        isolation="posix",
        executor_environment=given,
        scheduler_arguments=["--secrets-dir", str(secrets)],
    ) as stack:
        with Client(stack.url) as client:
            wait_until("the nodes report", lambda: len(client.gpus()) == 4)
        yield stack


def ended(stack: Stack, **more: Any) -> tuple[Any, str]:
    with Client(stack.url) as client:
        client.patience_s = 60
        asked = {"image": "team/plain:1", "image_secret": "team/login", "gpus": 1, "cpus": 0.1, "mem_mib": 64}
        job = client.submit({"name": "image", **asked, **more})
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


def test_layers_that_a_host_has_are_shown_to_the_right_login_only(stack: Stack) -> None:
    assert ended(stack, command="true")[0]["state"] == "finished"
    job, _ = ended(stack, command="true", image_secret=None)
    assert job["state"] == "failed"
    assert "does not show team/plain:1" in job["message"]


def test_gang_of_images_is_reached_by_commands(stack: Stack) -> None:
    with Client(stack.url) as client:
        write = f"echo rank $RANK of $WORLD_SIZE > {SANDBOX}/said; exec sleep 3600"
        asked = {"name": "gang", "image": "team/plain:1", "image_secret": "team/login", "command": write}
        job = client.submit({**asked, "tasks": 2, "gpus": 2, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
        for rank in range(2):
            ran = command(
                "exec", "--url", stack.url, "--rank", str(rank), job, "--", "cat", f"{SANDBOX}/said"
            )
            assert ran.stdout == f"rank {rank} of 2\n".encode(), ran.stderr
        client.kill(job)
        wait_until("it has ended", lambda: client.job(job)["ended_at"])


def test_image_beyond_its_memory_ends_out_of_memory(stack: Stack) -> None:
    job, _ = ended(stack, command="dd if=/dev/zero of=/dev/null bs=200M count=1", gpus=0)
    assert (job["state"], job["exit_code"]) == ("failed", 137), job["message"]
    assert "memory" in job["message"]


def test_images_share_a_card(stack: Stack) -> None:
    with Client(stack.url) as client:
        asked = {"image": "team/plain:1", "image_secret": "team/login", "gpus": 0.25, "isolation": "any"}
        jobs = [
            client.submit(
                {"name": "part", "command": "exec sleep 3600", "cpus": 0.1, "mem_mib": 64, **asked}
            )["id"]
            for _ in range(2)
        ]
        wait_until("both run", lambda: all(client.job(job)["state"] == "running" for job in jobs))
        held = [client.job(job)["gpu_ids"] for job in jobs]
        assert held[0] == held[1]
        assert len(held[0]) == 1
        for job in jobs:
            client.kill(job)
        wait_until("both have ended", lambda: all(client.job(job)["ended_at"] for job in jobs))
