"""A cluster with something of everything: what pictures of the page show, and all its parts are judged by."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, Final

from mesos_gpu.api.asking import new_job
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.policy.gpus.use_series import Series, UseHistory
from mesos_gpu.wire.jobs import decode
from tests.conftest import wait_until
from tests.contract.api.test_api_shares import QUARTER, hold
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer

CARDS = 8  # of each node
NODES = ("a1", "a2", "a3")
WEB = {"id": "/shop/web", "cmd": "serve", "instances": 5, "gpus": 4, "cpus": 0.1, "mem": 128}


def cards_of(agent: str) -> tuple[Gpu, ...]:
    """The last of a1 is sick, and the first of a3 can be shared."""
    cards = [replace(gpu(f"GPU-{agent}-{i}"), minor=i, index=i) for i in range(CARDS)]
    if agent == "a1":
        cards[-1] = replace(cards[-1], health=Health.SICK, reason="XID 79: fallen off the bus")
    if agent == "a3":
        cards[0] = replace(cards[0], sharing=Sharing(80000, ((Ability.SHIM, ""),)))
    return tuple(cards)


class Scene(Rig):
    """Three nodes with eight cards each: one card is sick, one node is drained, one card is shared; a job runs, one has
    failed, a gang waits, and an app's deployment is under way."""

    def __init__(self, *, ago_s: float = 0.0, **settings: Any) -> None:
        """Wait until the app's deployment waits for room. `ago_s`: when it begins, seconds before now."""
        super().__init__(now=time.time() - ago_s, **settings)
        self._again: set[str] = set()
        self.driver.on_call = self._offer_again
        for agent in NODES:
            self.node(agent, cards_of(agent))
            self.tell(Inventory(cards_of(agent), "simulated", "550.90", "12.4", volume="550.90"), agent)
        drained = self.call("POST", "/v1/nodes/a2/drain", json={"reason": "new fans", "by": "ann"})
        assert drained.ok, drained.text
        hold(self, "cover.1", card=cards_of("a3")[0], covers=True)
        hold(self, "lab-1.1", QUARTER, card=cards_of("a3")[0])
        self.run_job("train", gpus=2, command="python3 train.py --epochs 90", labels={"team": "vision"})
        failed = self.run_job("broken", gpus=1, command="python3 broken.py")
        self.status(failed["task_id"], "TASK_FAILED", self.agent_of(failed))
        self.settled(failed["id"], "failed")
        self.gang = self.submit(name="ddp", gpus=8, tasks=3, preemptible=True, command="torchrun train.py")[
            "id"
        ]
        assert self.call("POST", "/v2/apps", json=WEB).status_code == 201
        wait_until("its deployment waits for room", self.deployment_waits)

    def _offer_again(self, call: str) -> None:
        """When offers are asked for, those come again that were declined while there was nothing to launch."""
        if call == "revive":
            declined = (id for name, told in list(self.driver.calls) if name == "decline" for id in told[0])
            for id in set(declined) - self._again:
                self._again.add(id)
                self.daemon.put(ev.OffersArrived((offer(f"{id}-again", id.split("-")[0], gpus=CARDS),)))

    def run_job(self, name: str, **fields: Any) -> dict[str, Any]:
        """A job that runs."""
        job = self.submit(name=name, **fields)

        def launched() -> Any:
            return self.call("GET", f"/v1/jobs/{job['id']}").json()["task_id"]

        wait_until(f"{name} is launched", launched)
        job = self.call("GET", f"/v1/jobs/{job['id']}").json()
        self.status(job["task_id"], "TASK_RUNNING", self.agent_of(job))
        self.settled(job["id"], "running")
        return dict(job)

    def settled(self, job_id: str, state: str) -> None:
        """Wait until a job is in a state."""
        wait_until(
            f"{job_id} is {state}",
            lambda: self.call("GET", f"/v1/jobs/{job_id}").json()["state"] == state,
        )

    def deployment_waits(self) -> bool:
        """Whether the app's deployment waits for something, a moment later."""
        self.clock.time += 0.3
        deployments = self.call("GET", "/v2/deployments?embed=waiting").json()
        return any(each["waiting"] for each in deployments)

    @staticmethod
    def agent_of(job: dict[str, Any]) -> str:
        """The agent that a job runs on."""
        return str(job["hostname"]).removesuffix(".example")


