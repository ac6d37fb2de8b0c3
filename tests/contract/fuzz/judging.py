"""A scheduler that is sent such requests, in this process, and what must hold of each answer."""

import asyncio
import gc
import json
import logging
import random
import re
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import unquote

from starlette.routing import Route
from starlette.types import Message

from mesos_gpu.access.rate import Limits
from mesos_gpu.adapters.uploads.store import UploadLimits, UploadStore
from mesos_gpu.api.app import create_app
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import unknown_tasks
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.access.document import AccessDocument, Binding, Shared
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.wire.mesos import report
from tests.contract.fuzz.making import ARCHIVES, Asked, Maker
from tests.contract.fuzz.proving import proved, token_of
from tests.contract.rig import knowing
from tests.doubles.builders import gpu, offer
from tests.doubles.fake_driver import FakeClock, FakeDriver
from tests.doubles.memory_store import MemoryStore

POWERLESS: Final = ("", "vera")  # may change nothing
FEW: Final = ("carl", "dora")  # may change what is in one queue, and below one group
THEIRS: Final = "/other/"
NAMES: Final = (*POWERLESS, *FEW, "ann", "otto", "boss")
ANSWER_S: Final = 60.0
#: Beside 1xx to 4xx: not implemented, not reachable (an agent), no room.
MAY_BE: Final = frozenset({501, 503, 504, 507})
PAGES: Final = ("/login", "/logout")  # for browsers
DOCUMENT: Final = AccessDocument(
    version=1,
    bindings=(
        Binding(("boss",), (), ("admin",)),
        Binding(("ann",), (), ("user",), ("research",), ("/kept", "/shop/*")),
        Binding(FEW, (), ("user",), ("other",), (f"{THEIRS}*",)),
        Binding(("vera",), (), ("viewer",)),
        Binding(("otto",), (), ("operator",)),
    ),
    unix_users=dict.fromkeys(FEW, "nobody"),
    shares={"research": (Shared.JOBS,)},
)


