"""A scheduler with its interface, called by whoever a header names; nothing is proved here."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests
from starlette.applications import Starlette
from starlette.types import Scope

from mesos_gpu.adapters.clock import SystemClock
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller, Narrowing, Proof
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.scheduler.daemon import Daemon
from tests.contract.rig import unkept
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

CALLER = "X-Caller"


async def by_header(scope: Scope) -> Caller:
    """Who the header says, as a JSON object of fields of `Caller`; "anybody": nobody is asked."""
    text = dict(scope["headers"]).get(CALLER.lower().encode(), b"").decode()
    if not text:
        return NOBODY
    if text == "anybody":
        return ANYBODY
    fields = json.loads(text)
    narrowing = fields.pop("narrowing", None)
    return Caller(
        **{
            "proof": Proof(fields.pop("proof", "token")),
            "groups": frozenset(fields.pop("groups", ())),
            "narrowing": Narrowing(*map(tuple, narrowing)) if narrowing else None,
            **fields,
        }
    )


class AccessRig:
    """A real daemon on a store in memory, and the real application over it."""

    who: Callable[[Daemon], Who] | None = None  # what proves names; None: `identify` says who calls

    def __init__(self, **settings: Any) -> None:
        """Nobody may anything yet. `settings`: of the interface."""
        self.store = RecordingStore()
        self.clock = FakeClock(float(int(time.time())))  # what proofs are until goes by the time of day
        clock = self.clock if self.who is None else SystemClock()
        given = {"identify": self.identify, "permits": Permits(), "records": self.store, **settings}
        of_engine = Settings.of("e", "m", secrets=given["permits"].secrets)
        self.daemon = Daemon(self.store, self.store.load(), FakeDriver(), clock, of_engine)
        api = ApiSettings("http://w", "1", who=self.who(self.daemon) if self.who else None, **given)
        self.api = create_app(self.daemon, api)
        self.prepare(self.api)
        self.server = serve(self.api, "127.0.0.1", 0)
        self.session = unkept()
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        self.daemon.put(ev.Registered("fw", "http://master"))

    async def identify(self, scope: Scope) -> Caller:
        """Take the header's word."""
        return await by_header(scope)

    def prepare(self, app: Starlette) -> None:
        """Put something around the application before it is served."""

    def call(
        self, who: str | Mapping[str, Any] | None, verb: str, path: str, **more: Any
    ) -> requests.Response:
        """Call as somebody with a name, or with these fields of `Caller`; None: nobody; "anybody": nobody is asked."""
        fields = {"name": who} if isinstance(who, str) and who != "anybody" else who
        header = fields if isinstance(fields, str) else json.dumps(fields) if fields else None
        headers = {**more.pop("headers", {}), **({CALLER: header} if header else {})}
        return self.session.request(verb, self.server.url + path, headers=headers, timeout=60, **more)

    def bind(self, *bindings: Mapping[str, Any], **more: Any) -> None:
        """Write a document, as root on the scheduler's host."""
        body = {"version": self.daemon.access.version, "bindings": list(bindings), **more}
        response = self.call(ROOT, "PUT", "/v1/access", json=body)
        assert response.status_code == 200, response.text

    def close(self) -> None:
        """End all of it."""
        self.session.close()
        self.server.stop()
        self.clock.set_between_turns(None)
        self.daemon.stop()


ROOT: Mapping[str, Any] = {"name": "root", "proof": "socket", "local_admin": True}
