"""Status updates that a task forges at its agent's executor API, on a real Mesos: nothing comes of them.

They are sent from here, as a task would that reaches the agent's port.
"""

import base64
import contextlib
import json
import stat
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.seal import secret_for
from tests.clients import client_of
from tests.conftest import wait_until
from tests.doubles.builders import gpu
from tests.live_files import paths_below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(
        open_directory / "stack", [NodeSpec(1)], scheduler_arguments=["--report-interval", "1"]
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 1) as client:
        wait_until("the card is free", lambda: [gpu["task_id"] for gpu in client.gpus()] == [None], 60)
        yield client


def post(stack: Stack, path: str, body: Any) -> bytes:
    """What the agent answers."""
    request = urllib.request.Request(
        f"http://{stack.cluster.agents[0].ip}:{stack.cluster.agents[0].port}{path}",
        json.dumps(body).encode() if body else None,
        {"Content-Type": "application/json", "Accept": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def forge(stack: Stack, task_id: str, state: str, data: bytes = b"") -> None:
    """An update of a task in its executor's name, by what an agent tells everybody; the agent takes it."""
    (framework,) = json.loads(post(stack, "/state", None))["frameworks"]
    ids = {"framework_id": {"value": framework["id"]}, "executor_id": {"value": task_id}}
    status = {
        "task_id": {"value": task_id}, "executor_id": {"value": task_id}, "state": state,
        "source": "SOURCE_EXECUTOR", "uuid": base64.b64encode(uuid.uuid4().bytes).decode(),
        "data": base64.b64encode(data).decode(),
    }  # fmt: skip
    post(stack, "/api/v1/executor", {**ids, "type": "UPDATE", "update": {"status": status}})


def disbelieved(stack: Stack) -> int:
    with urllib.request.urlopen(f"{stack.url}/metrics/prometheus", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(
        int(float(line.split()[-1]))
        for line in lines
        if line.startswith("mesos_gpu_disbelieved_updates_total ")
    )


def running(client: Client, command: str = "sleep 600") -> tuple[str, str]:
    """A job that holds the card, and its task's id."""
    job_id = client.submit({"command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 32})["id"]
    wait_until("it runs", lambda: client.job(job_id)["state"] == "running", 60)
    return job_id, client.job(job_id)["task_id"] or ""


def held_by(client: Client) -> list[str | None]:
    return [gpu["task_id"] for gpu in client.gpus()]


def test_a_forged_end_is_not_believed_and_the_card_stays_held(stack: Stack, client: Client) -> None:
    job_id, task_id = running(client)
    before = disbelieved(stack)
    forge(stack, task_id, "TASK_FINISHED")
    wait_until("it was heard", lambda: disbelieved(stack) == before + 1, 60)
    assert (
        f"TASK_FINISHED of task {task_id} is ignored because it cannot be trusted"
        in stack.scheduler.log.read_text()
    )
    assert (client.job(job_id)["state"], held_by(client)) == ("running", [task_id])
    # Mesos knows its task no longer: only the end of its executor ends it.
    client.kill(job_id)
    wait_until("it is killed", lambda: client.job(job_id)["state"] == "killed", 60)
    again, _ = running(client, "true; sleep 600")
    client.kill(again)
    wait_until("the next is killed", lambda: client.job(again)["state"] == "killed", 60)


def test_true_end_is_believed_after_a_forged_one_and_over_a_restart(stack: Stack, client: Client) -> None:
    stop = stack.directory / "stop"
    stop.unlink(missing_ok=True)
    job_id, task_id = running(client, f"until [ -e {stop} ]; do sleep 0.1; done; exit 7")
    stack.scheduler.kill()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(stack.url, timeout=60)
    forge(stack, task_id, "TASK_FINISHED")
    stack.scheduler.start().wait(60)
    wait_until("it was heard", lambda: disbelieved(stack) == 1, 60)
    assert (client.job(job_id)["state"], held_by(client)) == ("running", [task_id])
    stop.touch()
    wait_until("it ends", lambda: client.job(job_id)["state"] == "failed", 60)
    assert client.job(job_id)["exit_code"] == 7


def test_a_forged_report_takes_no_card_out(stack: Stack, client: Client) -> None:
    (monitor,) = [task["id"] for task in stack.scheduler.get("/v1/tasks")["tasks"] if task["job_id"] is None]
    (card,) = client.gpus()
    sick = report.encode(
        Inventory((replace(gpu("g0", health=Health.SICK), id=GpuId(card["uuid"])),), "simulated")
    )
    before = disbelieved(stack)
    forge(stack, monitor, "TASK_RUNNING", sick)
    wait_until("it was heard", lambda: disbelieved(stack) == before + 1, 60)
    assert [gpu["health"] for gpu in client.gpus()] == ["ok"]


def test_secret_of_a_task_is_in_no_file_that_the_task_can_read(stack: Stack, client: Client) -> None:
    job_id, task_id = running(client, "env; cat /proc/$PPID/environ /proc/$PPID/mem; sleep 600")
    stack.scheduler.kill()
    store = SqliteStore(stack.directory / "scheduler" / "state.sqlite")
    secret = secret_for(store.key(), task_id)
    store.close()
    stack.scheduler.start().wait(60)
    shown = [post(stack, "/state", None), post(stack, "/api/v1", {"type": "GET_STATE"})]
    assert all(task_id.encode() in text and secret.encode() not in text for text in shown)
    files = dict(readable(stack.directory))
    assert any(path.name == "task.updates" for path in files), "updates themselves are everybody's to read"
    assert any(path.name == "stdout" for path in files)
    assert [path for path, text in files.items() if secret.encode() in text] == []
    client.kill(job_id)
    wait_until("it is killed", lambda: client.job(job_id)["state"] == "killed", 60)


def readable(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the files that each user of this machine can read, with their content."""
    for path in paths_below(top):
        with contextlib.suppress(FileNotFoundError):  # its task has ended
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IROTH and "mesos" in path.parts:
                yield path, path.read_bytes()


def test_an_end_whose_message_is_no_ascii_is_believed(client: Client) -> None:
    job_id = client.submit({"argv": ["/nö/such/😀\x7f"], "cpus": 0.1, "mem_mib": 32})["id"]
    wait_until("it fails", lambda: client.job(job_id)["state"] == "failed", 60)
    assert "/nö/such/😀" in client.job(job_id)["message"]