class Judge:
    """Asks, and judges the answers.

    Attributes:
        statuses: How often each status was answered.
    """

    def __init__(self, seed: int) -> None:
        self.chance, self.statuses = random.Random(seed), Counter[int]()
        self._begin()

    def _begin(self) -> None:
        store = MemoryStore()
        self.daemon = knowing(DOCUMENT)(store, store.load(), FakeDriver(), FakeClock(), Settings.of("e", "m"))
        unlimited = Limits(0, 1, 0, 0)
        self.daemon.start()
        names = {name for binding in DOCUMENT.bindings for name in binding.names}
        self._directory = TemporaryDirectory()
        who, self._proofs = proved(self.daemon, names, Path(self._directory.name))
        self._shown = frozenset(self.daemon.tokens)  # who revokes his own says no more afterwards
        for name in ("ann", "dora"):
            token_of(self.daemon, name)
        self.uploads = UploadStore(Path(self._directory.name) / "uploads", UploadLimits(1 << 12, 1 << 13))
        settings = ApiSettings(
            "http://w", "1", who=who, limits=unlimited, uploads=self.uploads, task_key=lambda: b"k" * 16
        )
        self.app = create_app(self.daemon, settings)
        self.daemon.put(ev.Registered("fw", "http://master"))
        self.daemon.put(ev.OffersArrived((offer("o1", "a1", gpus=2),)))
        monitor = self.daemon.read(lambda view: view.nodes[AgentId("a1")].monitor).result(ANSWER_S)
        assert monitor is not None
        inventory = report.encode(Inventory((gpu("g0"), gpu("g1")), "simulated", "535", "12.2"))
        told = Status(monitor, "TASK_RUNNING", AgentId("a1"), data=inventory, uuid="u1")
        self.daemon.put(ev.StatusArrived(told))

    def close(self) -> None:
        self.daemon.stop()
        self._directory.cleanup()

    def start_over(self) -> None:
        """Forget what those who may have changed: memory is to be bounded by what is there."""
        self.close()
        self._begin()

    def run(self, count: int, names: tuple[str, ...], at_once: int = 8) -> None:
        """Send so many requests, several at once; who may change nothing changes nothing, and who may change little
        nothing of others."""
        asyncio.run(self._run(count, names, at_once))

    async def _run(self, count: int, names: tuple[str, ...], at_once: int) -> None:
        async with self.app.router.lifespan_context(self.app):
            await self._prepare()
            strict = set(names) <= {*POWERLESS, *FEW}
            routes = [each for each in self.app.routes if isinstance(each, Route)]
            maker = Maker(self.chance, routes)
            before = await self.state(names)
            for first in range(0, count, 200):
                maker.ids = await self._there()
                asked = [maker.make(self.chance.choice(names)) for _ in range(min(200, count - first))]
                for i in range(0, len(asked), at_once):
                    await asyncio.gather(*map(self.ask, asked[i : i + at_once]))
                if strict:
                    assert await self.state(names) == before, "\n".join(map(str, asked))

    async def _prepare(self) -> None:
        job = {"command": "sleep 1", "env": {"T": "hunter2"}, "queue": "research", "user": "ann"}
        for verb, path, body in (
            ("POST", "/v1/jobs", job),
            ("POST", "/v1/jobs", {**job, "gpus": 2}),
            ("PUT", "/v2/apps/kept", {"cmd": "sleep 1", "instances": 0}),
            ("PUT", "/v1/services/web", {"apps": {"/kept": 1}}),
            ("POST", "/v1/gpus/g1/drain", {"reason": "fan"}),
        ):
            headers = ((b"host", b"localhost"), (b"x-name", b"boss"), (b"content-type", b"application/json"))
            status = await self.ask(Asked(verb, path, headers, (json.dumps(body).encode(),)))
            assert status in (200, 201), (path, status)
        digest, data = next(iter(ARCHIVES.items()))
        for name in ("ann", "boss"):
            self.uploads.put(name, digest, 0, len(data), data)

    async def _there(self) -> dict[str, list[str]]:
        jobs = await asyncio.wrap_future(self.daemon.read(lambda view: [*view.jobs][-20:]))
        return {
            "/v1/jobs": [*jobs, *(job[:8] for job in jobs[:2])],
            "/v1/why": [*jobs],
            "/v1/plan": [*jobs],
            "/v1/gpus": ["g0", "g1", "g", "a1.example:0"],
            "/v1/nodes": ["a1.example", "a1"],
            "/v1/services": ["web"],
            "/v1/uploads": [*ARCHIVES],
            "/v1/tokens": [id for id in self.daemon.tokens if id not in self._shown],
            "/v1/access": ["0", "1"],
            "/static": ["app.js"],
        }

    async def state(self, but: Sequence[str]) -> object:
        """What requests may change, to be compared; without what those of `FEW` may who are in `but`."""
        few = set(but) & set(FEW)

        def seen(view: View) -> object:
            jobs = {job.id: (job.owner, job.version) for job in view.jobs.values() if job.owner not in few}
            return (
                jobs,
                {task.id: task.state for task in view.tasks.values() if task.job_id in (None, *jobs)},
                {
                    app.id: app
                    for app in view.catalog.root.all_apps()
                    if not (few and app.id.startswith(THEIRS))
                },
                (view.catalog.root, frozenset(view.deployments))
                if not few
                else view.catalog.root.dependencies,
                {
                    name: split
                    for name, split in view.splits.items()
                    if not (few and _are_theirs(split.weights))
                },
                sorted(map(repr, view.drains.values())),
                [task.id for task in unknown_tasks(view)],
            )

        said = await asyncio.wrap_future(self.daemon.read(seen))
        archives = {
            (name, each.digest, each.received)
            for name in set(NAMES) - few
            for each in self.uploads.of_owner(name)
        }
        of_others = {id: token for id, token in self.daemon.tokens.items() if token.name not in few}
        return said, Daemon.access.fget(self.daemon), of_others, archives  # type: ignore[attr-defined]

    # --- one

    async def ask(self, asked: Asked) -> int:
        """Send a request, and look at what is answered; its status."""
        messages: list[Message] = []
        coming = [{"type": "http.request", "body": each, "more_body": True} for each in asked.chunks]
        coming += [{"type": "http.request", "body": b"", "more_body": False}] if asked.ends else []

        async def receive() -> Message:
            if coming:
                return coming.pop(0)
            if asked.ends:
                await asyncio.sleep(0.02)  # who listens goes again
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            messages.append(message)

        try:
            async with asyncio.timeout(ANSWER_S):
                await self.app(_scope(asked, self._proofs), receive, send)
            return self._judge(asked, messages)
        except BaseException as error:
            error.add_note(str(asked))
            raise

    def _judge(self, asked: Asked, messages: list[Message]) -> int:
        starts = [each for each in messages if each["type"] == "http.response.start"]
        assert len(starts) == 1
        status, headers = int(starts[0]["status"]), starts[0]["headers"]
        self.statuses[status] += 1
        assert status < 500 or status in MAY_BE, messages
        for name, value in headers:
            assert not re.search(rb"[\x00-\x1f\x7f]", name + value), headers
        body = b"".join(each.get("body", b"") for each in messages[1:])
        if asked.target.startswith(PAGES) and any(value.startswith(b"text/html") for _, value in headers):
            assert b"<script>alert" not in body, body  # of what was sent
        elif status >= 400 and asked.verb != "HEAD":
            assert (b"content-type", b"application/json") in headers, headers
            said = json.loads(body)
            assert said.get("message") or said["error"]["message"], said
        return status


def _are_theirs(ids: Iterable[str]) -> bool:
    return all(id.startswith(THEIRS) for id in ids)


def _scope(asked: Asked, proofs: Mapping[bytes, bytes]) -> dict[str, Any]:
    """A scope as the server makes it; with the proof of who asks in place of the name."""
    path, _, query = asked.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked.verb,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (b"authorization", proofs[value]) if key == b"x-name" else (key, value)
            for key, value in asked.headers
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }


@contextmanager
def no_traceback() -> Iterator[None]:
    """Nothing is logged as a defect."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append  # type: ignore[method-assign,assignment]
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
    assert not records, [(each.getMessage(), each.exc_info) for each in records]


def rss_mib() -> float:
    """What this process has in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
