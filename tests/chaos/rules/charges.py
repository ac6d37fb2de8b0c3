"""Rules of charges for unused GPUs of bookings: they must equal the idle time that is added up here.

Idle time is added up after each batch from saved bookings, tasks and jobs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.bookings.booking import Booking, Charge
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.saves import KeepRecord, SaveBooking
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.usage import MS, Closed
from tests.chaos.account import Account
from tests.chaos.rules.bookings import users_of
from tests.chaos.violation import Violation

IDLE: Final = "a booking is charged for unused GPUs"
_DUE_S: Final = 3.0  # seconds within which the scheduler must note other used GPUs


@dataclass(slots=True)
class Ready:
    """Cards of an active booking after the last batch, and idle time of its current occurrence.

    Attributes:
        since: Time of the last batch, in seconds since the epoch.
        gpus: Number of cards.
        used: Number of cards that authorized jobs hold.
        by: Tasks that hold cards.
        noted: Number of used cards by the state of the scheduler.
        least: Lower bound of idle GPU milliseconds; the scheduler notices use a little later.
        most: Upper bound of idle GPU milliseconds.
        wrong_since: Time since which the scheduler has a wrong number of used cards, or None if it is right.
        unsure: Whether the clock was set back meanwhile.
    """

    since: float
    gpus: int = 0
    used: int = 0
    by: frozenset[TaskId] = frozenset()
    noted: int = 0
    least: float = 0.0
    most: float = 0.0
    wrong_since: float | None = None
    unsure: bool = False

    def pass_to(self, moment: float) -> None:
        """Add idle time up to a time, with less than a millisecond of rounding per GPU."""
        self.unsure |= moment < self.since
        lasts_ms = max(moment - self.since, 0.0) * MS
        low, high = sorted((self.gpus - self.used, max(self.gpus - self.noted, 0)))
        self.least += low * lasts_ms - self.gpus
        self.most += high * lasts_ms + self.gpus
        self.since = moment


@dataclass(slots=True)
class Charges:
    """Cards and idle time of active bookings, by id."""

    ready: dict[str, Ready] = field(default_factory=dict)


def follow(account: Account, charges: Charges, effects: Iterable[fx.Effect], now: float) -> None:
    """Check the records of bookings whose occurrence a step ends, before they are saved.

    Raises:
        Violation: Records differ from the idle time.
    """
    every = list(effects)
    records = [effect.record for effect in every if isinstance(effect, KeepRecord)]
    for effect in every:
        if isinstance(effect, SaveBooking):
            old = account.disk.bookings.get(effect.booking.id)
            ready = charges.ready.get(effect.booking.id)
            if old is not None and ready is not None and not effect.booking.is_active:
                del charges.ready[old.id]
                ready.pass_to(min(now, float(old.ends)))
                _right(account, old, ready, records, now)


def _right(account: Account, old: Booking, ready: Ready, records: list[Closed], now: float) -> None:
    mine = [each for each in records if each.span.task_id == f"{old.id}.{old.day}"]
    lasted_ms = sum(each.ends_ms - each.span.begins_ms for each in mine)
    parts = [part for each in mine for part in each.span.parts]
    charged = sum(part.gpu_milli for part in parts) * lasted_ms / WHOLE
    rounded = (len(parts) or 2) * max(min(now, old.ends) - old.begins, 0) * MS / WHOLE
    known = {gpu.id for node in account.disk.nodes.values() for gpu in node.gpus} & set(old.gpus)
    least, most = (
        (0.0, old.spec.gpus_in_all * float(lasted_ms)) if ready.unsure else (ready.least, ready.most)
    )
    if old.spec.charge is Charge.NONE:
        least = most = 0.0
    elif not known or lasted_ms < 0:
        least = 0.0
    costs = account.queues.gpu_cost
    dear = all(part.cost_milli == part.gpu_milli * costs.get(part.model, 1) for part in parts)
    whose = all((each.span.queue, each.span.owner) == (old.spec.queue, old.by) for each in mine)
    if len(mine) > 1 or not dear or not whose or not least - rounded <= charged <= most + 1:
        words = f"{old.id} of {old.spec} is charged {charged} GPU ms by {mine}; idle were {least} to {most}"
        raise Violation(IDLE, words, old.id)


def note(account: Account, charges: Charges, now: float) -> None:
    """Check the active bookings after a batch.

    Raises:
        Violation: The scheduler has had a wrong number of used GPUs for some time.
    """
    for booking in account.disk.bookings.values():
        if not booking.is_active:
            continue
        ready = charges.ready.setdefault(booking.id, Ready(now))
        ready.pass_to(now)
        cards, tasks = set(booking.gpus), users_of(account, booking)
        used = {gpu for task in tasks for gpu in task.gpus} & cards
        before, by = (ready.gpus, ready.by), frozenset([task.id for task in tasks])
        ready.gpus, ready.used, ready.by, ready.noted = len(cards), len(used), by, booking.used_gpus
        if ready.used == ready.noted or not account.mesos.connected:
            ready.wrong_since = None
        elif ready.wrong_since is None or before != (ready.gpus, by):
            ready.wrong_since = now
        elif now - ready.wrong_since > _DUE_S:
            words = f"of {booking.id} {ready.used} of {ready.gpus} are used, {ready.noted} are noted"
            raise Violation(IDLE, words, booking.id)
