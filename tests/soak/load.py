"""What users do: they submit work of every kind, and may change their minds."""

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.cli.client import Client, Refused, Unreachable
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.model.ids import GpuId
from tests.soak.acts import Act
from tests.soak.evidence import ENDLESS_S
from tests.soak.rig import GIVE_UP_S, GPUS, Rig, is_away
from tests.soak.work import SLOTS_OF_CARD

_THREADS: Final = 6
_BY: Final = "soak"
_MAX_APPS: Final = 2


@dataclass(slots=True)
class Item:
    """A piece of work that somebody asked for.

    Attributes:
        number: Its own, which its tasks write.
        kind: Of the act that asked for it.
        request: What was submitted.
        asked_at: In seconds since the epoch.
        job: The scheduler's id of it; "": not known yet.
        state: In which it ended; "": it has not, as far as is known.
        unwanted: Whether its end was asked for.
        why: What the scheduler says of its end, or why it was refused.
    """

    number: int
    kind: str
    request: dict[str, Any]
    asked_at: float
    job: str = ""
    state: str = ""
    unwanted: bool = False
    why: str = ""

    @property
    def members(self) -> int:
        """How many tasks it has."""
        return int(self.request.get("tasks", 1))

    @property
    def preemptible(self) -> bool:
        """Whether others may take its place."""
        return bool(self.request.get("preemptible"))


@dataclass(slots=True)
class App:
    """An app that is kept running, and how many instances it is to have; `known`: to the scheduler."""

    number: int
    instances: int
    known: bool = False


@dataclass(slots=True)
class Excuse:
    """Why work may be done again: something after which nobody could tell that it had been done, or its place was taken
    from it.

    Attributes:
        begin, end: When, in seconds since the epoch; no end: it lasts.
        tasks: Whose executors were killed.
        cards: All that ran on these was ended; empty: nothing was.
        drained: A host on which all was ended, also what has no card; "": none.
        wiped: A host that forgot what it had not told yet, perhaps since it was cut off before; "": none did.
    """

    begin: float
    end: float = math.inf
    tasks: frozenset[str] = frozenset()
    cards: frozenset[str] = frozenset()
    drained: str = ""
    wiped: str = ""


