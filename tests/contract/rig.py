"""A scheduler as clients of its interface meet it: a real server, a real engine, a driver that only notes."""

import asyncio
import time
from typing import Any, Final

import requests
from starlette.types import Scope

from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import Server, serve
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.access.caller import NOBODY, Caller, Proof
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import gpu, offer
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

#: Headers of a request of such a session whose connection is to be used by the next one, too.
KEPT: Final = {"Connection": "keep-alive"}


def unkept() -> requests.Session:
    """Return a session that has a connection for each request, and heeds no proxy of the environment.

    A server closes a connection that is idle for `bounds.KEEP_S`. A test may take as long between two requests, and
    the second one would be reset if it were on its way at that moment.
    """
    session = requests.Session()
    session.trust_env = False
    session.headers["Connection"] = "close"
    return session


def skip(server: Server, seconds: float) -> None:
    """Set the clock of a server's event loop forward, and return when the timers that came due have run.

    A test of a time limit thus needs no shorter limit, which a client on a busy machine could exceed.
    """
    loop = server.loop

    async def forward() -> None:
        ahead_s = loop.time() - time.monotonic() + seconds
        loop.time = lambda: time.monotonic() + ahead_s  # type: ignore[method-assign]
        for _ in range(3):  # the next turn of the loop finds the timers
            await asyncio.sleep(0)

    asyncio.run_coroutine_threadsafe(forward(), loop).result(60)


class Rig:
    def __init__(
        self,
        kind: type[Daemon] = Daemon,
        *,
        store: RecordingStore | None = None,
        now: float = 1000.0,
        **settings: Any,
    ) -> None:
        self.clock, self.driver, self.store = FakeClock(now), FakeDriver(), store or RecordingStore()
        self.daemon = kind(self.store, self.store.load(), self.driver, self.clock, Settings.of("e", "m"))
        self.app = create_app(self.daemon, ApiSettings("http://w", "0.1.0", **settings))
        self.server: Server = serve(self.app, "127.0.0.1", 0)
        self.url = self.server.url
        self.session = unkept()
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        self.daemon.put(ev.Registered("fw", "http://master"))

    def call(self, verb: str, path: str, **more: Any) -> requests.Response:
        return self.session.request(verb, self.url + path, timeout=60, **more)

    def submit(self, **fields: Any) -> dict[str, Any]:
        response = self.call("POST", "/v1/jobs", json={"command": "true", **fields})
        assert response.status_code == 201, response.text
        return dict(response.json())

    def node(self, agent: str = "a1", gpus: tuple[Gpu, ...] = (gpu("g0"),), isolation: str = "") -> None:
        self.daemon.put(ev.OffersArrived((offer(f"{agent}-1", agent, gpus=len(gpus)),)))
        self.report(*gpus, agent=agent, isolation=isolation)
        self.daemon.put(ev.OffersArrived((offer(f"{agent}-2", agent, gpus=len(gpus)),)))

    def report(self, *gpus: Gpu, agent: str = "a1", isolation: str = "") -> None:
        self.tell(Inventory(gpus, "simulated", "535", "12.2", isolation), agent)

    def tell(self, inventory: Inventory, agent: str = "a1") -> None:
        monitor = self.daemon.read(lambda view: view.nodes[AgentId(agent)].monitor).result(60)
        assert monitor is not None
        self.status(monitor, "TASK_RUNNING", agent, report.encode(inventory))

    def status(self, task: str, state: str, agent: str = "a1", data: bytes = b"") -> None:
        self.daemon.put(ev.StatusArrived(Status(TaskId(task), state, AgentId(agent), data=data, uuid="u")))

    def close(self) -> None:
        self.session.close()
        self.server.stop()
        self.clock.set_between_turns(None)
        self.daemon.stop()


def code_of(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def by_name(scope: Scope) -> Caller:
    """Who the header X-Name says; nothing is proved."""
    name = dict(scope["headers"]).get(b"x-name", b"").decode()
    return Caller(name, proof=Proof.TOKEN) if name else NOBODY


def knowing(document: AccessDocument) -> type[Daemon]:
    """Schedulers whose document of who may do what is this one, whatever is applied."""

    class Knowing(Daemon):
        @property
        def access(self) -> AccessDocument:
            return document

    return Knowing
