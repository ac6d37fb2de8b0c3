"""An executor as a process, and the agent that it speaks to."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.testing.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import Host, host


@pytest.fixture
def agent() -> Iterator[ScriptedAgent]:
    with scripted_agent() as agent:
        yield agent


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent) -> Iterator[Host]:
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent) as one:
        yield one
