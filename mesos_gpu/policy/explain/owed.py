"""Guarantee of a waiting job, and the capacity that will be freed for it, as text. Pure."""

from collections.abc import Sequence
from typing import Final

from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.jobs.why import GuaranteeShare, PendingReclaim
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.words import clock, counted, is_or_are

_SOON_S: Final = 5.0  # times until then are shown as "now": the next match or the one after
_MAX_NAMED: Final = 3


def owed_words(owed: GuaranteeShare, free: Sequence[int], now: float) -> str:
    """Describe which part of a guaranteed amount is free, and which will be.

    Args:
        owed: Guarantee that applies to the job.
        free: Suitable free GPUs of each node that has any.
        now: Seconds since the epoch.
    """
    free_text = free_words(free)
    if owed.room is not None:
        return f"{free_text}; {room_words(owed.room, now)}"
    are = is_or_are(number_of(owed.seated_milli))
    holders = [
        f"{_gpus(owed.seated_milli)} {are} held by jobs within guarantees" if owed.seated_milli else "",
        f"{_gpus(owed.spared_milli)} by jobs that are not preempted for it" if owed.spared_milli else "",
    ]
    pieces = (
        ""
        if owed.in_nodes
        else f"queue {owed.queue} is guaranteed a number of GPUs, which may be scattered over nodes"
    )
    return "; ".join(filter(None, (free_text, " and ".join(filter(None, holders)), pieces)))


def free_words(free: Sequence[int]) -> str:
    """Return how many GPUs are free, and on how many nodes, as text."""
    if not free:
        return "no GPU is free"
    most = f" with at most {max(free)} each" if len(free) > 1 else ""
    return f"{counted(sum(free), 'GPU')} {is_or_are(sum(free))} free, on {counted(len(free), 'node')}{most}"


def room_words(room: PendingReclaim, now: float) -> str:
    """Return which queues give GPUs back, and when, as text."""
    takes = ", ".join(f"{_gpus(giver.gpus_milli)} from queue {giver.queue}" for giver in room.givers)
    names = [str(job_id) for giver in room.givers for job_id in giver.jobs]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    when = "now" if room.at <= now + _SOON_S else f"at {clock(room.at, now)}"
    after = f" after {room.after}" if room.after else ""
    return f"reclaim of {takes} ({', '.join(names[:_MAX_NAMED])}{more}) {when}{after}"


def _gpus(milli: int) -> str:
    return counted(number_of(milli), "GPU")


def by_room(room: PendingReclaim, now: float) -> Estimate:
    """Return the estimate of a job for which others are ended."""
    return Estimate(room.until, f"{room_words(room, now)}, with their notice and grace")
