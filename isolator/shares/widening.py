"""The time of tasks that do not want their card goes to those that do, until they want it. For the monitor.

A task that is idle keeps the stretch that is its own, and may begin in it at any time; the next look takes back what
others had of it (`mesos_gpu.policy.sharing.windows`).
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
#: So long after its last wish a task counts as idle: longer than a loop that fetches its next batch.
IDLE_S: Final = 0.3
#: How often the ledger is asked which tasks share which card.
LOOKS_A_LIST: Final = 10


@dataclass(slots=True)
class _Card:
    """A card whose tasks take turns. `compute_milli`: of each task; `planned`: what was idle at the last plan."""

    compute_milli: Mapping[TaskId, int]
    planned: frozenset[TaskId] = frozenset()
    busy_ns: dict[TaskId, int] = field(default_factory=dict)


class Widening:
    """Looks at who wants which card."""

    def __init__(self, ledger: Ledger, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Nothing was looked at yet. `now_ns`: CLOCK_MONOTONIC, by which tasks say when they wanted their card."""
        self._ledger, self._now_ns = ledger, now_ns
        self._cards: dict[GpuId, _Card] = {}
        self._looks = 0

    def look(self) -> None:
        """Plan anew for cards on which another task is idle now than at the last look.

        Raises:
            MesosGpuError, OSError: The ledger cannot be used, or a plan not be written.
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
            except Unavailable:  # a task begins or ends there, and plans
                continue
            shared.planned = idle

    def _listed(self) -> dict[GpuId, _Card]:
        """Cards whose tasks take turns by a plan; of those that are known, with what is known, unless it has changed:
        then another has planned."""
        directory = regions(self._ledger.directory)
        if not directory.exists() or not os.listdir(directory):  # cheap, where nobody has a share
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
        """Whether it has not wanted the card of late, by what it says itself: who lies gets no more than its share,
        or leaves what it has."""
        region = region_of(self._ledger.directory, task)
        try:
            # A task may share several: each has its place.
            cards = [card.gpu for card in region.limits((gpu,))]
        except Damaged:  # the watch says so
            cards = []
        usage = region.usage(cards).cards.get(gpu, CardUsage())
        worked = usage.busy_ns != shared.busy_ns.get(task, usage.busy_ns)
        shared.busy_ns[task] = usage.busy_ns
        return not worked and self._now_ns() - usage.asked_ns > IDLE_S * 1e9
