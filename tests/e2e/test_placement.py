"""The classic case, on real Mesos: ten GPUs are free on four nodes, and a job wants four on one."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
NODES, GPUS, SMALL = 4, 4, 6


@contextmanager
def cluster(directory: Path, *arguments: str) -> Iterator[Client]:
    nodes = [NodeSpec(GPUS)] * NODES
    with Stack(directory, nodes, scheduler_arguments=arguments) as stack, Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == NODES * GPUS)
        yield client


def submit(client: Client, name: str, gpus: int, **more: object) -> Job:
    job = {"name": name, "command": "sleep 300", "gpus": gpus, "cpus": 0.1, "mem_mib": 32}
    return client.submit({**job, **more})


def fill(client: Client, **more: object) -> Counter[str]:
    """Small jobs that leave ten GPUs free: how many each host has."""
    jobs = []
    for number in range(SMALL):
        jobs.append(submit(client, f"small-{number}", 1, **more))
        wait_until("it runs", lambda: client.job(jobs[-1]["id"])["state"] == "running")
    return Counter(str(client.job(job["id"])["hostname"]) for job in jobs)


def test_spread_leaves_ten_gpus_on_four_nodes_and_says_so(open_directory: Path) -> None:
    with cluster(open_directory / "spread", "--placement", "spread") as client:
        assert sorted(fill(client).values()) == [1, 1, 2, 2]
        big = submit(client, "big", 4)
        wait_until("it is looked at", lambda: "fragmentation" in client.why(big["id"])["summary"])
        summary = client.why(big["id"])["summary"]
        assert "10 are free, on 4 nodes with at most 3 each: fragmentation" in summary
        assert client.job(big["id"])["state"] == "pending"


def test_bundle_leaves_whole_nodes_and_the_job_runs(open_directory: Path) -> None:
    with cluster(open_directory / "bundle", "--placement-of", "wide=spread") as client:
        assert sorted(fill(client).values()) == [2, 4]
        big = submit(client, "big", 4)
        wait_until("it runs", lambda: client.job(big["id"])["state"] == "running")
        needs = {"gpu_memory_mib": 80_000, "compute_capability": "8.0"}
        one = submit(client, "apart", 1, app="wide", **needs)
        wait_until("it runs", lambda: client.job(one["id"])["state"] == "running")
        used = {str(job["hostname"]) for job in client.jobs() if job["name"] != "apart"}
        assert client.job(one["id"])["hostname"] not in used, "an app's placement goes before the scheduler's"
        newer = submit(client, "newer", 1, compute_capability="8.9")
        assert client.why(newer["id"])["state"] == "pending", "these cards have 8.0"
