"""A scheduler whose callers say who they are in a header, and a document of who may do what."""

from itertools import count
from typing import Any

import requests

from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.access.document import AccessDocument, Binding, Limits, Role, Shared
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.permits import Control, Permits
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.mesos import report
from tests.conftest import wait_until
from tests.contract.rig import by_name, knowing, unkept
from tests.doubles.builders import gpu, offer
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

DOCUMENT = AccessDocument(
    version=1,
    roles=(
        Role("runner", ("job:run", "job:*:own"), Limits(("www",), ("nginx:*",), ("/data",), 5, True)),
        Role("seer", ("job:see",)),
    ),
    bindings=(
        Binding(("boss",), (), ("admin",)),
        Binding(("ann", "bob"), (), ("user",), ("research",), ("/research/*",)),
        Binding(("carl",), (), ("user",), ("other",), ("/other/*",)),
        Binding(("rita",), (), ("runner",)),
        Binding(("vera",), (), ("viewer",)),
        Binding(("otto",), (), ("operator",)),
        Binding(("x@y",), (), ("user",)),
    ),
    unix_users={"carl": "cc"},
    shares={"research": (Shared.JOBS,)},
)
JOB: dict[str, Any] = {
    "command": "echo hunter2", "env": {"TOKEN": "hunter2"}, "labels": {"secret": "hunter2"}, "queue": "research",
}  # fmt: skip


class Rig:
    """A scheduler with its interface; `call` is made by somebody with a name."""

    def __init__(self) -> None:
        store = RecordingStore()
        self.clock = FakeClock()
        self.driver = FakeDriver()
        self.daemon = knowing(DOCUMENT)(store, store.load(), self.driver, self.clock, Settings.of("e", "m"))
        permits = Permits(control_access={"lb": (Control.API,)})
        self.server = serve(
            create_app(self.daemon, ApiSettings("http://w", "1", identify=by_name, permits=permits)),
            "127.0.0.1",
            0,
        )
        self.session = unkept()
        self.daemon.start()
        self.clock.set_between_turns(self.daemon.read)
        self.daemon.put(ev.Registered("fw", "http://master"))
        self._offers = count()

    def call(self, name: str, verb: str, path: str, **more: Any) -> requests.Response:
        self.clock.time += 1.0  # no two changes are of one moment, and deployments go on
        headers = {"X-Name": name} if name else {}
        return self.session.request(verb, self.server.url + path, headers=headers, timeout=60, **more)

    def submit(self, who: str, **fields: Any) -> requests.Response:
        return self.call(who, "POST", "/v1/jobs", json={**JOB, **fields})

    def offer(self, *, gpus: int = 1) -> None:
        """Room on the only node."""
        self.daemon.put(ev.OffersArrived((offer(f"a1-{next(self._offers)}", "a1", gpus=gpus, cpus=16),)))

    def node(self) -> None:
        """A node with a GPU, of which its monitor has told."""
        self.offer()
        monitor = self.daemon.read(lambda view: view.nodes[AgentId("a1")].monitor).result(60)
        inventory = Inventory((gpu("g0"),), "simulated", "535", "12.2")
        self.status(str(monitor), "TASK_RUNNING", data=report.encode(inventory))

    def status(self, task: str, state: str, **more: Any) -> None:
        """What Mesos says of a task."""
        self.daemon.put(ev.StatusArrived(Status(TaskId(task), state, AgentId("a1"), uuid="u", **more)))

    def launched(self, who: str, path: str) -> str:
        """The id of the only task of a list of tasks, once it was launched."""

        def found() -> list[Any]:
            self.offer()
            return list(self.call(who, "GET", path).json()["tasks"])

        return str(wait_until(f"a task at {path}", found)[0]["id"])

    def close(self) -> None:
        self.session.close()
        self.server.stop()
        self.clock.set_between_turns(None)
        self.daemon.stop()
