"""Agents that have Debian's Python and nothing of ours: the scheduler names the archive, and jobs run."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.install import archive
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, output_of, submit

DEBIAN = "/usr/sbin:/usr/bin:/sbin:/bin"  # its python3, and not that of these tests
pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    built = archive.build(open_directory)
    secrets = open_directory / "secrets"
    secrets.mkdir(mode=0o700)
    secrets.joinpath("token").touch(mode=0o600)
    secrets.joinpath("token").write_text("of the team\n")
    where = f"{built.as_uri()}#sha256={hashlib.sha256(built.read_bytes()).hexdigest()}"
    with Stack(
        open_directory / "stack",
        [NodeSpec(2)],
        scheduler_arguments=["--executor-archive", where, "--secrets-dir", str(secrets)],
        executor_environment={"PATH": DEBIAN},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        yield client


def test_archive_runs_a_job(stack: Stack, client: Client) -> None:
    job = end_of(client, submit(client, "echo $NVIDIA_VISIBLE_DEVICES; exit 7", gpus=1))
    assert (job["state"], job["exit_code"]) == ("failed", 7), job
    assert output_of(client, job).split() == job["gpu_ids"]
    assert len(job["gpu_ids"]) == 1
    (tree,) = [path for path in (stack.directory / "nodes/1/programs").iterdir() if path.is_dir()]
    assert (tree / "isolator/executor/main.py").is_file()
    # Executors that are Debian's Python, and know no directory of this installation.
    log = stack.scheduler.log.read_text()
    assert str(Path(archive.__file__).parents[2]) not in log


def test_archive_gives_a_job_secrets_without_a_package_that_opens_them(stack: Stack, client: Client) -> None:
    job = end_of(client, submit(client, "echo $TOKEN", secrets={"TOKEN": "token"}))
    assert (job["state"], output_of(client, job)) == ("finished", "of the team\n"), job
    keys = json.loads((stack.directory / "nodes/1/secret-keys.json").read_text())
    assert (keys["library"], len(keys["keys"])) == ("", 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_archive_cannot_be_changed_by_a_task(stack: Stack, client: Client) -> None:
    programs = stack.directory / "nodes/1/programs"
    job = end_of(client, submit(client, f"touch {programs}/x; rm -f {programs}/*.pyz; ls {programs}; true"))
    assert job["state"] == "finished"
    assert [path.suffix for path in programs.iterdir() if path.is_file() and path.name != ".lock"] == [".pyz"]
    assert not (programs / "x").exists()
