"""Supervision of shares for the node monitor: what each task uses of its cards, and whether it exceeds its
share.

Use is read from the driver and from the task's own account. The scheduler decides what to do about a task.
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
from isolator.shares.loaded import ProcessInspector
from isolator.shares.shim.region import CardLimits, CardUsage, Region, region_of
from mesos_gpu.errors import BadConfiguration, Damaged, MesosGpuError
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.model.nodes.share_use import MAX_USES, ShareUse
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.sharing.excess import MIB, File, is_watched, looks_over
from volumes.keys import REPLACED, default_path

LOOK_S: Final = 3.0  # period while there are shares: three looks must fit into ten seconds
SLACK: Final = "MESOS_GPU_SHARE_SLACK_MIB"
DEFAULT_SLACK_MIB: Final = 1024  # a CUDA context takes 300 to 800 MiB, which no library in the task can count
STEP_MIB: Final = 8  # smaller changes do not rewrite the limits
_OURS, _REAL = REPLACED[0][1:]  # names of libcuda in a driver volume: ours, and the driver's beside it
logger = logging.getLogger(__name__)
_Key = tuple[TaskId, GpuId]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Reading of one share of one card at the last look.

    Attributes:
        at: Time on the monotonic clock.
        beside_mib: MiB that the driver counts for the task beyond its own account.
    """

    at: float
    busy_ns: int
    looks: int
    most_mib: int
    beside_mib: int


class Watch:
    """Supervision of all shares of this host, in repeated looks.

    Args:
        ledger: The ledger of this host.
        env: Environment of the monitor.
        clock: Monotonic clock in seconds.
        driver: Function that reads the driver's device numbers.

    Raises:
        BadConfiguration: MESOS_GPU_SHARE_SLACK_MIB is not a whole number from 0.
    """

    def __init__(
        self,
        ledger: Ledger,
        env: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        driver: Callable[[], DriverFacts] = read_driver,
    ) -> None:
        self._ledger, self._clock, self._driver = ledger, clock, driver
        self._slack_mib = slack_from(env)
        self._volumes = default_path(env)
        self._before: dict[_Key, _Seen] = {}
        self._looker = ProcessInspector(_REAL)

    def look(self, readings: Iterable[Reading]) -> tuple[ShareUse, ...]:
        """Return the use of each share of each living task; tasks that have ended are forgotten.

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
        task: "_Task",
        readings: Mapping[GpuId, Reading],
        seen: dict[_Key, _Seen],
        foreign: Mapping[int, str],
    ) -> Iterator[ShareUse]:
        """Yield the use of each share of one task; correct its own account where the driver counts more."""
        holding = task.holding
        task_id, share = TaskId(holding.task), holding.share
        assert share is not None
        account = _Account.of(region_of(self._ledger.directory, task_id), holding.gpus)
        problem = account.problem or next(
            (f"process {pid} {foreign[pid]}" for pid in sorted(task.pids & foreign.keys())), ""
        )
        for gpu in holding.gpus:
            reading = readings.get(gpu)
            driver_mib = _memory_mib(reading, task.on(reading))
            account_use = account.cards.get(gpu)
            account_mib = None if account_use is None else -(-account_use.memory_bytes // MIB)
            memory_mib = account_mib if driver_mib is None else driver_mib
            before = self._before.get((task_id, gpu))
            now = self._now(share, memory_mib, driver_mib, account_use, before)
            seen[task_id, gpu] = now
            if (
                before is not None
                and driver_mib is not None
                and account_use is not None
                and is_watched(share)
            ):
                self._correct(account, gpu, min(now.beside_mib, before.beside_mib))
            yield ShareUse(
                task_id=task_id,
                gpu_id=gpu,
                memory_mib=memory_mib,
                most_mib=None if memory_mib is None else now.most_mib,
                compute_milli=_busy_milli(before, now)
                if account_use and share.method.compute_by == "windows"
                else None,
                refused=account_use.refused if account_use else None,
                missed=account_use.missed if account_use else None,
                looks=now.looks,
                problem=problem,
            )

    def _now(
        self,
        share: Share,
        memory_mib: int | None,
        driver_mib: int | None,
        account_use: CardUsage | None,
        before: _Seen | None,
    ) -> _Seen:
        """Return the reading of one share at this look."""
        account_mib = 0 if account_use is None else -(-account_use.memory_bytes // MIB)
        peak_mib = 0 if account_use is None else account_use.peak_bytes // MIB
        earlier = before or _Seen(0.0, 0, 0, 0, 0)
        return _Seen(
            at=self._clock(),
            busy_ns=account_use.busy_ns if account_use else 0,
            looks=looks_over(share, driver_mib, self._slack_mib, earlier.looks),
            most_mib=max(memory_mib or 0, peak_mib, earlier.most_mib),
            beside_mib=max((driver_mib or 0) - account_mib, 0),
        )

    def _correct(self, account: "_Account", gpu: GpuId, beside_mib: int) -> None:
        """Make a task's libraries count the memory that the driver sees beyond their own account.

        Args:
            beside_mib: The smaller value of two looks, as driver and libraries measure at different moments.
        """
        # In the card's turn, as the planner of windows writes the same file; if that is taken, at a later look.
        limits = account.limits.get(gpu)
        if limits is None or abs(limits.unaccounted_bytes - beside_mib * MIB) < STEP_MIB * MIB:
            return
        try:
            with self._ledger.turn([gpu], timeout_s=0.0):
                account.region.change(gpu, unaccounted_bytes=beside_mib * MIB)
        except (MesosGpuError, OSError) as error:
            logger.info(
                "the limits of %s are not corrected until the next look: %s", account.region.path, error
            )

    def _foreign(self, tasks: Iterable["_Task"], readings: Mapping[GpuId, Reading]) -> dict[int, str]:
        """Return the processes whose CUDA does not enforce their share where it should, each with a complaint
        in words.
        """
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
        """Whether our libraries enforce a part of its share."""
        share = self.holding.share
        return share is not None and (is_watched(share) or share.method.compute_by == "windows")

    def on(self, reading: Reading | None) -> list[int]:
        """Return its processes on a card."""
        return [pid for pid in (reading.pids if reading else None) or () if pid in self.pids]


@dataclass(frozen=True, slots=True)
class _Account:
    """Use of a task by the account of its own libraries.

    Attributes:
        problem: Reason why there is no account, in words; "" if there is one, or the task needs none.
    """

    region: Region
    limits: Mapping[GpuId, CardLimits]
    cards: Mapping[GpuId, CardUsage]
    problem: str = ""

    @classmethod
    def of(cls, region: Region, gpus: Iterable[GpuId]) -> "_Account":
        """Read the account in a task's region; empty and without a problem if the task has no region."""
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
    except (MesosGpuError, OSError) as error:  # retried at the next look
        logger.info("%s stays half written until the next look: %s", region.limits_path, error)


