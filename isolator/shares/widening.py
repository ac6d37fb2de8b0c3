"""Lending of unused compute windows: tasks that are idle lend their time to busy ones. For the monitor.

An idle task keeps a stretch of its own, and may begin in it at any time; the next look takes back what others
had of its time (`mesos_gpu.policy.sharing.windows`).
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from isolator.gpus.ledger import Ledger
from isolator.shares import card
from isolator.shares.files import WINDOWS
from isolator.shares.shim.region import CardUsage, region_of, regions
from mesos_gpu.errors import Damaged, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId

LOOK_S: Final = 0.1
#: Seconds after its last request to compute that a task counts as idle: longer than a loop that fetches its
#: next batch.
IDLE_S: Final = 0.3
#: Looks between two readings of the ledger for the tasks of each card.
LOOKS_A_LIST: Final = 10


@dataclass(slots=True)
class _Card:
    """A card whose tasks take turns.

    Attributes:
        compute_milli: Thousandths of compute of each task.
        planned: Tasks that were idle at the last plan.
        busy_ns: Computing time of each task at the last look.
    """

    compute_milli: Mapping[TaskId, int]
    planned: frozenset[TaskId] = frozenset()
    busy_ns: dict[TaskId, int] = field(default_factory=dict)


class IdleLending:
    """Detection of idle tasks on cards whose tasks take turns, with new plans when that changes.

    Args:
        ledger: The ledger of this host.
        now_ns: CLOCK_MONOTONIC, by which tasks note their last request to compute.
    """

    def __init__(self, ledger: Ledger, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._ledger, self._now_ns = ledger, now_ns
        self._cards: dict[GpuId, _Card] = {}
        self._looks = 0

    def look(self) -> None:
        """Plan again for cards whose set of idle tasks has changed since the last look.

        Raises:
            MesosGpuError, OSError: The ledger cannot be used, or a plan cannot be written.
        """
        if self._looks % LOOKS_A_LIST == 0:
            self._cards = self._listed()
        self._looks += 1
        for gpu, shared in self._cards.items():
            idle = frozenset(task for task in shared.compute_milli if self._is_idle(gpu, task, shared))
            if idle == shared.planned:
                continue
            try:
                with self._ledger.turn([gpu], timeout_s=0.0):
                    card.plan(self._ledger, [gpu], idle)
            except Unavailable:  # a task begins or ends there, which plans as well
                continue
            shared.planned = idle

    def _listed(self) -> dict[GpuId, _Card]:
        """Return the cards that several tasks share by a plan of windows.

        A card with the shares it had before keeps its record; if they differ, an executor has planned
        meanwhile.
        """
        directory = regions(self._ledger.directory)
        if not directory.exists() or not os.listdir(directory):  # a cheap test on hosts without shares
            return {}
        planned = {row.gpu for row in self._ledger.cards() if row.kind == WINDOWS}
        holdings = self._ledger.holdings() if planned else ()
        listed = {}
        for gpu in planned:
            shares = {TaskId(h.task): h.share.compute_milli for h in holdings if gpu in h.gpus and h.share}
            before = self._cards.get(gpu)
            if len(shares) > 1:
                listed[gpu] = before if before and before.compute_milli == shares else _Card(shares)
        return listed

    def _is_idle(self, gpu: GpuId, task: TaskId, shared: _Card) -> bool:
        """Return whether a task has not used the card lately, by its own account.

        A task that lies gets no more than its share, or loses time that it could have.
        """
        region = region_of(self._ledger.directory, task)
        try:
            # A task may share several cards; each has its position in the file.
            cards = [card.gpu for card in region.limits((gpu,))]
        except Damaged:  # reported by the watch
            cards = []
        usage = region.usage(cards).cards.get(gpu, CardUsage())
        worked = usage.busy_ns != shared.busy_ns.get(task, usage.busy_ns)
        shared.busy_ns[task] = usage.busy_ns
        return not worked and self._now_ns() - usage.asked_ns > IDLE_S * 1e9
