"""An executor as a process, the agent that it speaks to, and the REST server that the command line speaks to; a
scheduler's interface."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mesos_gpu.local import leftovers, stack
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.zookeeper import JAR, ZooKeeper
from tests.contract.rig import Rig
from tests.doubles.fake_rest import FakeRest
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import Host, host

Spawn = Callable[[Sequence[str], Path], "subprocess.Popen[bytes]"]


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
def spawn(quick_schedulers: None, tmp_path_factory: pytest.TempPathFactory) -> Spawn:
    """Start schedulers, by their options and the file of their words: forked from a process that has the imports."""

    def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return stack.spawn([*stack.SCHEDULER, *words], dict(os.environ), file.fileno())

    assert start(["--help"], tmp_path_factory.mktemp("spawn") / "log").wait(60) == 0
    return start


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
