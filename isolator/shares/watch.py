"""The watch on shares: what each task uses of its cards, by the driver and by its own account, and whether that is more
than it is granted. For the node monitor; what is done about a task is the scheduler's decision.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isolator.devices.facts import read_driver
from isolator.devices.members import members_of
from isolator.devices.rules import DriverFacts
from isolator.gpus.ledger import Holding, Ledger
from isolator.shares.loaded import Looker
from isolator.shares.shim.region import CardLimits, CardUsage, Region, region_of
from mesos_gpu.errors import BadConfiguration, Damaged, MesosGpuError
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.model.nodes.share_use import MAX_USES, ShareUse
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.sharing.excess import MIB, File, is_watched, looks_over
from volumes.keys import REPLACED, default_path

LOOK_S: Final = 3.0  # while there are shares: three looks are to be over in ten seconds
SLACK: Final = "MESOS_GPU_SHARE_SLACK_MIB"
DEFAULT_SLACK_MIB: Final = 1024  # a CUDA context takes 300 to 800 MiB, which no library in the task can count
STEP_MIB: Final = 8  # by less the limits are not written anew
_OURS, _REAL = REPLACED[0][1:]  # libcuda in a driver volume: ours, and the driver's beside it
logger = logging.getLogger(__name__)
_Key = tuple[TaskId, GpuId]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the look before has found of one share of one card."""

    at: float  # on the monotonic clock
    busy_ns: int
    looks: int
    most_mib: int
    beside_mib: int  # what it held beside its own account, by the driver


