"""A scheduler whose state is a file: it can be stopped, and another one started on it at the same address."""

from pathlib import Path
from typing import Any

import requests

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.scheduler.daemon import Daemon
from tests.contract.rig import unkept
from tests.doubles.fake_driver import FakeClock, FakeDriver


class Kept:
    def __init__(self, state: Path, **settings: Any) -> None:
        self.state, self._settings, self.port = state, settings, 0
        self.clock, self.session = FakeClock(), unkept()
        self.start()

    def start(self) -> None:
        self.store = store = SqliteStore(self.state)
        self.driver = FakeDriver()
        self.saved = store.load()
        self.daemon = Daemon(store, self.saved, self.driver, self.clock, Settings.of("e", "m"))
        self.server = serve(
            create_app(self.daemon, ApiSettings("http://w", "0.1.0", **self._settings)),
            "127.0.0.1",
            self.port,
        )
        self.url = self.server.url
        self.port = int(self.url.rpartition(":")[2])
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        self.daemon.put(ev.Registered("fw", "http://master"))

    def stop(self) -> None:
        self.server.stop()
        self.clock.set_between_turns(None)
        self.daemon.stop()

    def call(self, verb: str, path: str, **more: Any) -> requests.Response:
        return self.session.request(verb, self.url + path, timeout=60, **more)

    def submit(self, **fields: Any) -> str:
        response = self.call("POST", "/v1/jobs", json={"command": "true", **fields})
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def close(self) -> None:
        self.session.close()
        self.stop()
