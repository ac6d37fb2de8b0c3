"""Rules of past use, which decays with a half-life: each saved change is checked with logarithms."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, expm1, log
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.saves import ForgetPastUse, SavePastUse, SaveTask
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.model.usage import PastUse
from tests.chaos.account import Account
from tests.chaos.violation import Violation

_MICRO: Final = 1_000_000  # microseconds per second
_NEARLY: Final = 1e-9  # relative error of floats here
_ROUNDED: Final = 4.0  # thousandths of cost times seconds that one change may round off
_RULE: Final = "past use follows from what was held"


@dataclass(slots=True)
class Uses:
    """Latest saved past use of each queue and user, with the half-life since then."""

    known: dict[tuple[str, str], tuple[PastUse, int]] = field(default_factory=dict)


def follow(account: Account, uses: Uses, effects: Iterable[fx.Effect], now: float) -> None:
    """Check the past use that a batch has saved.

    Raises:
        Violation: It does not follow from the previous value.
    """
    every, half_life_s = list(effects), account.queues.half_life_s
    ends = [e.task.ended_at for e in every if isinstance(e, SaveTask) and e.task.ended_at is not None]
    late_s, changed = max(0.0, now - min(ends, default=now)), False
    for effect in every:
        if isinstance(effect, ForgetPastUse):
            uses.known.pop((effect.queue, effect.user), None)
        elif isinstance(effect, SavePastUse):
            new, changed = effect.use, True
            known = uses.known.get((new.queue, new.user))
            if known is not None:
                _follows(*known, new, late_s)
            elif new.user == EVERYBODY and new.value:
                raise Violation(_RULE, f"{new} begins with something", new.queue)
            uses.known[new.queue, new.user] = new, half_life_s
    if changed:
        _held_now(account)


def _follows(old: PastUse, half_life_s: int, new: PastUse, late_s: float) -> None:
    """Check a change; use after the end of a task may be subtracted if the end was reported late."""
    least = most = value = _forgotten(old.value, old.since, new.since, half_life_s) + _grown(
        old.rate, new.since - old.since, half_life_s
    )
    if new.rate < old.rate:
        least = max(0.0, value - _grown(old.rate - new.rate, int(late_s * _MICRO), half_life_s))
    rounded = _ROUNDED + value * _NEARLY
    if new.since < old.since or not least - rounded <= new.value <= most + rounded:
        words = f"{new} after {old}, of which {value:.3f} are left with a half-life of {half_life_s} s"
        raise Violation(_RULE, words, new.queue)


def _forgotten(value: int, since: int, until: int, half_life_s: int) -> float:
    return value * exp(-log(2) * (until - since) / (half_life_s * _MICRO))


def _grown(rate: int, span: int, half_life_s: int) -> float:
    """Return the decayed use of a rate that was held for a span of microseconds."""
    return -rate * half_life_s / log(2) * expm1(-log(2) * span / (half_life_s * _MICRO))


def _held_now(account: Account) -> None:
    """Check that use grows by what tasks are charged."""
    rates = Counter[tuple[str, str]]()
    for task in account.disk.tasks.values():
        if task.charge is not None:
            for user in (EVERYBODY, task.charge.user):
                rates[task.charge.queue, user] += task.charge.rate
    for (queue, user), use in account.disk.past_uses.items():
        if use.rate != rates[queue, user]:
            words = f"{queue} {user} grows by {use.rate}, and {rates[queue, user]} are charged"
            raise Violation(_RULE, words, queue)
