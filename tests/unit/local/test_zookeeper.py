"""A leader that ZooKeeper names, also where no master has been yet. Its watches are those of kazoo, scripted here."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.pymesos_driver import Registered
from tests.contract.test_pymesos_driver import FRAMEWORK, QUICK
from tests.doubles.scripted_master import Inbox, ScriptedMaster


class Zoo:
    """A client of kazoo, as far as the detector uses one, and its two recipes."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.watches: list[tuple[str, Callable[..., Any]]] = []
        self.children: list[Callable[..., Any]] = []

    def client(self, _hosts: str, _timeout_s: float) -> "Zoo":
        return self

    def start(self) -> None:
        """Nothing is connected."""

    def stop(self) -> None:
        self.watches.clear()
        self.children.clear()

    def data_watch(self, _client: object, path: str, call: Callable[..., Any]) -> None:
        if self._tell(path, call):
            self.watches.append((path, call))

    def children_watch(self, _client: object, _path: str, call: Callable[..., Any]) -> None:
        assert "" in self.nodes, "kazoo raises NoNodeError"
        call([path[1:] for path in self.nodes if path])
        self.children.append(call)

    def put(self, path: str, data: bytes = b"") -> None:
        self.nodes[path] = data
        self.watches = [(path, call) for path, call in self.watches if self._tell(path, call)]
        for call in list(self.children):
            call([path[1:] for path in self.nodes if path])

    def _tell(self, path: str, call: Callable[..., Any]) -> bool:
        there = path in self.nodes
        return call(self.nodes.get(path), object() if there else None) is not False


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> Zoo:
    zoo = Zoo()
    detector = "pymesos.detector"  # importable once the driver is
    monkeypatch.setattr(f"{detector}.ZKClient", zoo.client)
    monkeypatch.setattr(f"{detector}.DataWatch", zoo.data_watch)
    monkeypatch.setattr(f"{detector}.ChildrenWatch", zoo.children_watch)
    return zoo


def test_a_path_that_is_not_there_yet_is_waited_for(zoo: Zoo, caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox()
    driver = pd.PymesosDriver(FRAMEWORK, "zk://zoo:2181/mesos", inbox, timings=QUICK)
    with ScriptedMaster() as master, caplog.at_level(logging.WARNING):
        driver.start()
        try:
            assert "no master has registered at zk://zoo:2181/mesos yet" in caplog.text
            zoo.put("")
            zoo.put("/log_replicas")
            info = {"address": {"hostname": "127.0.0.1", "ip": "127.0.0.1", "port": master.port}}
            zoo.put("/json.info_0000000000", json.dumps(info).encode())
            assert inbox.wait_for(Registered).master_url == f"http://{master.address}"
        finally:
            driver.stop(teardown=False)
