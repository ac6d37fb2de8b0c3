"""`python -m bench bookings`: processor time to decide on a booking beside queues with hours and other bookings."""

from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING, Final

import click

from bench.queues import quick_world
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.step import step
from mesos_gpu.errors import Conflict
from mesos_gpu.model.bookings.booking import BookingSpec, Repeat
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, Hours, QueueDocument, QueueSpec, Weekday

if TYPE_CHECKING:
    from tests.doubles.builders import World

_GPUS: Final = 8  # of each node
_HOUR: Final = 3600
_ZONE: Final = "Europe/Vienna"
_WORKDAYS: Final = tuple(Weekday)[:5]
_NOW: Final = 1_795_521_600.0  # Tuesday, 2026-11-24 12:00 UTC
_ASKED: Final = BookingSpec("asked", "exam", 2, "14:00", _HOUR)


@click.command()
@click.option(
    "--nodes", default=20, show_default=True, type=click.IntRange(20, 10_000), help="Nodes of 8 GPUs each."
)
@click.option(
    "--queues",
    default=30,
    show_default=True,
    type=click.IntRange(16, 100),
    help="Queues with hours of their own.",
)
@click.option(
    "--booked",
    default=5,
    show_default=True,
    type=click.IntRange(0, 200),
    help="Bookings of each day: two hours of 2 GPUs.",
)
@json_option
def bookings(nodes: int, queues: int, booked: int, as_json: bool) -> None:
    """Measure the engine's processor time to accept or refuse a booking, in ms.

    There are queues whose guarantees change by day and by night, and bookings that repeat each day. The measured
    bookings are one that happens once, one that repeats each day, and one of whole nodes that fits only at night, for
    which the engine searches the nearest times. Then the match after a booking is measured, in which all bookings get
    new provisional nodes.
    """
    # Whole nodes that no queue is guaranteed by day: fewer than by night.
    by_day = (nodes * _GPUS - queues) // _GPUS
    asked = {
        "once": _ASKED,
        "daily": replace(_ASKED, repeat=Repeat.DAILY),
        "daily_refused": replace(
            _ASKED, gpus=_GPUS, nodes=by_day + 1, lasts_s=3 * _HOUR, repeat=Repeat.WEEKDAYS
        ),
    }
    output.note(f"{nodes:,} nodes, {queues} queues with hours, {booked} booked each day")
    result = {f"{name}_ms": _judged_ms(_world(nodes, queues, booked), spec) for name, spec in asked.items()}
    result["match_ms"] = _match_ms(_world(nodes, queues, booked))
    result = {name: round(value, 1) for name, value in result.items()}
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "MS"), list(result.items()), empty="")


def _world(nodes: int, queues: int, booked: int) -> "World":
    from tests.doubles.builders import gpu

    world = quick_world()
    world.now = _NOW
    for i in range(nodes):
        world.node(f"n{i}", *(gpu(f"n{i}-{k}") for k in range(_GPUS)), cpus=100)
    hours = {f"q{i}": QueueSpec(hours=_hours(i)) for i in range(queues)}
    world.feed(ev.QueuesChanged(QueueDocument(queues={"exam": QueueSpec(), **hours}), 0))
    for i in range(booked):
        begins = f"{9 + i % 10:02}:{30 + 7 * (i // 10) % 30}"
        other = BookingSpec(f"other{i}", "exam", 2, begins, 2 * _HOUR, repeat=Repeat.DAILY)
        step(world.state, ev.BookingMade(other.name, other, "ann"), world.now, world.settings)
    world.feed(ev.Match())
    return world


def _hours(number: int) -> tuple[Hours, ...]:
    """Return the hours of a queue: four kinds of days and three of nights, for many changes of guarantees in a day."""
    day = Hours(
        f"{6 + number % 4:02}:00", "18:00", zone=_ZONE, guarantee_gpus={DEFAULT_POOL: Guarantee(1000)}
    )
    night = replace(
        day, begins=f"{20 + number % 3}:30", ends="05:00", days=_WORKDAYS,
        guarantee_gpus={DEFAULT_POOL: Guarantee(500)},
    )  # fmt: skip
    return day, night


def _judged_ms(world: "World", spec: BookingSpec) -> float:
    began = thread_time()
    try:
        step(world.state, ev.BookingMade(spec.name, spec, "ann"), world.now, world.settings)
        remedy = ""
    except Conflict as refused:
        remedy = refused.remedy
    took_ms = (thread_time() - began) * 1000
    assert bool(remedy) == (spec.gpus == _GPUS), f"whole nodes are refused, and they alone: {remedy}"
    return took_ms


def _match_ms(world: "World") -> float:
    step(world.state, ev.BookingMade("asked", _ASKED, "ann"), world.now, world.settings)
    began = thread_time()
    step(world.state, ev.Match(), world.now, world.settings)
    took_ms = (thread_time() - began) * 1000
    provisional = world.state.calendar.provisional
    assert provisional is not None, "its nodes are chosen"
    assert provisional.places["asked"], "it has nodes"
    return took_ms