class Load:
    """The users. What nobody answers is asked again; nothing is asked twice without a look whether it was done."""

    def __init__(self, rig: Rig, first: int = 1) -> None:
        """Nothing is asked yet. `first`: the number of the first piece of work."""
        self._rig, self._next = rig, first
        self.items: list[Item] = []
        self.apps: dict[int, App] = {}
        self.excuses: list[Excuse] = []
        self.troubles: list[str] = []
        self.taken = (
            0  # pieces of work that were refused, for nobody could keep them, and were there all the same
        )
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="user")
        self._under_way: list[Future[None]] = []
        self._latest: dict[str, Future[None]] = {}

    def close(self) -> None:
        """Wait for nobody."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def next_number(self) -> int:
        """The number of the next piece of work."""
        return self._next

    def do(self, act: Act) -> Callable[[], None] | None:
        """Begin what an act says; what undoes it, if it is to be undone."""
        chance = random.Random(act.pick)
        does: dict[str, Callable[[random.Random], Callable[[], None] | None]] = {
            "job": self._job, "burst": self._burst, "gang": self._gang, "share": self._share,
            "urgent": self._urgent, "endless": self._endless, "kill": self._kill, "app": self._app,
            "scale": self._scale, "destroy": self._destroy, "drain": self._drain, "sick": self._sick,
        }  # fmt: skip
        return does[act.kind](chance)

    def probe(self, agent: int | None) -> Item:
        """A small job, on that node if one is given, before all others."""
        pinned = [] if agent is None else [["hostname", "CLUSTER", self._rig.hostname(agent)]]
        return self._submit("probe", 0.0, gpus=0, priority=500, constraints=pinned)

    def everything(self) -> Item:
        """A gang that needs all cards at once."""
        agents = len(self._rig.cluster.agents)
        return self._submit("everything", 0.5, gpus=GPUS, tasks=agents, priority=500, preemptible=True)

    def plant(self, mode: str, **more: Any) -> Item:
        """A piece of work that does what it must not, or to which somebody will."""
        return self._submit("planted", 0.5, mode=mode, gpus=1, **more)

    def _submit(
        self, kind: str, seconds: float, *, slots: int = SLOTS_OF_CARD, mode: str = "plain", **more: Any
    ) -> Item:
        number, self._next = self._next, self._next + 1
        command = self._rig.evidence.command(number, slots, seconds, mode)
        base = {"name": f"w{number}", "command": command, "cpus": 0.1, "mem_mib": 32}
        item = Item(number, kind, {**base, **more}, time.time())
        self.items.append(item)
        self._later(lambda: self._submitted(item))
        return item

    def _submitted(self, item: Item) -> None:
        """Submit it until it is known; an answer that was lost may have been a yes."""
        give_up_at = time.monotonic() + GIVE_UP_S
        for turn in itertools.count():
            try:
                item.job = self._rig.ask_once(lambda client: client.submit(item.request), turn)["id"]
                return
            except (Unreachable, Refused) as error:
                if not is_away(error) or time.monotonic() > give_up_at:
                    raise
                was_refused = isinstance(error, Refused)
            time.sleep(0.5)  # who led before knows soon that it does no more
            jobs = self._rig.ask(lambda client: client.jobs(), leader=True)
            known = [job["id"] for job in jobs if job["name"] == item.request["name"]]
            if known:
                item.job = known[0]
                self.taken += was_refused
                return

    def _ask(self, do: Callable[[Client], object], of: str = "") -> None:
        self._later(lambda: self._rig.ask(do), of)

    def _later(self, do: Callable[[], object], of: str = "") -> None:
        """Do it meanwhile. What is asked of one and the same thing is asked in turn, for each waits for its answer."""
        before = self._latest.get(of) if of else None

        def done() -> None:
            if before is not None:
                before.result()  # was begun earlier, so that it has a thread
            try:
                do()
            except Refused as error:
                if error.http_status not in (404, 409):  # gone meanwhile, or locked by a deployment
                    self.troubles.append(str(error))
            except Exception as error:  # noqa: BLE001 - it is a finding
                self.troubles.append(f"{type(error).__name__}: {error}")

        future = self._pool.submit(done)
        self._under_way.append(future)
        if of:
            self._latest[of] = future

    def _job(self, chance: random.Random) -> None:
        mode = "straggler" if chance.random() < 0.15 else "plain"
        queued: dict[str, Any] = chance.choice(
            [{}, {"preemptible": True}, {"queue": "dev", "preemptible": True}, {"queue": "production"}]
        )
        gpus = 1 if queued.get("queue") == "production" else chance.choice((1, 1, 1, 2))
        self._submit("job", round(chance.uniform(0.5, 5), 1), mode=mode, gpus=gpus, **queued)

    def _burst(self, chance: random.Random) -> None:
        for _ in range(4):
            self._submit("burst", round(chance.uniform(0.5, 3), 1), gpus=1)

    def _gang(self, chance: random.Random) -> None:
        self._submit("gang", round(chance.uniform(0.5, 2.5), 1), gpus=1, tasks=chance.choice((2, 3)))

    def _share(self, chance: random.Random) -> None:
        slots = chance.choice((1, 2))
        self._submit("share", round(chance.uniform(1, 6), 1), slots=slots, gpus=slots / SLOTS_OF_CARD)

    def _urgent(self, chance: random.Random) -> None:
        self._submit("urgent", round(chance.uniform(0.3, 1.5), 1), gpus=2, priority=100)

    def _endless(self, chance: random.Random) -> None:
        self._submit("endless", ENDLESS_S, gpus=1, preemptible=chance.random() < 0.5)

    def _kill(self, chance: random.Random) -> None:
        wanted = [each for each in self.items if each.job and not each.state and each.kind != "probe"]
        endless = [each for each in wanted if each.kind == "endless"]
        if wanted:
            self.end(chance.choice(endless or wanted))

    def end(self, item: Item) -> None:
        """Ask for the end of it."""
        item.unwanted = True
        self._ask(lambda client: client.kill(item.job))

    def _app(self, chance: random.Random) -> None:
        if len(self.apps) >= _MAX_APPS:
            return
        number, self._next = self._next, self._next + 1
        app = self.apps[number] = App(number, min(chance.choice((1, 2)), self._most(number)))
        slots = chance.choice((1, SLOTS_OF_CARD))
        given = {"gpus": 1} if slots == SLOTS_OF_CARD else {"gpus": slots / SLOTS_OF_CARD}
        command = self._rig.evidence.command(number, slots, ENDLESS_S, "app")
        body = {
            "id": f"/soak/a{number}",
            "cmd": command,
            "cpus": 0.1,
            "mem": 32,
            "instances": app.instances,
            **given,
        }
        self._later(lambda: self._deployed(number, body), f"/soak/a{number}")

    def _deployed(self, number: int, body: dict[str, Any]) -> None:
        """Make an app; it is there already (409) if the answer was lost."""
        try:
            self._rig.ask(lambda client: client.call("POST", "/v2/apps", dict[str, Any], body=body))
        except Refused as error:
            if error.http_status != 409:
                self.apps.pop(number, None)
                raise
        self.apps[number].known = True

    def _known_app(self, chance: random.Random) -> App | None:
        known = sorted(number for number, app in self.apps.items() if app.known)
        return self.apps[chance.choice(known)] if known else None

    def _scale(self, chance: random.Random) -> None:
        app = self._known_app(chance)
        if app:
            self.scale(app, min(chance.choice((1, 2, 3)), self._most(app.number)))

    def _most(self, number: int) -> int:
        """How many instances that app may have. Its queue is guaranteed all cards but one (rig.py), and what is not
        preemptible borrows none; one is left for the other app."""
        others = sum(app.instances for other, app in self.apps.items() if other != number)
        return sum(map(len, self._rig.cards)) - 1 - max(others, 1)

    def scale(self, app: App, instances: int) -> None:
        """Ask for so many, whatever is under way."""
        app.instances = instances
        path, body = f"/v2/apps//soak/a{app.number}?force=true", {"instances": instances}
        self._ask(lambda client: client.call("PUT", path, dict[str, Any], body=body), f"/soak/a{app.number}")

    def _destroy(self, chance: random.Random) -> None:
        app = self._known_app(chance)
        if app:
            self.destroy(app)

    def destroy(self, app: App) -> None:
        """Ask for its end, whatever is under way."""
        self.apps.pop(app.number, None)
        path = f"/v2/apps//soak/a{app.number}?force=true"
        self._ask(lambda client: client.call("DELETE", path, dict[str, Any]), f"/soak/a{app.number}")

    def _drain(self, chance: random.Random) -> Callable[[], None]:
        number = chance.randrange(len(self._rig.cluster.agents))
        node = self._rig.hostname(number)
        excuse = self._excused(self._rig.cards[number])
        excuse.drained = node
        deadline_s = chance.choice((0.0, 2.0, None))
        self._ask(
            lambda client: OperatorCalls(client).drain_node(node, "soak", by=_BY, deadline_s=deadline_s), node
        )

        def undrain() -> None:
            self._rig.ask(lambda client: OperatorCalls(client).undrain_node(node, by=_BY))
            excuse.end = time.time()

        return lambda: self._later(undrain, node)

    def _excused(self, cards: Iterable[str]) -> Excuse:
        """What runs on these cards may be ended from now on."""
        excuse = Excuse(time.time(), cards=frozenset(cards))
        self.excuses.append(excuse)
        return excuse

    def _sick(self, chance: random.Random) -> Callable[[], None]:
        number = chance.randrange(len(self._rig.cards))
        card, path = GpuId(chance.choice(self._rig.cards[number])), self._rig.stack.inventory(number + 1)
        excuse = self._excused([card])
        change_gpu(path, card, health="sick", reason="soak")

        def heal() -> None:
            change_gpu(path, card, health=None, reason=None)
            excuse.end = time.time()

        return heal

    def settle(self, timeout_s: float) -> None:
        """Wait until all that was asked for has an answer; what has none then is a trouble."""
        deadline = time.monotonic() + timeout_s
        for each in self._under_way:
            with contextlib.suppress(TimeoutError):
                each.result(max(0.0, deadline - time.monotonic()))
        late = sum(not each.done() for each in self._under_way)
        if late:
            self.troubles.append(f"{late} calls have no answer after {timeout_s:g} s")
        self._under_way = []

    def look(self) -> None:
        """Note which items have ended."""
        ends = {job["id"]: job for job in self._rig.ask(lambda client: client.jobs(), leader=True)}
        for item in self.items:
            job = ends.get(item.job)
            if job and not item.state and job["state"] in ("finished", "failed", "killed", "lost"):
                item.state, item.why = job["state"], job["message"]
