"""Acts on bookings: changes by users, faults of booked nodes, and clocks that pass begins and ends."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import Booking, BookingSpec, Charge, Place, Repeat
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tenancy import DEFAULT_POOL
from tests.chaos.choice import choose
from tests.chaos.queues import LEAVES
from tests.chaos.world import MODELS, World

USERS: Final = ("alice", "bob")
_MAX: Final = 5  # unfinished bookings at most
_QUEUES: Final = (*LEAVES, "a")
_NAMES: Final = ("exam", "night", "")  # empty for the id as name
_BEGIN_S: Final = (2, 10, 20, 45, 90, 300, 900)  # seconds from now
_LAST_S: Final = (60, 60, 120, 300, 1200)
_ZONES: Final = ("UTC", "Europe/Vienna", "Asia/Kolkata", "America/New_York")
_REPEATS: Final = (*(Repeat.NONE,) * 5, Repeat.DAILY, Repeat.WEEKDAYS, Repeat.WEEKLY)
_PURGES_S: Final = (0, 0, 30, 120, 900)
_SHIFTS_S: Final = (-20.0, -5.0, -0.1, 0.0, 0.3, 5.0)
_LEADS_S: Final = (0.0, 0.0, 5.0, 10.0, 25.0)  # seconds before a begin or an end, for notices and graces
_SOON_S: Final = 7200.0
_DAY_S: Final = 86_400.0


def _unfinished(world: World) -> list[Booking]:
    return [booking for booking in world.state.calendar.bookings.values() if not booking.state.ended]


def _any(world: World, number: int) -> Booking | None:
    return choose(world, _unfinished(world), number, lambda booking: booking.id)


def _begin(dice: random.Random, now: float, zone: str) -> str:
    at = datetime.fromtimestamp(int(now) + dice.choice(_BEGIN_S), UTC).astimezone(ZoneInfo(zone))
    return f"{at:%Y-%m-%dT%H:%M:%S}"


def _spec(dice: random.Random, world: World, booking_id: str) -> BookingSpec:
    zone, repeat = dice.choice(_ZONES), dice.choice(_REPEATS)
    begins = _begin(dice, world.now, zone)
    last = datetime.fromisoformat(begins) + timedelta(days=dice.choice((0, 1, 3, 9)))
    pools = (
        DEFAULT_POOL,
        DEFAULT_POOL,
        DEFAULT_POOL,
        *(pool.name for pool in world.state.quota.queues.pools),
    )
    return BookingSpec(
        name=dice.choice(_NAMES) or booking_id,
        queue=dice.choice(_QUEUES),
        gpus=dice.choice((1, 1, 2, 2, 3, 4)),
        begins=begins if dice.random() < 0.9 else "now",
        lasts_s=dice.choice(_LAST_S),
        zone=zone,
        nodes=dice.choice((1, 1, 1, 2)),
        models=dice.choice(((), (), MODELS[:1], MODELS[1:])),
        pool=dice.choice(pools),
        users=dice.choice(((), (), USERS[:1], USERS)),
        repeat=repeat,
        until="" if repeat is Repeat.NONE else f"{last:%Y-%m-%d}",
        overrun=dice.random() < 0.3,
        from_guarantee=dice.random() < 0.4,
        purge_after_s=dice.choice(_PURGES_S),
        charge=dice.choice(tuple(Charge)),
    )


def _dice(a: int, b: int) -> random.Random:
    return random.Random(a << 24 | b >> 3)  # the last bits choose whether the event is passed at once


def _book(world: World, a: int, b: int) -> None:
    """Create a booking."""
    if len(_unfinished(world)) >= _MAX:
        return
    booking_id = world.target or str(world.new_id("k"))
    world.chosen.append(booking_id)
    spec = _spec(_dice(a, b), world, booking_id)
    world.say(f"booking {booking_id} is asked for: {_words(spec)}")
    world.inbox.append(ev.BookingMade(booking_id, spec, "me"))


def _move(world: World, a: int, b: int) -> None:
    """Change a booking: mostly its begin, or its duration if it has begun."""
    booking = _any(world, a)
    if booking is None:
        return
    dice, old = _dice(a, b), booking.spec
    if booking.is_active and dice.random() < 0.9:
        new = replace(old, lasts_s=max(60, old.lasts_s + dice.choice((-600, -60, 60, 600))))
        if dice.random() < 0.3:
            new = replace(new, overrun=not old.overrun, users=dice.choice(((), USERS[:1], USERS)))
    else:
        new = replace(old, begins=_begin(dice, world.now, old.zone), lasts_s=dice.choice(_LAST_S))
        if dice.random() < 0.5:
            other = _spec(dice, world, booking.id)
            names = ("gpus", "nodes", "models", "queue", "users", "from_guarantee", "repeat", "until")
            new = replace(new, **{name: getattr(other, name) for name in names})
    world.say(f"booking {booking.id} is to be: {_words(new)}")
    world.inbox.append(ev.BookingChanged(booking.id, new))


def _cancel(world: World, a: int, b: int) -> None:
    """Cancel a booking of a user."""
    booking = _any(world, a)
    if booking is not None:
        world.say(f"booking {booking.id} is cancelled")
        world.inbox.append(ev.BookingCancelled(booking.id))


def _words(spec: BookingSpec) -> str:
    plain, said = BookingSpec(), []
    for name in BookingSpec.__slots__:
        value = getattr(spec, name)
        if value != getattr(plain, name):
            said.append(f"{name} {getattr(value, 'value', value)}")
    return ", ".join(said)


def job_for(world: World, job_id: JobId, a: int, b: int) -> tuple[JobSpec, str] | None:
    """Return a job for the queue of a booking, which mostly requests the booking, and its owner.

    Returns None if there are no bookings.
    """
    unfinished = _unfinished(world)
    if not unfinished:
        return None
    dice = _dice(a, b)
    booking = dice.choice(unfinished)
    queue, user = booking.spec.queue, dice.choice((*booking.spec.users, *USERS, None))
    spec = JobSpec(
        name=job_id,
        command="true",
        cpus=0.1,
        mem_mib=32,
        gpus=dice.choice((1, 1, 1, 2, booking.spec.gpus)),
        tasks=dice.choice((1, 1, 1, 2)),
        queue="a/x" if queue == "a" else queue,
        preemptible=dice.random() < 0.6,
        timeout_s=dice.choice((None, None, 30.0, 100.0, 600.0)),
        notice_s=dice.choice((None, None, 0.0, 10.0)),
        max_attempts=dice.choice((1, 2, 3)),
        booking=dice.choice((booking.spec.name, booking.spec.name, booking.id, None)),
        user=user,
    )
    return spec, user if user is not None and dice.random() < 0.6 else ""


# --- nodes and clocks


def _strike(world: World, a: int, b: int) -> None:
    """Lose, drain or break a node that is chosen for a booking, or a card of it."""
    places = [place for booking in _unfinished(world) for place in booking.places]
    place = choose(world, places, a, lambda place: place.hostname)
    agent = None if place is None else world.mesos.agents.get(place.agent_id)
    if place is None or agent is None:
        return
    what = ("drain", "drain at once", "sick", "sick", "cut", "die")[b // 8 % 6]
    world.say(f"{what}: {place.hostname}, which is booked")
    if what in ("drain", "drain at once"):
        deadline_s = 0.0 if what == "drain at once" else None
        world.inbox.append(ev.DrainRequested(Target.NODE, place.hostname, "why", "me", deadline_s))
    elif what == "sick":
        _sicken(world, place)
    elif what == "die":
        world.mesos.die(agent)
    elif not agent.cut:
        world.mesos.lose(agent)


def _sicken(world: World, place: Place) -> None:
    agent = world.mesos.agents[place.agent_id]
    world.mesos.set_health(agent, place.gpus[0], Health.SICK, "it fell ill")
    world.mesos.report(agent)


def _pass(world: World, a: int, b: int) -> None:
    """Let time pass to about the begin or end of a booking, rarely for a day.

    Mostly all messages are delivered then, and all free resources are offered.
    """
    moments = {float(at) for booking in _unfinished(world) for at in (booking.begins, booking.ends)}
    moments |= {
        booking.counted_at + booking.spec.purge_after_s
        for booking in _unfinished(world)
        if booking.is_active and booking.spec.purge_after_s
    }
    soon = sorted(at for at in moments if 0 < at - world.now < _SOON_S)
    if soon:
        lead_s = _LEADS_S[a // 64 % len(_LEADS_S)]
        at = soon[0] if a % 4 else soon[a // 4 % len(soon)]
        seconds = max(0.1, at - lead_s + _SHIFTS_S[b // 8 % len(_SHIFTS_S)] - world.now)
    elif moments and b % 4 == 0:
        seconds = min((at - world.now for at in moments if at > world.now), default=_DAY_S)
    else:
        return
    world.say(f"{seconds:g} s pass, and bookings begin or end after {[at - world.now for at in soon]} s")
    world.pass_time(seconds)
    if b // 64 % 8:
        world.inbox += world.mesos.mail
        world.mesos.mail.clear()
        offers = (world.mesos.offer(agent) for agent in world.mesos.agents.values())
        world.inbox += [event for event in offers if event]


def cancel_all(world: World) -> None:
    """Cancel all bookings."""
    world.inbox += [ev.BookingCancelled(booking.id) for booking in _unfinished(world)]


#: Weight and function of each act, by name.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], Any]]]] = {
    "book": (0.0, _book),
    "move booking": (0.0, _move),
    "cancel booking": (0.0, _cancel),
    "strike booking": (0.0, _strike),
    "pass bookings": (0.0, _pass),
}
