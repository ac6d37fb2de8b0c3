"""An executor as a process, the agent that it speaks to, and the REST server that the command line speaks to; a
scheduler's interface."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.local import leftovers
from mesos_gpu.local.cluster import free_port
from mesos_gpu.local.zookeeper import JAR, ZooKeeper
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


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A server of ZooKeeper; each test has a path of its own there."""
    if not JAR.exists():
        pytest.skip("needs ZooKeeper: apt-get install -y zookeeper default-jre-headless")
    directory = tmp_path_factory.mktemp("zookeeper") / "cluster"
    leftovers.claim(directory, entries=["zookeeper-1"])
    server = ZooKeeper(directory / "zookeeper-1", 1, "127.0.0.1", free_port())
    try:
        server.start().wait()
        yield server
    finally:
        server.kill()
        record = leftovers.own(directory)
        leftovers.remove(record)


@pytest.fixture
def meeting(zookeeper: ZooKeeper) -> str:
    """Where schedulers of a test meet."""
    return f"zk://{zookeeper.ip}:{zookeeper.port}/test-{time.monotonic_ns()}"
