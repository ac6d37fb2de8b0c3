"""What a booking is charged for GPUs that stood ready and that nobody used, beside what truly was so while time passed.

It is added up here batch by batch, from the places, tasks and jobs that are on disk.
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

IDLE: Final = "a booking is charged for what stood ready and nobody used"
_DUE_S: Final = 3.0  # in which it is noted that other GPUs are used


@dataclass(slots=True)
class Ready:
    """What stands ready in the current time of an active booking, as it was after the last batch.

    Attributes:
        since: When that was, seconds since the epoch.
        gpus: Cards that it has.
        used: Those of them that jobs hold which may.
        by: The tasks that hold those.
        noted: As many as the scheduler takes to be used.
        least, most: What was idle so far, GPUs times milliseconds: the scheduler sees a little later what is used.
        wrong_since: Since when it has noted another number of the same tasks; None: it has not.
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
        """Time has passed up to a moment; what a batch rounds is less than a millisecond a GPU."""
        self.unsure |= moment < self.since
        lasts_ms = max(moment - self.since, 0.0) * MS
        low, high = sorted((self.gpus - self.used, max(self.gpus - self.noted, 0)))
        self.least += low * lasts_ms - self.gpus
        self.most += high * lasts_ms + self.gpus
        self.since = moment


@dataclass(slots=True)
class Charges:
    """What stands ready, by booking."""

    ready: dict[str, Ready] = field(default_factory=dict)


def follow(account: Account, charges: Charges, effects: Iterable[fx.Effect], now: float) -> None:
    """Judge the records of bookings whose time a step ends, before it is on disk.

    Raises:
        Violation: They are not of what was idle.
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
    """Look at the active bookings after a batch.

    Raises:
        Violation: The scheduler has not noted for some time how many of their GPUs are used.
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
