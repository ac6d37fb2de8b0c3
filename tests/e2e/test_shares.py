"""Shares of GPUs on the real Mesos: what its master counts, and who gets what it does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, Refused, ended
from mesos_gpu.cli.jobs.resize import ask_resize
from mesos_gpu.local.stack import NodeSpec, Stack, address
from mesos_gpu.model.ids import GpuId
from tests.clients import client_of, kill_all
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


@pytest.fixture(autouse=True)
def own_jobs(client: Client) -> Iterator[None]:
    yield
    kill_all(client)


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


def gone(stack: Stack, client: Client, *jobs: Job) -> None:
    """Kill the jobs; all that they had is free again, and nothing of ours holds a card."""
    for job in jobs:
        client.kill(job["id"])
    wait_until("all have ended", lambda: all(ended(client.job(job["id"])) for job in jobs), 60)
    wait_until("Mesos has the cards back", lambda: used(stack) == 0 and not cover_tasks(stack), 60)


def cards_of(client: Client, *jobs: Job) -> list[str]:
    return [gpu for job in jobs for gpu in client.job(job["id"])["gpu_ids"]]


def test_shares_of_a_quarter_have_one_card_beside_a_whole_one_and_mesos_counts_both(
    stack: Stack, client: Client
) -> None:
    quarters = [submit(client, "sleep 600") for _ in range(4)]
    whole = submit(client, "sleep 600", gpus=1)
    running(client, *quarters, whole)
    assert len(set(cards_of(client, *quarters))) == 1
    assert not set(cards_of(client, whole)) & set(cards_of(client, *quarters))
    assert used(stack) == 2
    (cover,) = cover_tasks(stack)
    assert cover["resources"]["gpus"] == 1
    fractions = [task for task in framework_of(stack)["tasks"] if task["name"] == "part"]
    labels = [{label["key"]: label["value"] for label in task["labels"]} for task in fractions]
    shared = [each for each in labels if "mesos_gpu.share" in each]
    assert len(shared) == 4
    assert {each["mesos_gpu.gpu"] for each in shared} == {cover["name"].removeprefix("shared-")}
    assert {each["mesos_gpu.share"] for each in shared} == {"0.25"}
    assert all(int(each["mesos_gpu.memory_mib"]) > 0 and each["mesos_gpu.guarantee"] for each in shared)
    gone(stack, client, *quarters, whole)


def test_shares_of_a_second_card_are_held_by_the_keeper_of_the_node(stack: Stack, client: Client) -> None:
    both = submit(client, "sleep 600", gpus=2, gpu_compute_pct=60, gpu_memory_mib=1024)
    running(client, both)
    wait_until("Mesos has heard of both", lambda: all(task["statuses"] for task in cover_tasks(stack)))
    assert [len(cover_tasks(stack)), len({task["executor_id"] for task in cover_tasks(stack)})] == [2, 1]
    assert used(stack) == 2
    gone(stack, client, both)


@pytest.mark.long
def test_shares_of_a_second_card_wait_for_no_start_of_a_keeper(stack: Stack, client: Client) -> None:
    exact = {"gpus": 1, "gpu_compute_pct": 60, "gpu_memory_mib": 1024}
    other_node = submit(client, "sleep 600", gpus=2)
    running(client, other_node)
    first = submit(client, "sleep 600", **exact)
    running(client, first)
    wait_until("Mesos has heard of it", lambda: all(task["statuses"] for task in cover_tasks(stack)))
    (cover,) = cover_tasks(stack)
    first_ms, took_ms = _held_after_ms(stack, cover["id"]), []  # it waits for the keeper's start
    for _ in range(3):
        second = submit(client, "sleep 600", **exact)
        running(client, second)
        assert len({task["executor_id"] for task in cover_tasks(stack)}) == 1
        wait_until("Mesos has heard of both", lambda: all(task["statuses"] for task in cover_tasks(stack)))
        late = max(cover_tasks(stack), key=lambda task: float(task["statuses"][0]["timestamp"]))
        took_ms.append(_held_after_ms(stack, late["id"]))
        client.kill(second["id"])
        wait_until("the card is given back", lambda: len(cover_tasks(stack)) == 1, 60)
    assert min(took_ms) < first_ms / 2, (first_ms, took_ms)
    gone(stack, client, first, other_node)


def _held_after_ms(stack: Stack, task_id: str) -> float:
    """From the scheduler's launch of a task to its executor's word that it runs."""
    tasks = requests.get(f"{stack.url}/v1/tasks", timeout=30).json()["tasks"]
    (launched_at,) = [task["launched_at"] for task in tasks if task["id"] == task_id]
    (task,) = [task for task in cover_tasks(stack) if task["id"] == task_id]
    (said_at,) = [status["timestamp"] for status in task["statuses"] if status["state"] == "TASK_RUNNING"]
    return (float(said_at) - float(launched_at)) * 1000


def test_share_grows_and_shrinks_while_it_runs(stack: Stack, client: Client) -> None:
    job, other = submit(client, "sleep 600"), submit(client, "sleep 600", gpus=0.5)
    running(client, job, other)
    grown = ask_resize(client, job["id"], {"gpu_memory_mib": 30720, "gpu_compute_pct": 45})
    assert grown["share"] is not None
    assert (grown["share"]["memory_mib"], grown["share"]["compute_pct"]) == (30720, 45)
    shares = {each["job_id"]: each for gpu in client.gpus() for each in gpu["shares"]}
    assert (shares[job["id"]]["compute_pct"], shares[other["id"]]["compute_pct"]) == (45, 50)
    for beyond, why in (61440, "MiB free"), (81921, "no GPU has 81921 MiB"):
        with pytest.raises(Refused, match=why) as refused:
            ask_resize(client, job["id"], {"gpu_memory_mib": beyond})
        assert refused.value.http_status == 409
    shrunk = ask_resize(client, job["id"], {"gpu_memory_mib": 1024})
    assert shrunk["share"] is not None
    assert shrunk["share"]["memory_mib"] == 1024
    _withdraw_one_that_is_not_answered(client, job)
    gone(stack, client, job, other)


def _withdraw_one_that_is_not_answered(client: Client, job: Job) -> None:
    """Stop its executor, ask for less, and take that back: whatever it does first when it goes on."""
    executor = [each for each in psutil.process_iter() if _executor_of(each) == f"{job['id']}.1"]
    assert executor
    path = f"/v1/jobs/{job['id']}"
    for process in executor:
        process.suspend()
    try:
        asked = client.call("PATCH", path, dict, {"timeout_s": 0.5}, body={"gpu_memory_mib": 10240})
        assert asked["resize"]["state"] == "asked"
        withdrawn = client.call("DELETE", f"{path}/resize", dict, {"timeout_s": 0.5})
        assert (withdrawn["resize"]["state"], withdrawn["share"]["memory_mib"]) == ("withdrawing", 1024)
    finally:
        for process in executor:
            process.resume()
    wait_until("it is answered", lambda: _resize_of(client, job) == "withdrawn")
    share = client.job(job["id"])["share"]
    assert share is not None
    assert share["memory_mib"] == 1024


def _resize_of(client: Client, job: Job) -> str | None:
    resize = client.job(job["id"])["resize"]
    return None if resize is None else resize["state"]


def _executor_of(process: psutil.Process) -> str | None:
    """The id of the Mesos executor that a process is, or is part of."""
    try:
        return process.environ().get("MESOS_EXECUTOR_ID")
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return None


def test_share_that_a_task_exceeds_ends_the_task(stack: Stack, client: Client) -> None:
    job, neighbour = submit(client, "echo pid $$; sleep 600"), submit(client, "sleep 600")
    running(client, job, neighbour)
    logs = wait_until("its pid", lambda: client.logs(job["id"], stream="stdout", offset=0, length=99)["data"])
    pid = logs.split()[1]
    node = 1 if client.job(job["id"])["hostname"] == address(1) else 2
    gpu = GpuId(client.job(job["id"])["gpu_ids"][0])
    assert change_gpu(stack.inventory(node), gpu, pids=[int(pid)], process_mib={pid: 60000})
    wait_until("it is ended", lambda: ended(client.job(job["id"])), 60)
    over = client.job(job["id"])
    assert (over["state"], over["attempts"]) == ("failed", 1)
    assert over["message"].startswith(f"ended beyond its share: it uses 60000 MiB of {gpu} on ")
    assert client.job(neighbour["id"])["state"] == "running"
    assert change_gpu(stack.inventory(node), gpu, pids=None, process_mib=None)
    gone(stack, client, neighbour)
