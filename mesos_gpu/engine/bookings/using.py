"""Use of booked GPUs, their idle time, and the charge for it."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine.bookings.ground import chosen_of
from mesos_gpu.engine.calendar.booked import users_of
from mesos_gpu.engine.charges import pool_of_node
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import DAY_S, Booking, Charge
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.usage import MS, Closed, MeasuredWork, Part, Span, SpanEnd

_ALL: Final = 100  # percent


def count_used(turn: Turn, booking: Booking) -> Booking:
    """Record the number of used GPUs of an active booking, if it has changed."""
    used = len(users_of(turn.state, booking)) if booking.is_active else 0
    if not booking.is_active or (used == booking.used_gpus and booking.counted_at):
        return booking
    was_used = booking.used_gpus or used
    counted = replace(
        counted_up(booking, turn.now),
        used_gpus=used,
        counted_at=turn.now,
        used_at=turn.now if was_used else booking.used_at,
    )
    turn.put(counted)
    return counted


def counted_up(booking: Booking, now: float) -> Booking:
    """Return a booking with its idle time counted up to now, before its places or used GPUs change."""
    counted_at = now if booking.counted_at else 0.0
    return replace(booking, idle_gpu_ms=idle_gpu_ms(booking, now), counted_at=counted_at)


def idle_gpu_ms(booking: Booking, now: float) -> int:
    """Return the idle time of a booking's GPUs in its current period, in GPU milliseconds.

    It counts from the begin to now, at most to the end, which may have passed while no scheduler ran. The begin may
    come again when the clock is set back.
    """
    if not booking.counted_at:
        return booking.idle_gpu_ms
    idle = max(len(booking.gpus) - booking.used_gpus, 0)
    since, until = max(booking.counted_at, booking.begins), min(now, booking.ends)
    return booking.idle_gpu_ms + idle * max(round((until - since) * MS), 0)


def purged_at(turn: Turn, booking: Booking) -> float | None:
    """Return when an unused booking is given back, in seconds since the epoch.

    Time while no scheduler ran, and time before its begin, does not count: it could not be used.

    Returns:
        None if it is used, has no nodes, or is never given back.
    """
    if not booking.spec.purge_after_s or booking.used_gpus or not booking.places:
        return None
    since = max(booking.counted_at, turn.state.started_at, booking.begins)
    return since + booking.spec.purge_after_s


def charge(turn: Turn, booking: Booking) -> None:
    """Charge the queue of a booking for idle GPUs, if the booking asks for that, by a record like those of tasks.

    The charge is at most for all that was booked, also if the clock was set back and some of its time came twice.
    """
    chosen = chosen_of(turn.state, booking)
    ends_ms = round(min(turn.now, booking.ends) * MS)
    lasted_ms = ends_ms - booking.begins * MS
    idle_ms = min(idle_gpu_ms(booking, turn.now), booking.spec.gpus_in_all * max(lasted_ms, 0))
    if booking.spec.charge is not Charge.IDLE or not idle_ms or not chosen or lasted_ms <= 0:
        return
    document = turn.state.quota.queues
    every = sum(group.gpus for group in chosen)
    parts = []
    for model in sorted({group.model for group in chosen}):
        count = sum(group.gpus for group in chosen if group.model == model)
        milli = idle_ms * WHOLE * count // (every * lasted_ms)
        parts.append(Part(model, milli, milli * document.cost_of(model)))
    node = turn.state.cluster.nodes.get(booking.places[0].agent_id)
    span = Span(
        TaskId(f"{booking.id}.{booking.day}"), JobId(""), booking.by, booking.spec.queue, "", "",
        pool_of_node(turn.state.quota.tree, node), tuple(parts),
        borrowed=False, charge_percent=_ALL, begins_ms=booking.begins * MS,
    )  # fmt: skip
    day = booking.begins // DAY_S
    work = tuple([MeasuredWork(day, part.model, idle=part.gpu_milli * lasted_ms) for part in parts])
    turn.effects.append(KeepRecord(Closed(span, ends_ms, 0, 0, SpanEnd.CALENDAR, work)))
