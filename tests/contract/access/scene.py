"""What the table of rights is tried on: a scheduler with a node, and things of one owner, made anew for each try."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import requests
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings, OnFull
from mesos_gpu.adapters.hooks.receivers import receivers
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.apps import launch_delays
from mesos_gpu.engine.reading.jobs import unmade_tasks
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.access.caller import NOBODY, Caller, Proof
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.mesos import report
from tests.conftest import wait_until
from tests.contract.access.rig import AccessRig
from tests.doubles.builders import gpu, offer

#: Who the table is about, by what they are called in it; None: nobody.
T = TypeVar("T")
CALLERS: Final[Mapping[str, str | None]] = {
    "nobody": None,
    "viewer": "vera",
    "user of another queue": "carl",
    "owner": "ann",
    "operator": "otto",
    "admin": "boss",
}
BINDINGS: Final = (
    {"names": ["boss"], "roles": ["admin"]},
    {"names": ["otto"], "roles": ["operator"]},
    {"names": ["vera"], "roles": ["viewer"]},
    {"names": ["ann"], "roles": ["user"], "queues": ["research"], "apps": ["/research/*"]},
    {"names": ["carl"], "roles": ["user"], "queues": ["other"], "apps": ["/other/*"]},
)
APP: Final[Mapping[str, Any]] = {
    "cmd": "sleep 9",
    "cpus": 0.1,
    "mem": 32,
    "instances": 0,
    "portDefinitions": [],
}
AGENT: Final = "a1"
HOOKED: Final = "http://127.0.0.1:9/hook"  # an address that webhooks may have, and where nobody answers


class Noting:
    """ASGI middleware that notes the status of each answer."""

    def __init__(self, app: ASGIApp, statuses: list[int]) -> None:
        """Around the application."""
        self._app, self._statuses = app, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and note."""

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._statuses.append(message["status"])
            await send(message)

        await self._app(scope, receive, note)


