"""ZooKeeper stops and comes back: what runs runs on, nothing is launched meanwhile, and it all goes on by itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client, Refused, Unreachable
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.ha.test_switch import pytestmark as pytestmark
from tests.e2e.test_jobs import end_of, submit

AWAY_S = {"two sessions": 8.0, "a minute": 60.0}


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(2)], schedulers=2) as stack:
        yield stack


@pytest.mark.parametrize("away", ["two sessions", pytest.param("a minute", marks=pytest.mark.long)])
def test_zookeeper_is_killed_and_comes_back_and_no_task_is_lost_or_doubled(stack: Stack, away: str) -> None:
    leader = stack.await_leader()
    [zookeeper] = stack.cluster.zookeepers
    with Client(leader.url) as client:
        wait_until("all nodes report", lambda: len(client.gpus()) == 2)
        runs = submit(client, f"sleep {AWAY_S[away] + 7}", gpus=1)
        wait_until("it runs", lambda: client.job(runs["id"])["state"] == "running")
        zookeeper.kill()
        with pytest.raises((Refused, Unreachable)) as refused:
            submit(client, "true", gpus=1)
        assert "ZooKeeper" in str(refused.value)
        until = time.monotonic() + AWAY_S[away]
        while time.monotonic() < until:
            assert client.job(runs["id"])["state"] == "running"
            time.sleep(0.5)
    zookeeper.start().wait()

    def goes_on() -> bool:
        for each in stack.schedulers:
            if not each.running:  # its session was over: its service starts it
                each.start()
        return stack.leader() is not None

    wait_until("one leads", goes_on)
    with Client(stack.await_leader().url, read_timeout_s=30) as client:
        client.patience_s = 30
        ended = end_of(client, runs, 60)
        assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
        tasks = stack.await_leader().get(f"/v1/jobs/{runs['id']}/tasks")["tasks"]
        assert len(tasks) == 1
        again = end_of(client, submit(client, "true", gpus=2))
        assert again["state"] == "finished"