QUEUES: Final = {
    "default": {"guarantee_gpus": 4},
    "research": {"guarantee_gpus": 12, "limit_gpus": 20},
    "research/vision": {"guarantee_gpus": 8, "weight": 2},
    "research/language": {"guarantee_gpus": 4},
    "production": {"guarantee_gpus": 4, "band": 1},
}
API: Final = {
    "id": "/shop/api", "cmd": "serve --port $PORT0 --version 1", "instances": 4, "cpus": 0.5, "mem": 256,
    "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0},
}  # fmt: skip
BEGAN_S: Final = 7200.0  # ago
DAY_S: Final = 86400.0
HALF: Final = 2  # of the instances of API


class Whole(Scene):
    """A `Scene` with a tree of queues, jobs of several people, an upgrade that is half done, and what cards were used
    for in the last two hours."""

    def __init__(self, **settings: Any) -> None:
        """Wait until the upgrade is half done."""
        super().__init__(ago_s=BEGAN_S, **settings)
        queues = self.call("PUT", "/v1/queues", json={"version": 0, "queues": QUEUES})
        assert queues.ok, queues.text
        self._offers, self._gone = count(), set[str]()
        assert self.call("POST", "/v2/apps", json=API).status_code == 201
        self._until("all of its instances run", lambda: len(self._running("/shop/api")) == 4)
        self._owned("bob", name="resnet-152", gpus=1, queue="research/vision", priority=5)
        self._owned(
            "eve", name="bert-tune", gpus=2, queue="research/language", command="python3 tune.py --lr 3e-4"
        )
        self._until("they run", lambda: self._state("bert-tune") == "running")
        self._owned("ann", name="diffusion", gpus=4, queue="research/vision", command="python3 sample.py")
        self._owned("eve", name="nightly", gpus=2, tasks=2, queue="production", command="./report.sh")
        self.clock.time = time.time() - 40
        self._report()
        assert self.call(
            "PUT", "/v2/apps/shop/api", json={**API, "cmd": "serve --port $PORT0 --version 2"}
        ).ok
        self._until("the upgrade is half done", self._half_done)
        self.clock.time = time.time()
        self._past()
        self._report()

    def _owned(self, who: str, **fields: Any) -> None:
        """Submit a job of somebody."""
        spec = decode(json.dumps({"command": "python3 train.py", **fields}).encode(), permits=Permits())
        assert isinstance(spec, JobSpec), spec
        self.daemon.request(new_job(spec, who)).result(60)

    def _state(self, name: str) -> str:
        (job,) = self.call("GET", f"/v1/jobs?named={name}").json()["jobs"]
        return str(job["state"])

    def _running(self, app: str) -> list[dict[str, Any]]:
        tasks = self.call("GET", f"/v2/apps{app}/tasks").json()["tasks"]
        return [task for task in tasks if task["state"] == "TASK_RUNNING"]

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        """Do what hosts do, until something holds."""

        def done() -> bool:
            self._play()
            return holds()

        wait_until(what, done)

    def _half_done(self) -> bool:
        """Whether two instances of the new version run, beside two of the old one."""
        tasks = self._running("/shop/api")
        return len(tasks) == 4 and len({task["version"] for task in tasks}) == 2

    def _play(self) -> None:
        """Start what is launched, end two of what is killed, and offer what is left."""
        self.clock.time += 0.3
        tasks = [task for task in self.call("GET", "/v1/tasks").json()["tasks"] if task["job_id"]]
        killed = {what[0] for name, what in list(self.driver.calls) if name == "kill"}
        for task in tasks:
            if task["id"] in killed:
                if len(self._gone | {task["id"]}) > HALF:
                    continue  # or the upgrade went on
                self._gone.add(task["id"])
                self.status(task["id"], "TASK_KILLED", task["agent_id"])
            elif task["state"] != "running":
                self.status(task["id"], "TASK_RUNNING", task["agent_id"])
        for agent in NODES:
            here = [task for task in tasks if task["agent_id"] == agent and task["id"] not in killed]
            left = (
                CARDS - sum(len(task["gpu_ids"]) for task in here if task["share"] is None) - (agent == "a3")
            )
            one = offer(f"{agent}-x{next(self._offers)}", agent, cpus=16, mem=65536, gpus=left)
            self.daemon.put(ev.OffersArrived((one,)))

    def _past(self) -> None:
        """How cards and tasks were used."""
        now = self.clock.time
        holders = {card["uuid"]: card for card in self.call("GET", "/v1/gpus").json()["gpus"]}

        def fill(view: Any) -> None:
            for number, (uuid, card) in enumerate(holders.items()):
                series, of_task = Series(), Series()
                many = sum(each["task_id"] == card["task_id"] for each in holders.values())
                for step in range(int(BEGAN_S // 10)):
                    at, values = now - BEGAN_S + 10 * step, used(number, step, held=bool(card["task_id"]))
                    series.note(at, values)
                    of_task.note(at, (values[0], many * values[1], None))
                if uuid != "GPU-a1-7":
                    view.use_history.cards[GpuId(uuid)] = series
                if card["task_id"]:
                    view.use_history.tasks[TaskId(card["task_id"])] = of_task
            view.use_history.cluster = cluster = UseHistory().cluster
            held = [bool(card["task_id"] or card["sharing"]) for card in holders.values()]
            for step in range(0, int(DAY_S), 300):
                each = [used(n, step // 10, held=one) for n, one in enumerate(held)]
                busy, _, watts = zip(*each, strict=True)
                cluster.note(now - DAY_S + step, (len(held), sum(held), sum(busy) / len(held), sum(watts)))

        self.daemon.read(fill).result(60)

    def _report(self) -> None:
        """Nodes report how they are used now."""
        now, cards = self.clock.time, self.call("GET", "/v1/gpus").json()["gpus"]
        for agent in NODES:
            uses, tasks = [], []
            for number, card in enumerate(cards):
                if card["agent_id"] != agent or card["uuid"] == "GPU-a1-7":  # which is sick
                    continue
                percent, mib, watts = used(number, 0, held=bool(card["task_id"]))
                meters = Meters(
                    gpu_pct=round(percent), memory_used_mib=round(mib), power_mw=round(1000 * watts),
                    power_limit_mw=400_000, temperature_c=round(31 + watts / 8), sm_clock_mhz=1410,
                )  # fmt: skip
                work = Work(0.0, round(1000 * now), round(10 * percent * now))
                uses.append(GpuUse(GpuId(card["uuid"]), now, meters, work, int(bool(card["task_id"]))))
                if card["task_id"]:
                    one = TaskUse(TaskId(card["task_id"]), GpuId(card["uuid"]), now, 1, round(mib), work)
                    tasks.append(one)
            said = Inventory(cards_of(agent), "simulated", "550.90", "12.4", volume="550.90")
            self.tell(replace(said, gpu_uses=tuple(uses), task_uses=tuple(tasks)), agent)


def used(number: int, step: int, *, held: bool) -> tuple[float, float, float]:
    """What a card's meters show: percent at work, MiB, watts. A training: epochs, and what comes between them."""
    if not held:
        return 0.0, 4.0, 62.0
    between = (step + 7 * number) % 48 < 5
    percent = 12.0 if between else 84 + 13 * math.sin(step / 9 + number)
    return percent, 51200.0 + 900 * (number % 5), 90 + 2.6 * percent
