"""Health checks that executors make, on a real Mesos: what it shows of them, and what they end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.kernel.conftest import needs

pytestmark = [pytest.mark.cluster]
OFTEN = {"grace_period_s": 0, "interval_s": 0, "delay_s": 0, "timeout_s": 10, "max_consecutive_failures": 3}


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    needs("cgroup1")
    images = open_directory / "images"
    images.mkdir()
    if not dockerd.missing():
        base = busybox_layer(dockerd.busybox(), ["sh", "sleep", "test", "touch", "id"])
        save(images, "plain:1", [base], {"Env": ["PATH=/bin"]})
    with Stack(open_directory / "stack", [NodeSpec(1)], images=images, devices="mesos") as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("the node reports", lambda: client.gpus())
        yield client


def submit(client: Client, command: str, check: dict[str, Any], **fields: object) -> Job:
    checks = [{**OFTEN, **check}]
    base = {"name": "checked", "cpus": 0.1, "mem_mib": 64, "kill_grace_s": 0}
    return client.submit({**base, "command": command, "health_checks": checks, **fields})


def in_mesos(stack: Stack, task_id: str | None) -> list[tuple[str, bool | None]]:
    """State and health of the updates that the master keeps of a task: the latest of each state."""
    framework = stack.cluster.master.state()["frameworks"][0]
    tasks = framework["tasks"] + framework["completed_tasks"]
    shown = next(task for task in tasks if task["id"] == task_id)
    return [(status["state"], status.get("healthy")) for status in shown["statuses"]]


def test_health_check_that_fails_ends_the_task_and_uses_an_attempt(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    down = open_directory / "down"
    command = f"touch up; while test ! -e {down}; do sleep 0.05; done; rm up; sleep 60"
    job = submit(client, command, {"protocol": "COMMAND", "command": "test -e up"}, max_attempts=2)
    wait_until("it is well", lambda: client.job(job["id"])["healthy"])
    first = client.job(job["id"])["task_id"]
    assert in_mesos(stack, first)[-1] == ("TASK_RUNNING", True)
    down.touch()
    wait_until("it is tried again", lambda: client.job(job["id"])["launches"] == 2)
    failed = next(task for task in client.tasks(job["id"]) if task["id"] == first)
    assert (failed["state"], failed["healthy"]) == ("failed", False)
    assert failed["message"] == "unhealthy: COMMAND check failed 3 times: exit code 1"
    assert in_mesos(stack, first)[-1] == ("TASK_KILLED", False)
    wait_until("that was all", lambda: client.job(job["id"])["state"] == "failed")
    last = client.job(job["id"])
    assert (last["attempts"], last["infrastructure_failures"], last["healthy"]) == (2, 0, None)


@pytest.mark.skipif(bool(dockerd.missing()), reason=f"needs images: {dockerd.missing()}")
def test_health_check_of_an_image_runs_inside_as_its_user(stack: Stack, client: Client) -> None:
    check = {
        "protocol": "COMMAND",
        "command": "test $(id -u) = 65534 && test -e up && test ! -e /etc/debian_version",
    }
    job = submit(client, "touch up; sleep 60", check, image="plain:1")
    wait_until("it is well", lambda: client.job(job["id"])["healthy"])
    assert in_mesos(stack, client.job(job["id"])["task_id"])[-1] == ("TASK_RUNNING", True)
    client.kill(job["id"])
    wait_until("it is killed", lambda: client.job(job["id"])["state"] == "killed")
