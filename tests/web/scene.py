"""A cluster with something of everything: what pictures of the page show, and all its parts are judged by."""

import time
from dataclasses import replace
from typing import Any

from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.testing.builders import gpu
from tests.conftest import wait_until
from tests.contract.api.test_api_shares import QUARTER, hold
from tests.contract.rig import Rig

CARDS = 8  # of each node
NODES = ("a1", "a2", "a3")
WEB = {"id": "/shop/web", "cmd": "serve", "instances": 5, "gpus": 4, "cpus": 0.1, "mem": 128}


def cards_of(agent: str) -> tuple[Gpu, ...]:
    """The last of a1 is sick, and the first of a3 can be shared."""
    cards = [replace(gpu(f"GPU-{agent}-{i}"), minor=i) for i in range(CARDS)]
    if agent == "a1":
        cards[-1] = replace(cards[-1], health=Health.SICK, reason="XID 79: fallen off the bus")
    if agent == "a3":
        cards[0] = replace(cards[0], sharing=Sharing(80000, ((Ability.SHIM, ""),)))
    return tuple(cards)


class Scene(Rig):
    """Three nodes with eight cards each: one card is sick, one node is drained, one card is shared; a job runs, one has
    failed, a gang waits, and an app's deployment is under way."""

    def __init__(self, **settings: Any) -> None:
        """Wait until the app's deployment waits for room."""
        super().__init__(**settings)
        self.clock.time = time.time()
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
        self.gang = self.submit(name="ddp", gpus=8, tasks=3, command="torchrun train.py")["id"]
        assert self.call("POST", "/v2/apps", json=WEB).status_code == 201
        wait_until("its deployment waits for room", self.deployment_waits)

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