class Scene(AccessRig):
    """All that is in it is ann's, in her queue and below her path. `caller` asks where a request has no header."""

    def __init__(self, directory: Path) -> None:
        """With a node of two GPUs, and an audit log in the directory."""
        self.directory, self.caller, self.seen = directory, NOBODY, list[int]()
        self._count = count(1)
        self.trail = AuditLog(AuditSettings(directory / "audit", 8 << 20, 2, OnFull.REFUSE))
        self.hooks = HookStore(directory / "hooks")
        super().__init__(
            audit=self.trail,
            uploads=UploadStore(directory / "uploads"),
            hooks=self.hooks,
            sender=Sender(receivers(["127.0.0.1:9"])),
        )
        self.bind(*BINDINGS)
        self._node()

    def prepare(self, app: Starlette) -> None:
        """Let the status of each answer be noted."""
        app.add_middleware(Noting, statuses=self.seen)

    async def identify(self, scope: Scope) -> Caller:
        """Take the header's word, else say who it is the turn of."""
        known = await super().identify(scope)
        return self.caller if known is NOBODY else known

    @contextmanager
    def turn_of(self, name: str | None) -> Iterator[None]:
        """Let somebody call without a header."""
        self.caller = Caller(name, proof=Proof.TOKEN) if name else NOBODY
        try:
            yield
        finally:
            self.caller = NOBODY

    def call(
        self, who: str | Mapping[str, Any] | None, verb: str, path: str, **more: Any
    ) -> requests.Response:
        """Call a second after the call before: no two changes are of one moment, and deployments go on."""
        self.clock.time += 1.0
        return super().call(who, verb, path, **more)

    def new(self, start: str) -> str:
        """A name that nothing has."""
        return f"{start}{next(self._count)}"

    def made(self, who: str, verb: str, path: str, **more: Any) -> requests.Response:
        """An answer to what must be possible."""
        response = self.call(who, verb, path, **more)
        assert response.ok, (verb, path, response.text)
        return response

    def _node(self) -> None:
        cards = (gpu("g0"), gpu("g1"), gpu("g2"))  # resets of the first two, if asked for, never end
        self.daemon.put(ev.OffersArrived((offer(f"{AGENT}-1", AGENT, gpus=2),)))
        monitor = self.daemon.read(lambda view: view.nodes[AgentId(AGENT)].monitor).result(60)
        assert monitor is not None
        inventory = report.encode(Inventory(cards, "simulated", "535", "12.2", ""))
        self.status(monitor, "TASK_RUNNING", inventory)

    def status(self, task: str, state: str, data: bytes = b"") -> None:
        """What Mesos says of a task."""
        self.daemon.put(ev.StatusArrived(Status(TaskId(task), state, AgentId(AGENT), data=data, uuid="u")))

    def job(self, **more: Any) -> str:
        """A job that waits, for it asks for more than there is."""
        body = {"command": "true", "queue": "research", "cpus": 1000, **more}
        return str(self.made("ann", "POST", "/v1/jobs", json=body).json()["id"])

    def volume(self) -> str:
        """A named volume, which a job that waits uses; by its name."""
        name = self.new("data")
        self.job(volumes=[{"name": name, "path": "data", "size": "1MiB"}])
        return name

    def settle(self) -> None:
        """Wait until all deployments are over."""
        wait_until("deployments are over", lambda: not self.call("boss", "GET", "/v2/deployments").json())

    def app(self, **more: Any) -> str:
        """An app, by its path; without instances it is there at once."""
        path = f"/research/{self.new('web')}"
        self.made("ann", "POST", "/v2/apps", json={"id": path, **APP, **more})
        if not more.get("instances"):
            self.settle()
        return path

    def task(self, **more: Any) -> tuple[str, str]:
        """An app whose task was launched, and that task as Marathon's interface names it."""
        path = self.app(instances=1, **more)

        def tasks() -> list[dict[str, Any]]:
            self.daemon.put(
                ev.OffersArrived((offer(self.new("o"), AGENT),))
            )  # what nobody needs is given back
            return list(self.call("boss", "GET", f"/v2/apps{path}/tasks").json()["tasks"])

        (task,) = wait_until("its task is launched", tasks)
        self.status(task["id"], "TASK_RUNNING")
        self.settle()
        return path, str(task["id"])

    def delayed(self) -> str:
        """An app whose next launch waits, for its task has failed."""
        path, task = self.task(backoffSeconds=300)
        self.status(task, "TASK_FAILED")
        wait_until("its next launch waits", lambda: path in self.daemon.read(_delays).result(60))
        return path

    def deployment(self) -> str:
        """A deployment that goes on."""
        path = self.app(instances=1, cpus=1000)
        under_way = self.made("boss", "GET", "/v2/deployments").json()
        return next(str(each["id"]) for each in under_way if path in each["affectedApps"])

    def clear(self) -> None:
        """Take away what would be in the way of the next try."""
        left = self.daemon.read(_left).result(
            60
        )  # nothing of most kinds: to ask for each would take most of the time
        for deployment in self.call("boss", "GET", "/v2/deployments").json() if "deployments" in left else ():
            self.call("boss", "DELETE", f"/v2/deployments/{deployment['id']}?force=true")
        if "apps" in left:
            for app in self.call("boss", "GET", "/v2/apps").json()["apps"]:
                self.call("boss", "DELETE", f"/v2/apps{app['id']}?force=true")
        for task in self.daemon.read(_tasks).result(60):
            self.status(task, "TASK_KILLED")
        if "jobs" in left:
            for job in self.call("boss", "GET", "/v1/jobs?state=active&fold_arrays=true").json()["jobs"]:
                self.call("boss", "DELETE", f"/v1/jobs/{job['id']}")
        if "bookings" in left:
            self.unbooked()
        for path in ("gpus/g0", "nodes/a1") if "drains" in left else ():
            self.undrained(path)
        for hook in self.hooks.latest.hooks:
            self.hooks.remove(hook.name, "boss")
        for token in self.daemon.tokens:
            self.call("boss", "DELETE", f"/v1/tokens/{token}")

    def service(self) -> str:
        """A service of one app."""
        name = self.new("svc")
        self.made("ann", "PUT", f"/v1/services/{name}", json={"apps": {self.app(): 1}})
        return name

    def webhook(self) -> str:
        """A webhook, by its name."""
        name = self.new("hook")
        self.made("boss", "PUT", f"/v1/webhooks/{name}", json={"url": HOOKED})
        return name

    def booking(self) -> str:
        """A booking for the queue research, by its id, when nothing else is booked."""
        body = {
            "name": self.new("book"),
            "queue": "research",
            "gpus": 1,
            "from": "tomorrow 12:00",
            "for_s": 60,
        }
        return str(self.made("boss", "POST", "/v1/bookings", json=body).json()["id"])

    def unbooked(self) -> None:
        """Nothing is booked any more."""
        for each in self.made("boss", "GET", "/v1/bookings").json()["bookings"]:
            self.made("boss", "DELETE", f"/v1/bookings/{each['id']}")

    def token(self) -> str:
        """A token, by its id."""
        return str(self.made("ann", "POST", "/v1/tokens", json={}).json()["token"]["id"])

    def queues(self) -> int:
        """A tree of queues that leaves room for everything; its version."""
        known = self.made("boss", "GET", "/v1/queues").json()
        body = {"version": known["version"], "queues": {"research": {}, "other": {}, "default": {}}}
        return int(self.made("boss", "PUT", "/v1/queues", json=body).json()["version"])

    def drained(self, path: str) -> str:
        """A GPU or a node that is taken out."""
        self.made("boss", "POST", f"/v1/{path}/drain", json={"reason": "fan"})
        return path

    def as_each(self, tried: Callable[[str | None], T], callers: Iterable[str] = CALLERS) -> dict[str, T]:
        """Return what a try gives each kind of caller, by the kind; what was changed is undone after each."""
        got = {}
        try:
            for who in callers:
                got[who] = tried(CALLERS[who])
                self.clear()
        finally:  # tests come in any order: in a queue that is held or gone, nothing of theirs would start
            if self.made("boss", "GET", "/v1/queues").json()["version"]:
                self.queues()
        return got

    def undrained(self, path: str) -> str:
        """A GPU or a node that is in."""
        self.call("boss", "DELETE", f"/v1/{path}/drain")
        return path

    def file(self, text: str) -> str:
        """A file, by its path."""
        path = self.directory / self.new("file")
        path.write_text(text)
        return str(path)

    def close(self) -> None:
        """End all of it."""
        super().close()
        self.trail.close()
        self.hooks.close()


def _tasks(view: View) -> list[str]:
    return [task.id for task in view.tasks.values() if task.job_id and not task.ended]


def _left(view: View) -> set[str]:
    """What there is of kinds that tries make."""
    return {
        kind
        for kind, there in (
            ("deployments", view.deployments),
            ("apps", any(view.catalog.root.all_apps())),
            ("jobs", any(not job.state.ended for job in view.jobs.values()) or unmade_tasks(view)),
            ("bookings", view.bookings),
            ("drains", view.drains.values()),
        )
        if there
    }


def _delays(view: View) -> list[str]:
    return list(launch_delays(view))
