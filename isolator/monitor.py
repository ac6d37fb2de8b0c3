"""The node monitor: a Mesos task that tells the scheduler which GPUs its host has, and how they are.

It is its own executor. Each report is a TASK_RUNNING whose data is the inventory: reliable, acknowledged,
and in order, like every status update.
"""

import base64
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from isolator import processes
from isolator.agent_api import TERMINAL, Connection, Settings
from isolator.ledger import Ledger
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.gpu import Health, Inventory
from mesos_gpu.ports import GpuProbe
from mesos_gpu.wire import report

LOOK_S: Final = 0.5  # how often the probe is asked whether something changed
logger = logging.getLogger("isolator.monitor")


class Monitor:
    """`Handler` of the agent's events."""

    def __init__(self, settings: Settings, probe: GpuProbe, ledger: Ledger) -> None:
        """Nothing runs yet."""
        self._probe, self._ledger = probe, ledger
        self._connection = Connection(settings, self)
        self._task_id: str | None = None
        self._stop = threading.Event()
        self._known = Inventory()

    def run(self) -> int:
        """Until killed; the exit code."""
        return self._connection.run()

    def launch(self, task: Mapping[str, Any]) -> None:
        """Begin to report."""
        if self._task_id is None:
            self._task_id = str(task["task_id"]["value"])
            wanted = json.loads(base64.b64decode(task.get("data", "")) or b"{}")
            interval_s = float(wanted.get("report_interval_s", 10.0))
            threading.Thread(target=self._report, args=(interval_s,), daemon=True).start()

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """End at once: there is nothing to wait for."""
        if task_id == self._task_id:
            self._end("killed on request")

    def shutdown(self) -> None:
        """The agent wants it gone; nobody waits for its last word."""
        self._stop.set()
        self._connection.finish()

    def acknowledged(self, task_id: str, state: str) -> None:
        """After the last word there is nothing more to do."""
        if state in TERMINAL:
            self._connection.finish()

    def _end(self, message: str) -> None:
        if self._task_id is not None and not self._stop.is_set():
            self._stop.set()
            self._connection.update(self._task_id, "TASK_KILLED", message=message)

    def _report(self, interval_s: float) -> None:
        assert self._task_id is not None
        last: Inventory | None = None
        due = 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= due or self._probe.changed():
                self._reap()
                found = self._look()
                # An agent that is away must not find a heap of old reports when it is back.
                if (found != last or now >= due) and self._connection.waiting() < 2:
                    self._connection.update(
                        self._task_id, "TASK_RUNNING", message=_summary(found), data=report.encode(found)
                    )
                    last, due = found, now + interval_s
            self._stop.wait(min(LOOK_S, interval_s))

    def _look(self) -> Inventory:
        """The inventory; after a failed probe what was known, in unknown health: never schedulable."""
        try:
            self._known = self._probe.inventory()
        except MesosGpuError as error:
            logger.warning("the GPUs could not be read: %s", error)
            gpus = tuple(
                replace(gpu, health=Health.UNKNOWN, reason=f"probe failed: {error.what}")
                for gpu in self._known.gpus
            )
            self._known = replace(self._known, gpus=gpus)
        return self._known

    def _reap(self) -> None:
        """Drop the claims of executors that died, once nothing of their tasks runs any more."""
        try:
            dead = [claim for claim in self._ledger.claims() if not claim.owner.alive()]
            for claim in dead:
                if not processes.kill_leftovers(claim.task):
                    logger.warning("dropping the claim of %s on %s: its executor died", claim.task, claim.gpu)
                    self._ledger.drop([claim])
        except (MesosGpuError, OSError) as error:
            logger.error("the ledger could not be looked after: %s", error)


def _summary(inventory: Inventory) -> str:
    sick = sum(gpu.health is not Health.OK for gpu in inventory.gpus)
    return f"{len(inventory.gpus)} GPUs ({inventory.source})" + (f", {sick} not healthy" if sick else "")


def probe_from(env: Mapping[str, str]) -> GpuProbe:
    """MESOS_GPU_INVENTORY names a file of simulated GPUs; else the real ones."""
    named = env.get("MESOS_GPU_INVENTORY")
    if named:
        from mesos_gpu.adapters.simulated_gpus import SimulatedProbe

        return SimulatedProbe(named)
    from mesos_gpu.adapters.nvml import NvmlProbe

    return NvmlProbe()


def main() -> int:
    """Run as an executor of Mesos: all settings are in the environment."""
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    settings = Settings.from_environment(os.environ)
    return Monitor(settings, probe_from(os.environ), Ledger()).run()
