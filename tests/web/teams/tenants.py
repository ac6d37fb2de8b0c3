"""A pool that several teams share: who borrows, who was stopped for whom, and a budget that is soon used up."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from mesos_gpu.api.asking import new_job
from mesos_gpu.engine import events as ev
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.wire.jobs import decode
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer
from tests.doubles.fake_driver import RecordingStore

NODES: Final = ("b1", "b2", "b3", "b4")
CARDS: Final = 8  # of each
DAY_S: Final = 86400.0
BEGAN_S: Final = 6 * DAY_S  # ago
NOTICE_S: Final = 61.0
STEPS: Final = 6  # in which that time passes


def queues(now: float) -> dict[str, Any]:
    """The tree, whose budget began ten days before `now`."""
    day = datetime.fromtimestamp(now, UTC).date()
    return {
        "default": {"borrow_limit_gpus": 4},
        "production": {"guarantee_gpus": [{"nodes": 1, "gpus": 8}], "band": 1},
        "research": {"guarantee_gpus": 16, "limit_gpus": 28, "notice_s": 60, "min_runtime_s": {"reclaim": 300}},
        "research/vision": {
            "guarantee_gpus": 8, "weight": 2, "default_timeout_s": 1209600,
            "users": {"*": {"max_gpus": 24, "max_running": 6}, "bob": {"max_gpus": 4}},
            "budget": {
                "gpu_hours": 2600, "period": "once", "from": str(day - timedelta(10)),
                "to": str(day + timedelta(10)), "on_empty": "borrow",
            },
        },
        "research/speech": {"guarantee_gpus": 4, "weight": 1},
        "research/students": {"limit_gpus": 4, "users": {"*": {"max_gpus": 1}}},
        "teaching": {"guarantee_gpus": 4},
        "teaching/exam": {"guarantee_gpus": 4},
    }  # fmt: skip


def cards_of(agent: str) -> tuple[Gpu, ...]:
    """All cards of a node."""
    return tuple(replace(gpu(f"GPU-{agent}-{i}"), minor=i, index=i) for i in range(CARDS))


class Tenants(Rig):
    """Four nodes of eight cards. Vision borrows what production and teaching leave; production wants its node back, so
    a job of vision was stopped for it, and another has its notice."""

    def __init__(self, **settings: Any) -> None:
        """Wait until it is so."""
        store = RecordingStore()
        now = time.time()
        super().__init__(store=store, records=store, now=now - BEGAN_S, **settings)
        self._offers = count()
        for agent in NODES:
            self.node(agent, cards_of(agent))
            self.tell(Inventory(cards_of(agent), "simulated", "550.90", "12.4", volume="550.90"), agent)
        done = self.call("PUT", "/v1/queues", json={"version": 0, "queues": queues(now)})
        assert done.ok, done.text
        for name, gpus in (("resnet-152", 4), ("segment", 4), ("diffusion", 8), ("dino", 4)):
            self.owned("ann", name=name, gpus=gpus, queue="research/vision", preemptible=True)
        self.owned("eve", name="asr", gpus=4, queue="research/speech", preemptible=True)
        self.until("they run", lambda: self.states("running") >= 5)
        for step in range(STEPS, 0, -1):  # days pass, and hosts are heard of
            self.clock.time = now - step * BEGAN_S / STEPS
            self.heard()
        self.clock.time = now - 3000
        self.heard()
        self.owned("pat", name="serve", gpus=8, queue="production")
        self.until("a notice is given for it", self.noticed)
        self.clock.time += NOTICE_S
        self.heard()
        self.until("production has its node", lambda: self.job("serve")["state"] == "running")
        self.owned("bob", name="yolo", gpus=4, queue="research/vision", preemptible=True, priority=5)
        for i in range(3):
            self.owned(f"stu{i}", name=f"homework-{i}", gpus=1, queue="research/students", preemptible=True)
        self.until("the homework runs", lambda: self.job("homework-2")["state"] == "running")
        self.clock.time = now - 20
        self.heard()
        self.owned("tom", name="grading", gpus=4, queue="teaching/exam")
        self.until("teaching waits for a notice", self.noticed)
        self.clock.time = time.time()
        self.heard()

    def owned(self, who: str, **fields: Any) -> None:
        """Submit a job of somebody."""
        spec = decode(json.dumps({"command": "python3 train.py", **fields}).encode(), permits=Permits())
        assert isinstance(spec, JobSpec), spec
        self.daemon.request(new_job(spec, who)).result(60)

    def job(self, name: str) -> dict[str, Any]:
        """The job of that name."""
        (job,) = self.call("GET", f"/v1/jobs?named={name}").json()["jobs"]
        return dict(job)

    def states(self, state: str) -> int:
        """How many jobs are in a state."""
        return int(self.call("GET", f"/v1/jobs?state={state}").json()["total"])

    def noticed(self) -> bool:
        """Whether a job of research has a notice that has not passed."""
        jobs = self.call("GET", "/v1/jobs?queue=research&state=running").json()["jobs"]
        return any(job["notice"] and job["notice"]["until"] > self.clock.time for job in jobs)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Do what hosts do, until something holds."""

        def done() -> bool:
            self.play()
            return holds()

        wait_until(what, done)

    def play(self) -> None:
        """Start what is launched, end what is killed, and offer what is left."""
        self.clock.time += 0.3
        tasks = [task for task in self.call("GET", "/v1/tasks").json()["tasks"] if task["job_id"]]
        killed = {what[0] for name, what in list(self.driver.calls) if name == "kill"}
        for task in tasks:
            if task["id"] in killed:
                self.status(task["id"], "TASK_KILLED", task["agent_id"])
            elif task["state"] != "running":
                self.status(task["id"], "TASK_RUNNING", task["agent_id"])
        for agent in NODES:
            held = sum(
                len(task["gpu_ids"])
                for task in tasks
                if task["agent_id"] == agent and task["id"] not in killed
            )
            one = offer(f"{agent}-x{next(self._offers)}", agent, cpus=16, mem=65536, gpus=CARDS - held)
            self.daemon.put(ev.OffersArrived((one,)))

    def heard(self) -> None:
        """Hosts are heard of."""
        for agent in NODES:
            self.tell(Inventory(cards_of(agent), "simulated", "550.90", "12.4", volume="550.90"), agent)
