"""Acts that write trees of queues with hours, dedicated pools and orders of pools, and clocks that pass hours."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from mesos_gpu.engine import events as ev
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, Hours, Pool, QueueDocument, QueueSpec, Weekday
from tests.chaos.queues import document_of, with_idle_rules
from tests.chaos.times.hours import in_force
from tests.chaos.world import MODELS, World

_ZONES: Final = ("UTC", "Europe/Vienna", "Asia/Kolkata", "America/New_York")
_OLD: Final = "old"
_ORDERS: Final = (None, None, (_OLD,), (_OLD, DEFAULT_POOL), (DEFAULT_POOL, _OLD))
_BEGIN_S: Final = (-1800, 60, 120, 240, 600)  # seconds from now
_LAST_S: Final = (120, 300, 900, 7200, 43_200)
_MINUTE_S: Final = 60
_DAY_S: Final = 86_400
_SUMMER_S: Final = 104.0 * _DAY_S  # long enough for summer time to begin in America/New_York
_SOON_S: Final = 600  # seconds in which the next change of hours is searched
_EARLIEST_S: Final = 500_000.0
_BACK_S: Final = (0.5, 5.0, 30.0, 130.0, 900.0)


def document_at(a: int, b: int, now: float) -> QueueDocument:
    """Return the tree of `document_of` with hours that begin or end soon in some queues, and orders of pools in some.

    Args:
        a: First number of the act, which chooses details.
        b: Second number of the act, whose last three bits are ignored.
        now: Present time in seconds since the epoch.
    """
    plain, dice = document_of(a, b), random.Random(a << 24 | b >> 3)
    old = Pool(_OLD, MODELS[1:], dedicated=dice.random() < 0.6)
    pools: tuple[Pool, ...] = (old,) if dice.random() < 0.6 else ()
    queues = {
        path: replace(spec, hours=_hours(dice, now)) if dice.random() < 0.6 else spec
        for path, spec in plain.queues.items()
    }
    for path in ("default", "a", "b") if pools else ():
        order = dice.choice(_ORDERS)
        after_s = dice.choice((None, 0.0, 10.0, 60.0))
        queues[path] = _in_order(dice, queues[path], order, after_s, dedicated=old.dedicated)
        if order is not None and DEFAULT_POOL not in order:
            below = (each for each in queues if each.startswith(f"{path}/"))
            queues |= {each: _without_default(queues[each]) for each in list(below)}
    return replace(plain, queues=queues, pools=pools)


def _hours(dice: random.Random, now: float) -> tuple[Hours, ...]:
    return tuple(_entry(dice, now) for _ in range(dice.choice((1, 1, 2))))


def _entry(dice: random.Random, now: float) -> Hours:
    zone = dice.choice(_ZONES)
    begins = now + dice.choice(_BEGIN_S)
    ends = begins + dice.choice(_LAST_S)
    from_, to = (_shown(each, zone) for each in (begins, ends))
    figures: dict[str, Any] = {}
    if dice.random() < 0.7:
        figures["guarantee_gpus"] = {DEFAULT_POOL: Guarantee(dice.choice((0, 1, 2, 4)) * WHOLE)}
    if dice.random() < 0.4:
        figures["limit_gpus"] = {DEFAULT_POOL: dice.choice((0, 1, 2, 4)) * WHOLE}
    if dice.random() < 0.2:
        figures["borrow_limit_gpus"] = {DEFAULT_POOL: dice.choice((0, 1)) * WHOLE}
    figures["weight"] = dice.choice((1, 3))
    today = tuple(Weekday)[datetime.fromtimestamp(begins, ZoneInfo(zone)).weekday()]
    days = tuple(Weekday) if dice.random() < 0.7 else (today,)
    return Hours(from_, to, days, zone, **figures)


def _shown(moment: float, zone: str) -> str:
    return f"{datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(zone)):%H:%M}"


def _in_order(
    dice: random.Random,
    spec: QueueSpec,
    order: tuple[str, ...] | None,
    after_s: float | None,
    *,
    dedicated: bool,
) -> QueueSpec:
    if order is None:
        return spec if dedicated else replace(spec, overflow_after_s=after_s)
    if DEFAULT_POOL not in order:
        spec = _without_default(spec)
    owed = {_OLD: Guarantee(dice.choice((0, 1, 2)) * WHOLE)}
    return replace(
        spec, pools=order, overflow_after_s=after_s, guarantee_gpus={**spec.guarantee_gpus, **owed}
    )


def _without_default(spec: QueueSpec) -> QueueSpec:
    """Return a queue without guarantees, for pools that it may not use."""
    hours = tuple(replace(each, guarantee_gpus={}) for each in spec.hours)
    return replace(spec, guarantee_gpus={}, hours=hours)


def _change(world: World, a: int, b: int) -> None:
    """Write another tree with hours and pools."""
    document = document_at(a, b, world.now)
    world.say(
        f"an operator writes queues, after version {world.state.quota.queues.version}: {_words(document)}"
    )
    world.inbox.append(ev.QueuesChanged(document, world.state.quota.queues.version))


def _change_all(world: World, a: int, b: int) -> None:
    """Write another tree with hours, pools and rules of idle GPUs."""
    plain = document_at(a, b, world.now)
    document = with_idle_rules(plain, random.Random(b << 24 | a))
    world.say(
        f"an operator writes queues, after version {world.state.quota.queues.version}: {_words(document)}"
    )
    world.inbox.append(ev.QueuesChanged(document, world.state.quota.queues.version))


def _words(document: QueueDocument) -> str:
    plain = QueueSpec()
    told = []
    for path, spec in document.queues.items():
        names = [name for name in QueueSpec.__slots__ if getattr(spec, name) != getattr(plain, name)]
        told.append(f"{path}: " + (", ".join(f"{name} {getattr(spec, name)}" for name in names) or "nothing"))
    return "; ".join((*told, *map(str, document.pools)))


def _next_change_s(world: World) -> float | None:
    """Return the seconds until hours change figures of queues, or None if that is not soon."""
    written, now = world.witness.written, world.now
    first = now // _MINUTE_S * _MINUTE_S + _MINUTE_S
    today = in_force(written, now)
    minutes = (first + n * _MINUTE_S for n in range(_SOON_S // _MINUTE_S))
    return next((each - now for each in minutes if in_force(written, each) != today), None)


def _pass_hours(world: World, a: int, b: int) -> None:
    """Let time pass to about the next change of hours, rarely to another season."""
    left_s = _next_change_s(world)
    if left_s is not None:
        seconds = max(0.1, left_s + (-20.0, -5.0, -0.1, 0.0, 0.3, 30.0)[a % 6])
    elif a % 64 == 63:
        seconds = _SUMMER_S
    else:
        return
    world.say(f"{seconds:g} s pass, and hours change after {left_s} s")
    world.pass_time(seconds)


def _set_back(world: World, a: int, b: int) -> None:
    """Set the clock of the scheduler's host back, mostly by less than `MAX_BACK_S`."""
    back_s = _BACK_S[a % len(_BACK_S)]
    if world.now - back_s >= _EARLIEST_S:
        world.say(f"the clock is set back by {back_s:g} s")
        world.set_clock(-back_s)


#: Weight and function of each act, by name.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "change hours": (0.0, _change),
    "change all": (0.0, _change_all),
    "pass hours": (0.0, _pass_hours),
    "set clock in hours": (0.0, _set_back),
}
