"""Shares of GPUs on the real Mesos: what its master counts, and who gets what it does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
LINGER_S = 1.0


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    arguments = ["--share-linger", str(LINGER_S), "--report-interval", "2"]
    with Stack(
        open_directory / "stack", [NodeSpec(2), NodeSpec(2)], scheduler_arguments=arguments
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 4) as client:
        yield client


def submit(client: Client, command: str, **fields: object) -> Job:
    return client.submit(
        {"name": "part", "command": command, "cpus": 0.1, "mem_mib": 32, "gpus": 0.25, **fields}
    )


def framework_of(stack: Stack, name: str = "mesos_gpu") -> dict[str, Any]:
    (framework,) = [each for each in stack.cluster.master.state()["frameworks"] if each["name"] == name]
    return dict(framework)


def used(stack: Stack) -> float:
    return float(framework_of(stack)["used_resources"]["gpus"])


def cover_tasks(stack: Stack) -> list[dict[str, Any]]:
    tasks = framework_of(stack)["tasks"]
    return [task for task in tasks if {"key": "mesos_gpu.role", "value": "cover"} in task["labels"]]


def running(client: Client, *jobs: Job) -> None:
    def all_run() -> bool:
        return {client.job(job["id"])["state"] for job in jobs} == {"running"}

    wait_until(f"{len(jobs)} jobs run", all_run, 60)


def test_a_share_runs_and_mesos_counts_its_card(stack: Stack, client: Client) -> None:
    job = submit(client, "sleep 600")
    running(client, job)
    assert used(stack) == 1
    (cover,) = cover_tasks(stack)
    gpu = client.job(job["id"])["gpu_ids"][0]
    assert cover["name"] == f"shared-{gpu}"
    assert cover["resources"]["gpus"] == 1
    client.kill(job["id"])
    wait_until("the end", lambda: ended(client.job(job["id"])))
    wait_until("Mesos has the card back", lambda: used(stack) == 0 and not cover_tasks(stack))