class Watch:
    """Looks at all shares of this host, again and again."""

    def __init__(
        self,
        ledger: Ledger,
        env: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        driver: Callable[[], DriverFacts] = read_driver,
    ) -> None:
        """Nothing was looked at yet. `driver`: reads its device numbers.

        Raises:
            BadConfiguration: MESOS_GPU_SHARE_SLACK_MIB is no number from 0.
        """
        self._ledger, self._clock, self._driver = ledger, clock, driver
        self._slack_mib = slack_from(env)
        self._volumes = default_path(env)
        self._before: dict[_Key, _Seen] = {}
        self._looker = Looker(_REAL)

    def look(self, readings: Iterable[Reading]) -> tuple[ShareUse, ...]:
        """What each living task uses of each of its shares; of one that has ended nothing is kept.

        Raises:
            MesosGpuError: The ledger cannot be used.
        """
        shares = [h for h in self._ledger.holdings() if h.share is not None and self._ledger.alive(h)]
        by_gpu = {reading.gpu.id: reading for reading in readings} if shares else {}
        tasks = [_Task(holding, pids) for holding, pids in zip(shares, members_of(shares), strict=True)]
        foreign = self._foreign(tasks, by_gpu)
        seen: dict[_Key, _Seen] = {}
        uses = [use for task in tasks for use in self._of_task(task, by_gpu, seen, foreign)]
        self._before = seen
        return tuple(uses[:MAX_USES])

    def _of_task(
        self,
        each: "_Task",
        readings: Mapping[GpuId, Reading],
        seen: dict[_Key, _Seen],
        foreign: Mapping[int, str],
    ) -> Iterator[ShareUse]:
        holding = each.holding
        task, share = TaskId(holding.task), holding.share
        assert share is not None
        account = _Account.of(region_of(self._ledger.directory, task), holding.gpus)
        problem = account.problem or next(
            (f"process {pid} {foreign[pid]}" for pid in sorted(each.pids & foreign.keys())), ""
        )
        for gpu in holding.gpus:
            reading = readings.get(gpu)
            driver_mib = _memory_mib(reading, each.on(reading))
            told = account.cards.get(gpu)
            told_mib = None if told is None else -(-told.memory_bytes // MIB)
            memory_mib = told_mib if driver_mib is None else driver_mib
            before = self._before.get((task, gpu))
            now = self._now(share, memory_mib, driver_mib, told, before)
            seen[task, gpu] = now
            if before is not None and driver_mib is not None and told is not None and is_watched(share):
                self._correct(account, gpu, min(now.beside_mib, before.beside_mib))
            yield ShareUse(
                task_id=task,
                gpu_id=gpu,
                memory_mib=memory_mib,
                most_mib=None if memory_mib is None else now.most_mib,
                compute_milli=_busy_milli(before, now)
                if told and share.method.compute_by == "windows"
                else None,
                refused=told.refused if told else None,
                missed=told.missed if told else None,
                looks=now.looks,
                problem=problem,
            )

    def _now(
        self,
        share: Share,
        memory_mib: int | None,
        driver_mib: int | None,
        told: CardUsage | None,
        before: _Seen | None,
    ) -> _Seen:
        told_mib = 0 if told is None else -(-told.memory_bytes // MIB)
        peak_mib = 0 if told is None else told.peak_bytes // MIB
        earlier = before or _Seen(0.0, 0, 0, 0, 0)
        return _Seen(
            at=self._clock(),
            busy_ns=told.busy_ns if told else 0,
            looks=looks_over(share, driver_mib, self._slack_mib, earlier.looks),
            most_mib=max(memory_mib or 0, peak_mib, earlier.most_mib),
            beside_mib=max((driver_mib or 0) - told_mib, 0),
        )

    def _correct(self, account: "_Account", gpu: GpuId, beside_mib: int) -> None:
        """Have a task's own libraries count what the driver says that it holds beside, of two looks the less: they see
        it at different moments. In the card's turn: who plans windows writes the same file. If somebody does, later."""
        limits = account.limits.get(gpu)
        if limits is None or abs(limits.unaccounted_bytes - beside_mib * MIB) < STEP_MIB * MIB:
            return
        try:
            with self._ledger.turn([gpu], timeout_s=0.0):
                account.region.change(gpu, unaccounted_bytes=beside_mib * MIB)
        except (MesosGpuError, OSError) as error:
            logger.info("the limits of %s are not corrected now: %s", account.region.path, error)

    def _foreign(self, tasks: Iterable["_Task"], readings: Mapping[GpuId, Reading]) -> dict[int, str]:
        """Which processes have a CUDA that does not keep their share, where ours is what keeps it; and what to say."""
        kept_by_ours = [task for task in tasks if task.is_kept_by_ours]
        ours = frozenset(_files(self._volumes)) if kept_by_ours else frozenset()
        if not ours:
            return {}
        computing = {pid for reading in readings.values() for pid in reading.pids or ()}
        pids = [task.pids for task in kept_by_ours]
        return self._looker.look(pids, computing, ours, self._driver().majors.get("nvidia-uvm"))


@dataclass(frozen=True, slots=True)
class _Task:
    """A task with a share, and its processes."""

    holding: Holding
    pids: frozenset[int]

    @property
    def is_kept_by_ours(self) -> bool:
        """Whether a part of its share is kept by our libraries."""
        share = self.holding.share
        return share is not None and (is_watched(share) or share.method.compute_by == "windows")

    def on(self, reading: Reading | None) -> list[int]:
        """Which of its processes are on a card."""
        return [pid for pid in (reading.pids if reading else None) or () if pid in self.pids]


@dataclass(frozen=True, slots=True)
class _Account:
    """What the libraries in a task say; `problem`: why it says nothing."""

    region: Region
    limits: Mapping[GpuId, CardLimits]
    cards: Mapping[GpuId, CardUsage]
    problem: str = ""

    @classmethod
    def of(cls, region: Region, gpus: Iterable[GpuId]) -> "_Account":
        """The account in a task's region; empty, and no problem, if it has none."""
        if not region.path.exists():
            return cls(region, {}, {})
        _mend(region)
        try:
            limits = {card.gpu: card for card in region.limits(gpus)}
        except Damaged as error:
            return cls(region, {}, {}, error.what)
        usage = region.usage(list(limits))
        return cls(region, limits, usage.cards, usage.problem)


def _mend(region: Region) -> None:
    try:
        region.mend()
    except (MesosGpuError, OSError) as error:  # at the next look again
        logger.info("%s stays half written now: %s", region.limits_path, error)


def slack_from(env: Mapping[str, str]) -> int:
    """MESOS_GPU_SHARE_SLACK_MIB: how much more than its share the driver may count for a task.

    Raises:
        BadConfiguration: It is no whole number from 0.
    """
    text = env.get(SLACK) or str(DEFAULT_SLACK_MIB)
    if not (text.isascii() and text.isdigit()):
        raise BadConfiguration(f"{SLACK} is {text!r}", remedy="set it to a number of MiB from 0")
    return int(text)


def _memory_mib(reading: Reading | None, pids: Iterable[int]) -> int | None:
    """What these processes hold of a card; None: the driver does not say it of each of them."""
    if reading is None or reading.process_mib is None:
        return None
    known = dict(reading.process_mib)
    amounts = [known.get(pid) for pid in pids]
    return None if None in amounts else sum(amount or 0 for amount in amounts)


def _busy_milli(before: _Seen | None, now: _Seen) -> int | None:
    """The part of the time between two looks in which it was at work; None: there was no look before."""
    if before is None or now.at <= before.at:
        return None
    busy_s = max(now.busy_ns - before.busy_ns, 0) / 1e9  # of living processes: less when one has ended
    return min(round(WHOLE * busy_s / (now.at - before.at)), WHOLE)


def _files(volumes: Path) -> Iterator[File]:
    """Device and inode of each of our libraries, in all driver volumes that have one beside the driver's."""
    for real in volumes.glob(f"builds/*/lib64/{_REAL}"):
        try:
            status = real.with_name(_OURS).stat()
        except OSError:  # it is being removed
            continue
        yield status.st_dev, status.st_ino
