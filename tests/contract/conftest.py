"""An executor as a process, the agent that it speaks to, and the REST server that the command line speaks to; a
scheduler's interface."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.testing.fake_rest import FakeRest
from mesos_gpu.testing.scripted_agent import ScriptedAgent, scripted_agent
from tests.contract.rig import Rig
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


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
        yield server


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()
