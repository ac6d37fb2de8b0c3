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

from isolator.agent_api import TERMINAL, Connection, Settings
from isolator.facts import isolation_name, write_inventory
from isolator.ledger import Ledger
from isolator.reaper import reap
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.gpu import Health, Inventory
from mesos_gpu.ports import GpuProbe
from mesos_gpu.wire import report

LOOK_S: Final = 0.5  # how often the probe is asked whether something changed
DEFAULT_INTERVAL_S: Final = 10.0
LEFTOVERS_S: Final = 1.0  # a process that hangs is tried again at the next report, which must not wait for it
logger = logging.getLogger("isolator.monitor")


class Monitor:
    """`Handler` of the agent's events."""

    def __init__(self, settings: Settings, probe: GpuProbe, ledger: Ledger) -> None:
        """Nothing runs yet."""
        self._probe, self._ledger = probe, ledger
        self._connection = Connection(settings, self)
        self._task_id: str | None = None
        self._lock = threading.Lock()  # so that no report follows the last word
        self._stop = threading.Event()
        self._known = Inventory()
        self._failure = ""  # why the last probe failed

    def run(self) -> int:
        """Until killed; the exit code."""
        return self._connection.run()

    def launch(self, task: Mapping[str, Any]) -> None:
        """Begin to report."""
        if self._task_id is not None:
            self._connection.update(task["task_id"]["value"], "TASK_FAILED", message="one monitor, one task")
            return
        self._task_id = str(task["task_id"]["value"])
        try:
            interval_s = interval_from(base64.b64decode(task.get("data", "")), os.environ)
        except ValueError as error:
            self._stop.set()
            self._connection.update(self._task_id, "TASK_FAILED", message=str(error))
            return
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

    def message(self, data: bytes) -> None:
        """Nothing is said to it yet."""

    def _end(self, message: str) -> None:
        with self._lock:
            if self._task_id is not None and not self._stop.is_set():
                self._stop.set()
                self._connection.update(self._task_id, "TASK_KILLED", message=message)

    def _report(self, interval_s: float) -> None:
        try:
            self._report_until_stopped(interval_s)
        finally:
            if not self._stop.is_set():  # it broke: without a process, Mesos says that the monitor is lost
                self._connection.finish()

    def _report_until_stopped(self, interval_s: float) -> None:
        last: Inventory | None = None
        due = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= due or self._probe.changed() or self._known != last:
                self._reap()
                self._look()
                if self._sent():
                    last, due = self._known, time.monotonic() + interval_s
            self._stop.wait(min(LOOK_S, interval_s))

    def _sent(self) -> bool:
        """Send what is known, unless an earlier report still waits: an agent that was away shall not find a
        heap of old ones, but the newest when it has taken that one."""
        assert self._task_id is not None
        with self._lock:
            if self._stop.is_set() or self._connection.waiting():
                return False
            self._connection.update(
                self._task_id, "TASK_RUNNING", message=self._summary(), data=report.encode(self._known)
            )
            return True

    def _look(self) -> None:
        """Read the inventory; after a failed probe what was known, in unknown health: never schedulable."""
        try:
            self._known, self._failure = self._probe.inventory(), ""
        except Exception as error:  # whatever a driver may raise: the last report must not stand
            self._failure = error.what if isinstance(error, MesosGpuError) else repr(error)
            logger.warning(
                "the GPUs could not be read: %s", error, exc_info=not isinstance(error, MesosGpuError)
            )
            gpus = tuple(
                replace(gpu, health=Health.UNKNOWN, reason=f"probe failed: {self._failure}")
                for gpu in self._known.gpus
            )
            self._known = replace(self._known, gpus=gpus)
        self._known = replace(self._known, isolation=isolation_name())
        write_inventory(self._ledger.directory, self._known)

    def _reap(self) -> None:
        """Drop the claims of executors that died, once nothing of their tasks runs any more."""
        try:
            reap(self._ledger)
        except (MesosGpuError, OSError) as error:
            logger.error("the ledger could not be looked after: %s", error)

    def _summary(self) -> str:
        if self._failure:
            return f"the GPUs cannot be read: {self._failure}"
        sick = sum(gpu.health is not Health.OK for gpu in self._known.gpus)
        counted = f"{len(self._known.gpus)} GPUs ({self._known.source})"
        return counted + (f", {sick} not healthy" if sick else "")


def interval_from(data: bytes, env: Mapping[str, str]) -> float:
    """Seconds between reports: from the task's JSON, else MESOS_GPU_REPORT_INTERVAL_S, else 10.

    Raises:
        ValueError: Neither JSON nor empty, or not a positive number.
    """
    given = json.loads(data) if data else {}
    if not isinstance(given, dict):
        raise ValueError(f"the task's data must be a JSON object, got {given!r}")
    value = given.get("report_interval_s", env.get("MESOS_GPU_REPORT_INTERVAL_S", DEFAULT_INTERVAL_S))
    try:
        interval_s = float(value)
    except (TypeError, ValueError):
        interval_s = 0.0
    if not 0 < interval_s < float("inf"):
        raise ValueError(f"report_interval_s must be a positive number of seconds, got {value!r}")
    return interval_s


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
