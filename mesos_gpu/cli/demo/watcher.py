"""Repeated comparison of Mesos' count of GPUs with the scheduler's, while jobs run."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesos_gpu.local.processes import get_json

_UNSETTLED = ("launched", "unreachable", "abandoned")


@dataclass
class Findings:
    """Results of the comparisons."""

    compared: int = 0  # samples in which both sides were stable
    overbooked: set[str] = field(default_factory=set)  # GPUs allocated beyond their capacity
    disagreements: list[str] = field(default_factory=list)


class Watcher:
    """Context manager that samples both sides on a thread.

    Mesos and the scheduler change at different times, so a sample is compared only if nothing was in transit: the
    scheduler's state is equal before and after Mesos' is read, and no task was just launched or is unreachable.

    Args:
        scheduler_port: Port of the scheduler on 127.0.0.1.
        master_port: Port of the master on 127.0.0.1.
        interval_s: Seconds between samples.
    """

    def __init__(self, scheduler_port: int, master_port: int, *, interval_s: float = 0.1) -> None:
        self._scheduler, self._master, self._interval_s = scheduler_port, master_port, interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self.findings = Findings()
        self.failure: Exception | None = None

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _watch(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self.sample()
        except Exception as error:  # noqa: BLE001 - raised again on the thread that waits
            self.failure = error

    def sample(self) -> None:
        """Take one sample, and record disagreements."""
        before = self._ours()
        state = get_json("127.0.0.1", self._master, "/state")
        after = self._ours()
        self._check_sharing(after)
        if before != after or any(task["state"] in _UNSETTLED for task in after):
            return
        ours = {task["id"]: _in_mesos(task) for task in after}
        theirs = {t["id"]: int(t["resources"]["gpus"]) for f in state["frameworks"] for t in f["tasks"]}
        if set(ours) != set(theirs):
            return  # a status update is in transit, whose acknowledgement removes the task in Mesos
        self.findings.compared += 1
        in_use = sum(int(f["used_resources"]["gpus"]) for f in state["frameworks"])
        if ours != theirs or in_use != sum(ours.values()):
            self.findings.disagreements.append(f"ours {ours}, Mesos' {theirs}, in use {in_use}")

    def _ours(self) -> list[dict[str, Any]]:
        return list(get_json("127.0.0.1", self._scheduler, "/v1/tasks")["tasks"])

    def _check_sharing(self, tasks: list[dict[str, Any]]) -> None:
        """Record GPUs that are allocated more than once, or beyond their capacity."""
        whole = Counter(gpu for task in tasks if not task["share"] for gpu in task["gpu_ids"])
        compute: Counter[str] = Counter()
        for task in tasks:
            compute.update(
                dict.fromkeys(task["gpu_ids"], task["share"]["compute_pct"] if task["share"] else 100)
            )
        self.findings.overbooked |= {gpu for gpu, count in whole.items() if count > 1}
        self.findings.overbooked |= {gpu for gpu, percent in compute.items() if percent > 100}


def _in_mesos(task: Mapping[str, Any]) -> int:
    """Return how many GPUs a task holds in Mesos: for shares the cover task holds the whole GPU."""
    if task["covers"]:
        return 1
    return 0 if task["share"] else len(task["gpu_ids"])
