"""A framework that takes every GPU."""

import queue
import threading
from pathlib import Path
from typing import Any

from isolator.agent.commands import executor_command
from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.local.stack import Stack


class Greedy:
    """A framework of another role that uses every GPU it is offered. Its tasks do nothing: a keeper runs them."""

    def __init__(self, stack: Stack) -> None:
        self._events: queue.SimpleQueue[pd.DriverEvent] = queue.SimpleQueue()
        framework = pd.FrameworkSettings(
            Path.home().owner(), "greedy", ("*",), "http://127.0.0.1:1", "here", failover_timeout_s=0.0
        )
        address = f"127.0.0.1:{stack.cluster.master.port}"
        self._driver = pd.PymesosDriver(framework, address, self._events.put)
        self._stop, self.launched = threading.Event(), 0
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Greedy":
        self._driver.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._driver.stop(teardown=True)

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                event = self._events.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(event, pd.Offers):
                for offer in event.offers:
                    self._answer(offer)
            elif isinstance(event, pd.Update) and event.status.get("uuid"):
                status = event.status
                task_id, agent_id = status["task_id"]["value"], status["agent_id"]["value"]
                self._driver.acknowledge(agent_id, task_id, status["uuid"])

    def _answer(self, offer: dict[str, Any]) -> None:
        gpus = [each for each in offer["resources"] if each["name"] == "gpus"]
        if not gpus:
            self._driver.decline([offer["id"]["value"]], refuse_s=0.2)
            return
        self.launched += 1
        name = f"greedy.{self.launched}"
        least = [_scalar("cpus", 0.05), _scalar("mem", 16)]
        info = {
            "name": name,
            "task_id": {"value": name},
            "agent_id": offer["agent_id"],
            "resources": [
                *least,
                *({k: v for k, v in each.items() if k != "allocation_info"} for each in gpus),
            ],
            "executor": {
                "executor_id": {"value": name},
                "type": "CUSTOM",
                "command": {"value": executor_command("keeper")},
                "resources": [_scalar("cpus", 0.01), _scalar("mem", 32)],
            },
        }
        self._driver.accept([offer["id"]["value"]], [info], refuse_s=0.2)


def _scalar(name: str, amount: float) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "role": "*", "scalar": {"value": amount}}


def greedy_gpus(stack: Stack) -> float:
    """GPUs that such frameworks have, as the master says."""
    frameworks = stack.cluster.master.state()["frameworks"]
    return sum(float(each["used_resources"]["gpus"]) for each in frameworks if each["name"] == "greedy")
