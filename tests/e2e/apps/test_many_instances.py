"""Many instances of one app on real agents, one of which is stopped: no instance is lost or launched twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.instances import delete_instances, start_instances
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("many")
    with Stack(folder / "stack", [NodeSpec(4)] * 3) as stack, Client(stack.url) as client:
        poll("the nodes report their GPUs", lambda: len(client.gpus()) == 12, 60)
        yield stack


@pytest.mark.parametrize(
    ("instances", "stop_s", "hosts"),
    [
        (12, 8.0, 2),  # the master removes the agent after four missed pings
        pytest.param(45, 8.0, 3, marks=pytest.mark.long),
        pytest.param(200, 20.0, 3, marks=pytest.mark.long),
    ],
)
def test_instances_of_a_stopped_agent_are_neither_lost_nor_launched_twice(
    stack: Stack, instances: int, stop_s: int, hosts: int
) -> None:
    figures = start_instances(stack, instances, stop_s)
    there = _running(stack)
    delete_instances(stack)
    assert (figures["launched"], figures["lost"]) == (instances, 0)
    assert len({job["hostname"] for job in there}) >= hosts, "they are spread"
    assert not _running(stack)


def _running(stack: Stack) -> list[Job]:
    with Client(stack.url) as client:
        return list(client.jobs(states=["active"], limit=1000))
