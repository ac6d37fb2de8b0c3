"""What a job that waits is guaranteed, and what will be made free for it, in words. Pure."""

from collections.abc import Sequence
from typing import Final

from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.jobs.why import Owed, RoomToCome
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.words import clock, counted, is_or_are

_SOON_S: Final = 5.0  # the next match or the one after
_MAX_NAMED: Final = 3


def owed_words(owed: Owed, free: Sequence[int], now: float) -> str:
    """Say what is free of what its queue guarantees it, and what will be.

    Args:
        owed: What it has of a guarantee.
        free: GPUs that are free and would do, by node; only nodes that have any.
        now: Seconds since the epoch.
    """
    there = free_words(free)
    if owed.room is not None:
        return f"{there}; {room_words(owed.room, now)}"
    are = is_or_are(number_of(owed.seated_milli))
    held = [
        f"{_gpus(owed.seated_milli)} {are} held by jobs within guarantees" if owed.seated_milli else "",
        f"{_gpus(owed.spared_milli)} by jobs that are not stopped for it" if owed.spared_milli else "",
    ]
    pieces = (
        "" if owed.in_nodes else f"queue {owed.queue} is guaranteed a number of GPUs, which may lie in pieces"
    )
    return "; ".join(filter(None, (there, " and ".join(filter(None, held)), pieces)))


def free_words(free: Sequence[int]) -> str:
    """How many GPUs are free, and how they lie."""
    if not free:
        return "no GPU is free"
    most = f" with at most {max(free)} each" if len(free) > 1 else ""
    return f"{counted(sum(free), 'GPU')} {is_or_are(sum(free))} free, on {counted(len(free), 'node')}{most}"


def room_words(room: RoomToCome, now: float) -> str:
    """Who gives back what, and when."""
    takes = ", ".join(f"{_gpus(each.gpus_milli)} from queue {each.queue}" for each in room.givers)
    names = [str(job_id) for each in room.givers for job_id in each.jobs]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    when = "now" if room.at <= now + _SOON_S else f"at {clock(room.at, now)}"
    after = f" after {room.after}" if room.after else ""
    return f"reclaim of {takes} ({', '.join(names[:_MAX_NAMED])}{more}) {when}{after}"


def _gpus(milli: int) -> str:
    return counted(number_of(milli), "GPU")


def by_room(room: RoomToCome, now: float) -> Estimate:
    """When a job starts for which others make room."""
    return Estimate(room.until, f"{room_words(room, now)}, with their notice and grace")
