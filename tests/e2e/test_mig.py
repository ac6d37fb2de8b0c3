"""MIG instances as shares on the real Mesos: those that an operator made, and those that a host makes."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger
from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.ids import GpuId
from tests.clients import client_of
from tests.conftest import wait_until
from tests.doubles.nvml.mig_tables import MIG_TABLES

pytestmark = [pytest.mark.cluster]
H100 = "NVIDIA H100 80GB HBM3"
SEVENTHS = 7
MADE_BY_HAND = [
    {
        **{"uuid": "MIG-large", "profile": "3g.40gb", "memory_mib": 40448, "sm_count": 60},
        **{"gpu_instance": 1, "compute_instance": 0, "compute_milli": 428, "memory_milli": 500},
    },
    {
        **{"uuid": "MIG-small", "profile": "1g.10gb", "memory_mib": 9984, "sm_count": 16},
        **{"gpu_instance": 13, "compute_instance": 0, "compute_milli": 142, "memory_milli": 125},
    },
]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    arguments = ["--share-linger", "1", "--report-interval", "2"]
    nodes = [NodeSpec(1, H100)]
    with Stack(open_directory / "stack", nodes, scheduler_arguments=arguments) as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 1) as client:
        yield client


def divided(stack: Stack, client: Client, mark: int, **sharing: object) -> None:
    """Have the card in MIG mode, and the scheduler know it: by another field of the same report."""
    (card,) = client.gpus()
    said = {"abilities": {"mig": "", "shim": "its MIG mode is on"}, "mig": True, **sharing}
    assert change_gpu(stack.inventory(1), GpuId(card["uuid"]), sharing=said, numa_node=mark)
    wait_until("the scheduler knows", lambda: client.gpus()[0]["numa_node"] == mark)


def submit(client: Client, **fields: object) -> Job:
    """A job that says what CUDA is to see, and stays."""
    return client.submit(
        {
            "name": "part",
            "command": "echo $CUDA_VISIBLE_DEVICES; sleep 600",
            "cpus": 0.1,
            "mem_mib": 32,
            **fields,
        }
    )


def seen_by(client: Client, job: Job) -> str:
    """Wait for the output of its command and return it."""

    def line() -> str:
        return client.logs(job["id"], stream="stdout", offset=0, length=1000)["data"].strip()

    return wait_until("its output", line)


def instance_of(client: Client, job: Job) -> str:
    share = client.job(job["id"])["share"]
    assert share is not None
    assert share["guarantee"] == {"memory": "hardware", "compute": "hardware", "faults": "contained"}
    return str(share["instance"])


def runs(client: Client, *jobs: Job) -> None:
    wait_until("they run", lambda: {client.job(job["id"])["state"] for job in jobs} == {"running"})


def gone(client: Client, *jobs: Job) -> None:
    for job in jobs:
        client.kill(job["id"])
    wait_until("the end", lambda: all(ended(client.job(job["id"])) for job in jobs))


def test_mig_instances_that_an_operator_made_are_shares_of_fixed_size(stack: Stack, client: Client) -> None:
    divided(stack, client, 5, instances=MADE_BY_HAND)
    small, large = submit(client, gpus=0.125), submit(client, gpu_memory_mib=20000, gpu_compute_pct=30)
    runs(client, small, large)
    assert (instance_of(client, small), instance_of(client, large)) == ("MIG-small", "MIG-large")
    assert (seen_by(client, small), seen_by(client, large)) == ("MIG-small", "MIG-large")
    third = submit(client, gpus=0.125)
    wait_until("why it waits", lambda: "MIG instances" in str(client.why(third["id"])))
    gone(client, small)
    runs(client, third)
    assert instance_of(client, third) == "MIG-small"
    gone(client, third, large)


@pytest.mark.parametrize("count", [2, pytest.param(SEVENTHS, marks=pytest.mark.long)])
def test_mig_instances_are_made_for_shares_and_removed(stack: Stack, client: Client, count: int) -> None:
    divided(stack, client, 6 + count, profiles=[asdict(profile) for profile in MIG_TABLES[H100].profiles()])
    jobs = [submit(client, gpus=0.125) for _ in range(count)]
    runs(client, *jobs)
    instances = sorted(instance_of(client, job) for job in jobs)
    assert set(instances) <= {f"1g.10gb@{n}" for n in range(SEVENTHS)}
    assert len(set(instances)) == count
    uuids = {seen_by(client, job) for job in jobs}
    assert len(uuids) == count
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    ledger = Ledger(stack.directory / "nodes" / "1" / "ledger.sqlite")
    assert sorted(row.what for row in ledger.cards() if row.kind == "mig") == instances
    gone(client, *jobs)
    wait_until("no instance is left", lambda: not [row for row in ledger.cards() if row.kind == "mig"])
    whole = submit(client, gpus=0.6)
    runs(client, whole)
    assert instance_of(client, whole) == "7g.80gb@0"
    gone(client, whole)
