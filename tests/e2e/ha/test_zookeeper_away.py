"""ZooKeeper stops and comes back: what runs runs on, nothing is launched meanwhile, and it all goes on by itself."""

import time
import urllib.request

import pytest

from mesos_gpu.cli.client import Client, Refused, Unreachable
from mesos_gpu.local.stack import SchedulerProcess, Stack
from tests.conftest import wait_until
from tests.e2e.ha.pairs import start_ended
from tests.e2e.ha.test_switch import pytestmark as pytestmark
from tests.e2e.test_jobs import end_of, submit

AWAY_S = {"two sessions": 8.0, "a minute": 60.0}


def sample(scheduler: SchedulerProcess, name: str) -> float | None:
    """A number of the scheduler's page of metrics; None: it is not there."""
    with urllib.request.urlopen(f"{scheduler.url}/metrics/prometheus", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), None)


def has_standby(stack: Stack) -> bool:
    """Whether one leads and knows that another one stands by."""
    start_ended(stack)
    leader = stack.leader()
    return leader is not None and sample(leader, "mesos_gpu_standbys") == 1


def test_metrics_of_a_leader_count_its_standbys(stack: Stack) -> None:
    wait_until("one stands by", lambda: has_standby(stack))
    leader = stack.await_leader()
    [standby] = stack.standbys()
    standby.kill()
    wait_until("none does", lambda: sample(leader, "mesos_gpu_standbys") == 0)
    standby.start().wait()
    wait_until("one stands by again", lambda: sample(leader, "mesos_gpu_standbys") == 1)


@pytest.mark.parametrize("away", ["two sessions", pytest.param("a minute", marks=pytest.mark.long)])
def test_zookeeper_is_killed_and_comes_back_and_no_task_is_lost_or_doubled(stack: Stack, away: str) -> None:
    wait_until("one stands by", lambda: has_standby(stack))
    leader = stack.await_leader()
    [zookeeper] = stack.cluster.zookeepers
    with Client(leader.url) as client:
        wait_until("all nodes report", lambda: len(client.gpus()) == 4)
        runs = submit(client, f"sleep {AWAY_S[away] + 7}", gpus=1)
        wait_until("it runs", lambda: client.job(runs["id"])["state"] == "running")
        assert sample(leader, "mesos_gpu_zookeeper_answers") == 1
        zookeeper.kill()
        with pytest.raises((Refused, Unreachable)) as refused:
            submit(client, "true", gpus=1)
        assert "ZooKeeper" in str(refused.value)
        wait_until("it is on the page of metrics", lambda: sample(leader, "mesos_gpu_zookeeper_answers") == 0)
        assert sample(leader, "mesos_gpu_standbys") is None, "nobody knows it now"
        until = time.monotonic() + AWAY_S[away]
        while time.monotonic() < until:
            assert client.job(runs["id"])["state"] == "running"
            time.sleep(0.5)
    zookeeper.start().wait()

    def goes_on() -> bool:
        start_ended(stack)
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
