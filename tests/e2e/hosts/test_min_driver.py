"""Jobs that need a driver, on real Mesos: two nodes with different drivers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def client(open_directory: Path) -> Iterator[Client]:
    nodes = [NodeSpec(1, driver="470.82.01-simulated"), NodeSpec(1, driver="535.54.03-simulated")]
    with Stack(open_directory / "stack", nodes) as stack, Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 2)
        yield client


def submit(client: Client, **fields: object) -> Job:
    return client.submit({"name": "t", "command": "true", "cpus": 0.1, "mem_mib": 32, **fields})


@pytest.mark.parametrize("fields", [{"min_driver": "535"}, {"labels": {"com.nvidia.cuda.version": "12.2.0"}}])
def test_a_job_lands_where_the_driver_is_new_enough(client: Client, fields: dict[str, object]) -> None:
    jobs = [submit(client, gpus=1, **fields)["id"] for _ in range(2)]  # one after the other: it has one GPU
    jobs.append(submit(client, min_driver="535")["id"])
    wait_until("the ends", lambda: all(ended(client.job(job)) for job in jobs))
    for end in map(client.job, jobs):
        assert (end["state"], end["hostname"]) == ("finished", "127.0.0.12"), end


def test_a_job_that_no_driver_will_do_for_says_why(client: Client) -> None:
    job = submit(client, gpus=1, min_driver="550")
    why = client.why(job["id"])
    assert (why["state"], why["can_ever_run"]) == ("pending", False)
    assert why["summary"] == (
        "no node with the GPUs that it asks for has driver 550 or newer; "
        "the newest is 535.54.03-simulated on 127.0.0.12"
    )
    client.kill(job["id"])


def test_nodes_report_their_drivers(client: Client) -> None:
    versions = {node["hostname"]: (node["driver_version"], node["cuda_version"]) for node in client.nodes()}
    assert versions == {
        "127.0.0.11": ("470.82.01-simulated", "11.4"),
        "127.0.0.12": ("535.54.03-simulated", "12.2"),
    }
