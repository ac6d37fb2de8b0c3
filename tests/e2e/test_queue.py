"""The queue on real Mesos, whose offers lag behind the ends of tasks: limits, order, and what is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def client(open_directory: Path) -> Iterator[Client]:
    nodes = [NodeSpec(2), NodeSpec(2)]
    arguments = ("--queue", "lab=1")
    made = Stack(open_directory / "stack", nodes, scheduler_arguments=arguments)
    with made as stack, Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 4)
        yield client


def submit(client: Client, gpus: int, command: str = "sleep 600", **fields: object) -> str:
    request = {"command": command, "gpus": gpus, "cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1, **fields}
    return client.submit(request)["id"]


def state(client: Client, *jobs: str) -> list[str]:
    return [client.job(job)["state"] for job in jobs]


def end(client: Client, *jobs: str) -> None:
    for job in jobs:
        client.kill(job)
    wait_until("their end", lambda: set(state(client, *jobs)) <= {"killed", "finished"})


def test_a_large_job_gets_its_node_under_a_stream_of_small_ones(client: Client) -> None:
    fill = [submit(client, 1) for _ in range(4)]
    wait_until("all run", lambda: state(client, *fill) == ["running"] * 4)
    big = submit(client, 2)
    small = [submit(client, 1, "sleep 0.1") for _ in range(6)]
    quick = submit(client, 1, "true", priority=1)
    waiting = client.queue()["jobs"]
    assert [job["id"] for job in waiting] == [quick, big, *small]
    kept = waiting[1]["reservation"] or waiting[0]["reservation"]
    assert kept is not None
    assert kept["hostname"] in ("127.0.0.11", "127.0.0.12")
    hosts = {job: client.job(job)["hostname"] for job in fill}
    first = [job for job in fill if hosts[job] == hosts[fill[0]]]
    end(client, *first)  # one by one, with small jobs waiting for each GPU
    wait_until("the large job runs", lambda: state(client, big) == ["running"])
    assert state(client, quick) == ["finished"]
    assert state(client, *small) == ["pending"] * 6
    end(client, big)
    wait_until("the small ones end", lambda: state(client, *small) == ["finished"] * 6)
    end(client, *[job for job in fill if job not in first])


def test_a_limit_holds_on_a_free_cluster(client: Client) -> None:
    one, two = submit(client, 1, queue="lab"), submit(client, 1, queue="lab")
    wait_until("one runs", lambda: state(client, one, two) == ["running", "pending"])
    other = submit(client, 1, "true")
    wait_until("another queue is served", lambda: state(client, other) == ["finished"])
    why = client.why(two)
    assert why["summary"] == "waits for its queue: queue lab may hold 1 GPU, and holds 1"
    assert why["can_ever_run"]
    (lab,) = (queue for queue in client.queue()["queues"] if queue["name"] == "lab")
    assert (lab["limit_gpus"], lab["used_gpus"], lab["waiting"]) == (1, 1, 1)
    end(client, one)
    wait_until("the other runs", lambda: state(client, two) == ["running"])
    end(client, two)
