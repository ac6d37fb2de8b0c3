"""Two schedulers of one cluster, which the files of this folder share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from tests.conftest import wait_until
from tests.e2e.ha.pairs import await_schedulers

GPUS = 4


@pytest.fixture(scope="package")
def pair() -> Iterator[Stack]:
    """Start a node, a server of ZooKeeper and two schedulers."""
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-test-") as directory:
        Path(directory).chmod(0o755)
        hooks = ["--webhook-to", "127.0.0.1:*"]
        stack = Stack(Path(directory, "stack"), [NodeSpec(GPUS)], schedulers=2, scheduler_arguments=hooks)
        with stack:
            yield stack


@pytest.fixture
def stack(pair: Stack) -> Stack:
    """Return the cluster with both schedulers up, also after a test that ended one."""
    with Client(await_schedulers(pair).url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == GPUS)
    wait_until("a standby has all", lambda: pair.standbys()[0].get("/v1/leader")["batch"] > 0)
    return pair


@pytest.fixture
def leader(stack: Stack) -> SchedulerProcess:
    return stack.await_leader()


@pytest.fixture
def standby(stack: Stack, leader: SchedulerProcess) -> SchedulerProcess:
    return next(each for each in stack.schedulers if each is not leader)
