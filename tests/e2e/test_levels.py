"""Levels of a fabric over four nodes of real Mesos: gangs in one rack, gangs that wait, contradictions at a start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, free_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
NODES = tuple(
    NodeSpec(2, attributes={"block": block, "rack": rack})
    for block, rack in (("b1", "r1"), ("b1", "r2"), ("b1", "r1"), ("b2", "r3"))
)
RACKS = {f"127.0.0.{11 + i}": spec.attributes["rack"] for i, spec in enumerate(NODES)}


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(
        open_directory / "stack", NODES, scheduler_arguments=["--topology", "block,rack,host"]
    ) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 8) as client:
        yield client
        free_all(client)


def submit(client: Client, name: str, tasks: int, **more: object) -> Job:
    request = {"name": name, "command": "sleep 300", "tasks": tasks, "gpus": 1, "cpus": 0.1, "mem_mib": 32}
    return client.submit({**request, "kill_grace_s": 0.1, **more})


def running(client: Client, job: Job) -> list[str]:
    """Wait until a gang runs; return the racks of its tasks by rank."""
    wait_until("the gang runs", lambda: client.job(job["id"])["state"] == "running", 60)
    latest = client.job(job["id"])["task_ids"]
    tasks = {task["rank"]: task["hostname"] for task in client.tasks(job["id"]) if task["id"] in latest}
    return [RACKS[tasks[rank]] for rank in range(job["tasks"])]


def test_gang_runs_in_one_rack_and_the_next_waits_for_it(client: Client) -> None:
    first = submit(client, "first", 4, topology={"required": "rack"})
    assert running(client, first) == ["r1"] * 4
    second = submit(client, "second", 4, topology={"required": "rack"})
    said = client.why(second["id"])
    assert said["can_ever_run"]
    assert "has the most room: it lacks room for 2 of 4 tasks" in said["summary"]
    client.kill(first["id"])
    assert running(client, second) == ["r1"] * 4


def test_segments_run_in_one_rack_each_and_a_gang_too_large_says_so(client: Client) -> None:
    job = submit(client, "segments", 6, topology={"required": "rack"}, segment=2)
    racks = running(client, job)
    assert [racks[i] for i in range(0, 6, 2)] == [racks[i] for i in range(1, 6, 2)]
    large = submit(client, "large", 5, topology={"required": "rack"})
    said = client.why(large["id"])
    assert not said["can_ever_run"]
    assert "the largest rack, r1, has room for 4, even when nothing else runs there" in said["summary"]


def test_level_that_is_not_declared_is_refused_with_the_attributes(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        submit(client, "row", 2, topology={"required": "row"})
    (problem,) = refused.value.problems
    assert problem["path"] == "/topology"
    assert "its levels are block, rack" in problem["reason"]
    assert "attributes of agents: block, gpu_model, rack" in problem["reason"]


@pytest.mark.parametrize("is_new", [False, True])
def test_scheduler_refuses_levels_that_are_not_nested_in_the_cluster(
    stack: Stack, client: Client, is_new: bool, tmp_path: Path
) -> None:
    wait_until("all nodes are known", lambda: len(client.nodes()) == len(NODES), 30)
    stack.scheduler.end()
    more = ("--state", str(tmp_path / "state.sqlite")) if is_new else ()
    stack.scheduler.start("--topology", "rack,block", *more)
    wait_until("the scheduler has ended", lambda: not stack.scheduler.running, 30)
    tail = stack.scheduler.tail()
    assert "block b1 is in rack r1" in tail
    assert "and in rack r2 on 127.0.0.12" in tail
    stack.scheduler.start().wait()
