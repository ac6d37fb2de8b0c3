"""Persistent volumes of apps, on real Mesos: their data outlives restarts, their node is kept, and they are removed."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.apps.test_marathon import call, settled

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="volumes are mounted by root"),
]
FILL = "head -c 30M /dev/zero > data/big; exec sleep 1000"
DB: dict[str, Any] = {
    "id": "/db",
    "cmd": "echo started >> data/log; while sleep 1; do :; done",
    "cpus": 0.1,
    "mem": 64,
    "disk": 10,
    "portDefinitions": [],
    "taskKillGracePeriodSeconds": 0,
    "container": {
        "type": "MESOS",
        "volumes": [
            {"containerPath": "data", "mode": "RW", "persistent": {"type": "root", "size": 20}},
        ],
    },
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-test-") as directory:
        Path(directory).chmod(0o755)
        made = Stack(
            Path(directory) / "cluster",
            [NodeSpec(1)] * 2,
            executor_environment={"MESOS_GPU_REPORT_INTERVAL_S": "1"},
        )
        with made as stack, Client(stack.url) as client:
            wait_until("the nodes report", lambda: len(client.gpus()) == 2)
            yield stack


def task_of(url: str) -> dict[str, Any]:
    def running() -> dict[str, Any] | None:
        tasks = call("GET", f"{url}/v2/apps/db/tasks", 200)["tasks"]
        ready: list[dict[str, Any]] = [each for each in tasks if each["state"] == "TASK_RUNNING"]
        return ready[0] if len(tasks) == len(ready) == 1 else None

    task = wait_until("an instance runs", running, 60)
    assert task is not None
    return task


def await_other_task(url: str, old: str) -> None:
    wait_until("another task runs", lambda: task_of(url)["id"] != old, 60)


def log_of(stack: Stack, volume: str) -> list[str]:
    places = [stack.persistent(number) / volume / "log" for number in (1, 2)]
    (place,) = [each for each in places if each.exists()]
    return place.read_text().split()


def test_data_outlives_restarts_updates_and_kills_and_goes_with_its_app(stack: Stack) -> None:
    url = stack.url
    call("POST", f"{url}/v2/apps", 201, json=DB)
    settled(url)
    first = task_of(url)
    (volume,) = first["localVolumes"]
    assert volume["persistenceId"] == f"db#data#{volume['uuid']}"
    for change in ("restart", "update", "kill"):
        before = task_of(url)
        match change:
            case "restart":
                call("POST", f"{url}/v2/apps/db/restart", 200)
            case "update":
                call("PATCH", f"{url}/v2/apps/db", 200, json={"labels": {"a": "b"}})
            case _:
                call("DELETE", f"{url}/v2/apps/db/tasks/{before['id']}", 200)
        settled(url)
        await_other_task(url, before["id"])
        after = task_of(url)
        assert (after["host"], after["localVolumes"]) == (first["host"], [volume])
    assert log_of(stack, volume["uuid"]) == ["started"] * 4

    call("DELETE", f"{url}/v2/apps/db/tasks/{task_of(url)['id']}?wipe=true", 200)
    wait_until("another volume is used", lambda: task_of(url)["localVolumes"] != [volume], 60)
    (other,) = task_of(url)["localVolumes"]
    assert log_of(stack, other["uuid"]) == ["started"]
    call("DELETE", f"{url}/v2/apps/db", 200)
    settled(url)
    left = [stack.persistent(number) for number in (1, 2)]
    wait_until("the volumes are removed", lambda: not any(os.listdir(each) for each in left), 60)


def test_task_whose_volume_is_too_large_ends_and_its_data_stays(stack: Stack) -> None:
    url = stack.url
    call("POST", f"{url}/v2/apps", 201, json={**DB, "id": "/big", "cmd": FILL, "backoffSeconds": 60})

    def failure() -> str:
        shown = call("GET", f"{url}/v2/apps/big?embed=app.lastTaskFailure", 200)["app"]
        return str(shown.get("lastTaskFailure", {}).get("message", ""))

    assert "in the persistent volume data of 20 MiB" in wait_until("it failed", failure, 60)
    kept = [each for number in (1, 2) for each in stack.persistent(number).glob("*/big")]
    assert [each.stat().st_size for each in kept] == [30 << 20]
    call("DELETE", f"{url}/v2/apps/big?force=true", 200)
    settled(url)