def slack_from(env: Mapping[str, str]) -> int:
    """Return MESOS_GPU_SHARE_SLACK_MIB: MiB that the driver may count for a task beyond its share.

    Raises:
        BadConfiguration: It is not a whole number from 0.
    """
    text = env.get(SLACK) or str(DEFAULT_SLACK_MIB)
    if not (text.isascii() and text.isdigit()):
        raise BadConfiguration(f"{SLACK} is {text!r}", remedy="set it to a number of MiB from 0")
    return int(text)


def _memory_mib(reading: Reading | None, pids: Iterable[int]) -> int | None:
    """Return the MiB that these processes hold on a card; None if the driver does not report each of them."""
    if reading is None or reading.process_mib is None:
        return None
    memory_of = dict(reading.process_mib)
    amounts = [memory_of.get(pid) for pid in pids]
    return None if None in amounts else sum(amount or 0 for amount in amounts)


def _busy_milli(before: _Seen | None, now: _Seen) -> int | None:
    """Return the thousandths of the time between two looks in which the task computed; None at the first
    look.
    """
    if before is None or now.at <= before.at:
        return None
    # only living processes count: less when one has ended
    busy_s = max(now.busy_ns - before.busy_ns, 0) / 1e9
    return min(round(WHOLE * busy_s / (now.at - before.at)), WHOLE)


def _files(volumes: Path) -> Iterator[File]:
    """Yield device and inode of each of our libcudas, in all driver volumes that have one beside the
    driver's.
    """
    for real in volumes.glob(f"builds/*/lib64/{_REAL}"):
        try:
            status = real.with_name(_OURS).stat()
        except OSError:  # the build is being removed
            continue
        yield status.st_dev, status.st_ino
