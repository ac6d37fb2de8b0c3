"""Three masters, three servers of ZooKeeper and three agents on hosts of their own, with names and secrets: what is
between them is cut.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.network import Host, Way
from mesos_gpu.local.processes import Process
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.local.zookeeper import JAR
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, output_of, submit

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces"),
    pytest.mark.skipif(
        not JAR.exists(), reason="needs ZooKeeper: apt-get install -y zookeeper default-jre-headless"
    ),
    pytest.mark.skipif(not shutil.which("iptables"), reason="needs iptables"),
]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(1)] * 3, masters=3, hosts=True, secure=True) as stack:
        yield stack
    assert stack.cluster.network is not None
    left = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert stack.cluster.network.name not in left


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.reach) as client:
        wait_until("all nodes report", lambda: len(client.gpus()) == 3)
        yield client


def host_of(process: Process) -> Host:
    assert process.host is not None
    return process.host


def test_jobs_run_on_hosts_of_their_own(stack: Stack, client: Client) -> None:
    job = end_of(client, submit(client, "hostname -I; echo $NVIDIA_VISIBLE_DEVICES", gpus=1))
    address, *gpus = output_of(client, job).split()
    assert address in {agent.ip for agent in stack.cluster.agents}
    assert gpus == job["gpu_ids"]


def test_a_leader_that_others_do_not_hear_is_followed_by_another(stack: Stack, client: Client) -> None:
    """What it says reaches nobody, and its ZooKeeper is cut off with it: the others have the quorum."""
    first = stack.cluster.await_leader()
    job = submit(client, "sleep 6", gpus=1)
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    others = [each.ip for each in (*stack.cluster.masters, *stack.cluster.agents) if each is not first]
    host_of(first).cut(others)
    try:
        wait_until("another leads", lambda: stack.cluster.leader() not in (None, first))
        for agent in stack.cluster.agents:
            agent.wait()
    finally:
        host_of(first).heal()
    wait_until("it ends, to be started anew", lambda: not first.running)
    first.start()
    ended = end_of(client, job)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended


def test_agents_that_are_cut_off_come_back_with_their_tasks(stack: Stack, client: Client) -> None:
    """Masters take all for unreachable: who is not heard, who hears nothing, and who neither. Their tasks are not
    started anew, and end as they would have."""
    leader = stack.cluster.await_leader()
    jobs = [submit(client, "sleep 10; echo done", gpus=1) for _ in stack.cluster.agents]
    wait_until("they run", lambda: all(client.job(job["id"])["state"] == "running" for job in jobs))
    ids = {agent.id for agent in stack.cluster.agents}
    masters = [master.ip for master in stack.cluster.masters]
    ways: tuple[Way, ...] = ("from", "to", "both")
    for agent, way in zip(stack.cluster.agents, ways, strict=True):
        host_of(agent).cut(masters, way)
    try:
        wait_until("the master has lost them", lambda: leader.agents() == [])
    finally:
        for agent in stack.cluster.agents:
            host_of(agent).heal()
    for agent in stack.cluster.agents:
        agent.wait()
    assert {agent.id for agent in stack.cluster.agents} == ids
    for job in jobs:
        ended = end_of(client, job)
        assert (ended["state"], ended["attempts"], output_of(client, ended)) == ("finished", 1, "done\n"), (
            ended
        )


def test_over_links_that_are_slow_and_lose_packets_each_job_is_done_once(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    """An update that is not acknowledged in time comes again, and calls are made again."""
    done = open_directory / "done"
    done.touch()
    done.chmod(0o666)
    hosts = [host_of(agent) for agent in stack.cluster.agents]
    for host in hosts:
        host.slow(512)
        host.lose(0.1)
    try:
        jobs = [submit(client, f"sleep 1; echo $MESOS_GPU_JOB_ID >> {done}", gpus=1) for _ in range(9)]
        ends = [end_of(client, job, 120) for job in jobs]
    finally:
        for host in hosts:
            host.heal()
    assert [(end["state"], end["attempts"]) for end in ends] == [("finished", 1)] * len(jobs), ends
    assert sorted(done.read_text().split()) == sorted(job["id"] for job in jobs)
