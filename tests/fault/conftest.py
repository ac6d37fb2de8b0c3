"""The cluster that faults are tried on: two nodes with four cards each, one for each module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(4), NodeSpec(4)]) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        client.patience_s = 60
        wait_until("the nodes report", lambda: len(client.gpus()) == 8, 60)
        yield client
